"""What a command finds that `rmx alloc` runs here: the names of its allocation, and `srun` in its PATH."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rm.cli.session import Session

PROGRAMS = ("srun",)  # of which it finds ours
ALLOCATION = "RM_ALLOCATION"  # the job of which this machine's commands may start steps
# what the environment of a job's script says of its host and of itself
_OF_ITS_HOST = frozenset({
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS_ON_NODE", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_PRIO_PROCESS",
})  # fmt: skip


def environment(
    own: Mapping[str, str], found: Mapping[str, str], job: int, session: Session, programs: str
) -> dict[str, str]:
    """`own` with the allocation's names of `found`, what the job's script finds; the folder `programs` is
    first in PATH, and the daemon the one of `session`."""
    slurm = {n: v for n, v in found.items() if n.startswith("SLURM_") and n not in _OF_ITS_HOST}
    made = {**own, **slurm, "RM_JOB_ID": str(job), ALLOCATION: str(job)}
    if session.socket_flag:
        made["RM_DAEMON__SOCKET"] = os.path.abspath(session.socket_flag)
    if session.config_flag:
        made["RM_CONFIG"] = os.path.abspath(session.config_flag)
    made["PATH"] = f"{programs}:{own.get('PATH', os.defpath)}"
    return made


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
