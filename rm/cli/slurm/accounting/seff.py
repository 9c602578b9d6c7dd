"""`seff`: what part of what a job held it used, in the words of the program in Slurm's contributions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rm.arrays import parse_id
from rm.cli.output import note
from rm.cli.shown import elapsed_us, job_ref
from rm.cli.slurm.accounting.sacct_fields import cpus, nodes
from rm.cli.slurm.accounting.sacct_used import hosts_used
from rm.cli.slurm.jobs import clock, mem_bytes_of
from rm.cli.slurm.users import group_of
from rm.cli.slurm.words import Options, read
from rm.errors import UsageError
from rm.units import MIB

if TYPE_CHECKING:
    from rm.api.jobs import Job

OPTIONS = Options(taken=("help/h", "version/v"), refused=("debug/d",))
UNITS = ("MB", "GB", "TB", "PB", "EB")


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    if "help" in given.options:
        print("Usage: seff [Options] <JobID>\n       Options:\n       -h    Help\n       -v    Version")
        return 0
    if "version" in given.options:
        from rm import __version__

        print(f"seff of rm {__version__}")
        return 0
    if len(given.operands) != 1:
        raise UsageError("Name one job.", "seff 42, or seff 42_7")
    from rm.client import Client

    with Client() as client:
        job = client.job(parse_id(given.operands[0]))
    for line in lines(job):
        print(line)
    return 0


def lines(job: Job) -> Iterator[str]:
    """What `seff` says of the job. Memory is of all hosts, each with its own most."""
    yield f"Job ID: {job.id}"
    if job.array_task is not None:
        yield f"Array Job ID: {job_ref(job)}"
    yield "Cluster: rm"
    yield f"User/Group: {job.spec.user}/{group_of(job.spec.user) or ''}"
    if not job.hosts:
        yield f"State: {job.state}"
        yield f"Efficiency not available for jobs in the {job.state} state."
        return
    code = (job.exit or "0:0").partition(":")[0]
    yield f"State: {job.state}" if job.ended_us is None else f"State: {job.state} (exit code {code})"
    if cpus(job) == 1 == nodes(job):
        yield "Cores: 1"
    else:
        yield f"Nodes: {nodes(job)}"
        yield f"Cores per node: {cpus(job) // nodes(job)}"
    yield from _used(job)


def _used(job: Job) -> Iterator[str]:
    used, wall_us = hosts_used(job), elapsed_us(job)
    if job.ended_us is None:
        note(
            f"What it used its hosts tell at its end; `sstat -a -j {job_ref(job)}` says what it uses so far."
        )
    if not used:
        yield f"Job Wall-clock time: {clock(wall_us)}"
        return
    cpu_us, held_us = sum(one.user_us + one.system_us for one in used), wall_us * cpus(job)
    yield f"CPU Utilized: {clock(cpu_us)}"
    yield f"CPU Efficiency: {_share(cpu_us, held_us)} of {clock(held_us)} core-walltime"
    yield f"Job Wall-clock time: {clock(wall_us)}"
    spec, mem_bytes = job.spec, sum(one.mem_bytes for one in used)
    yield f"Memory Utilized: {_size(mem_bytes)}" + (" (estimated maximum)" if len(used) > 1 else "")
    if held_bytes := mem_bytes_of(spec, nodes(job)):
        each = f"{_size(spec.mem_bytes_per_host)}/node" if spec.mem_bytes_per_host else ""
        each = each or f"{_size(spec.mem_bytes_per_task // spec.cpus_per_task)}/core"
        yield f"Memory Efficiency: {_share(mem_bytes, held_bytes)} of {_size(held_bytes)} ({each})"
    if watched_us := sum(one.gpu_us for one in used):
        busy_us = sum(one.gpu_busy_us for one in used)
        yield f"GPU Efficiency: {_share(busy_us, watched_us)} of {clock(watched_us)} GPU-walltime"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def _size(size_bytes: int) -> str:
    value, unit = size_bytes / MIB, 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f} {UNITS[unit]}"
