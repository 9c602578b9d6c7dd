"""What jobs take of a host, and what they leave of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rm.core.jobs.lending import cpus_on, lent
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec, Placement, TaskPlacement
from rm.core.model.snapshot import Free


def needs(spec: JobSpec, tasks: int) -> tuple[int, int]:
    """(cpus, memory bytes) that `tasks` tasks of the job take on one host; see `mem_all` for its memory."""
    return spec.cpus_per_task * tasks, spec.mem_bytes_per_task * tasks + spec.mem_bytes_per_host


def take(free: Free, spec: JobSpec, tasks: tuple[TaskPlacement, ...]) -> Free:
    """What is left of a host after these tasks of one job; exclusive jobs take all of it."""
    if spec.exclusive:
        return Free(0, 0, (), (), free.strays)
    cpus, mem = needs(spec, len(tasks))
    gpus = {g for task in tasks for g in task.gpus}
    shared = spec.gpu_mem_bytes
    left = free.gpu_mem
    if gpus and left:
        if shared:
            left = tuple([(g, size - shared if g in gpus else size) for g, size in left])
        else:
            left = tuple([pair for pair in left if pair[0] not in gpus])
    idle = tuple([g for g in free.gpus if g not in gpus]) if gpus else free.gpus
    mem_left = 0 if spec.mem_all else free.mem_bytes - mem
    return Free(free.cpus - cpus, mem_left, idle, left, free.strays)


def may_take(host: Host, free: Free, spec: JobSpec) -> bool:
    """Is there room for one task of the job, whatever else may speak against the host?"""
    if spec.exclusive:
        return free == all_of(host)
    cpus, mem = needs(spec, 1)
    gpus = usable_gpus(free, spec.gpu_mem_bytes)
    mem = host.mem_bytes if spec.mem_all else mem
    wanted = spec.gpus_per_task or spec.gpus_per_host
    return free.cpus >= cpus and free.mem_bytes >= mem and len(gpus) >= wanted


def usable_gpus(free: Free, gpu_mem_bytes: int) -> tuple[int, ...]:
    """The GPUs that a task may use: idle ones, or with `gpu_mem_bytes` those with so much memory left."""
    if not gpu_mem_bytes:
        return free.gpus
    return tuple(g for g, size in free.gpu_mem if size >= gpu_mem_bytes)


def all_of(host: Host) -> Free:
    gpus = host.gpus
    return Free(
        host.cpus,
        host.mem_bytes,
        tuple(g.index for g in gpus),
        tuple((g.index, g.mem_bytes) for g in gpus if g.mem_bytes),
    )


def one_of_each_slice(jobs: Iterable[Job]) -> Iterator[Job]:
    """Those whose needs count: of a slice one element runs at a time, and all need the same."""
    seen: set[int] = set()
    for job in jobs:
        if job.slice_of not in seen:
            yield job
        if job.slice_of:
            seen.add(job.slice_of)


def left_on(host: Host, there: Iterable[tuple[Job, Placement]]) -> Free:
    """What these jobs leave of a host; those that stand still for others lend them their processors."""
    free, slices, standing = all_of(host), set[int](), False
    counted = list[tuple[Job, Placement]]()
    for job, placement in there:
        if job.slice_of in slices:  # of a slice one runs at a time
            continue
        if job.slice_of:
            slices.add(job.slice_of)
        counted.append((job, placement))
        standing = standing or bool(job.yields_to)
        free = take(free, job.spec, placement.on(host.name))
    if standing:
        cpus = [(job, cpus_on(job, placement, host)) for job, placement in counted]
        free.cpus = host.cpus - sum(number for _, number in cpus) + lent(cpus)
    return free
