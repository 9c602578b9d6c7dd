"""What a command finds that `rmx alloc` runs here: the names of its allocation, and `srun` in its PATH."""

from __future__ import annotations

import os
import re
import signal
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET

from rm.api.jobs import FullJob
from rm.cli.session import Session
from rm.units import hosts_in_order

PROGRAMS = ("srun",)  # of which it finds ours
ALLOCATION = "RM_ALLOCATION"  # the job of which this machine's commands may start steps
# of what the first host says the script finds: that host may lie, and this machine acts upon it
_OF_THE_HOST = frozenset(f"SLURM_{name}" for name in (
    "CLUSTER_NAME", "NTASKS", "NPROCS", "CPUS_PER_TASK", "JOB_START_TIME", "JOB_END_TIME", "DISTRIBUTION",
    "DIST_PLANESIZE", "NODE_ALIASES", "TASKS_PER_NODE", "NTASKS_PER_NODE", "JOB_CPUS_PER_NODE",
    "MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU", "CPUS_PER_GPU", "GPUS",
    "GPUS_PER_NODE", "GPUS_PER_TASK", "NTASKS_PER_GPU", "GPU_BIND",
    "JOB_GPUS", "JOB_ACCOUNT", "JOB_QOS", "JOB_PARTITION", "JOB_UID", "JOB_GID", "RESTART_COUNT",
))  # fmt: skip
_PLAIN = re.compile(r"[\w.,:+()*/-]{0,4096}", re.ASCII)  # numbers, lists and names, as these values are


def environment(
    own: Mapping[str, str], found: Mapping[str, str], job: FullJob, session: Session, programs: str
) -> dict[str, str]:
    """`own` with the allocation's names: those that lead somewhere by what the daemon says of `job`, others
    of `found`, what the job's script finds. The folder `programs` is first in PATH, and the daemon the one
    of `session`."""
    believed = {n: v for n, v in found.items() if n in _OF_THE_HOST and _PLAIN.fullmatch(v)}
    made = {**own, **believed, **_by_the_daemon(job), ALLOCATION: str(job.id)}
    path = own.get("PATH", os.defpath).split(os.pathsep)
    if jobs_own := made.pop("RM_BIN", ""):  # in a job, whose programs are about that one
        made.pop("RM_STEPS", None)
        path = [folder for folder in path if folder != jobs_own]
    if session.socket_flag:
        made["RM_DAEMON__SOCKET"] = os.path.abspath(session.socket_flag)
    if session.config_flag:
        made["RM_CONFIG"] = os.path.abspath(session.config_flag)
    made["PATH"] = os.pathsep.join([programs, *path])
    return made


def _by_the_daemon(job: FullJob) -> dict[str, str]:
    """Where the hosts are and what the job is."""
    number, hosts, count = str(job.id), hosts_in_order(job.hosts), str(len(job.hosts))
    submitted = {} if job.spec.env is UNSET else job.spec.env
    return {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "RM_JOB_ID": number,
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_JOB_USER": job.spec.user,
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_SUBMIT_DIR": submitted.get("SLURM_SUBMIT_DIR", job.spec.chdir),
        "SLURM_SUBMIT_HOST": job.spec.submit_host,
        **({"SLURM_JOB_DEPENDENCY": job.spec.dependency} if job.spec.dependency else {}),
    }


def write_programs(folder: str) -> None:
    from rm.cli.program_files import write_program

    for name in PROGRAMS:
        write_program(Path(folder), name)


class Terminal:
    """The terminal here, which is afterwards as it was before, whatever a shell has made of it."""

    def __init__(self) -> None:
        self.interactive = os.isatty(0)
        self._before: list[Any] | None = None

    def __enter__(self) -> Terminal:
        if self.interactive:
            with suppress(termios.error):
                self._before = termios.tcgetattr(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it may not be ours at this moment
        try:
            with suppress(OSError):
                os.tcsetpgrp(0, os.getpgrp())
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        finally:
            signal.signal(signal.SIGTTOU, ignored)
