"""The filters every placement policy starts with: may this host take a task of this shape, and how many?

`capacity` is the fast path (a number), `refusal` the explained one (a Reason with its numbers);
for any host, capacity is 0 exactly when there is a refusal.
"""

from __future__ import annotations

from functools import lru_cache

from rm.core.jobs.state import usable_gpus
from rm.core.model.demand import Shape
from rm.core.model.host import Host
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.features import matches
from rm.units import GIB, fold_hosts

UNLIMITED = 1 << 40  # tasks; what a host takes of tasks that ask for nothing


def gpus_for(host: Host, free: Free, shape: Shape) -> tuple[int, ...]:
    """The GPU indices that tasks of this shape may use now: idle or shareable, and of its type."""
    return of_type(host, usable_gpus(free, shape.gpu_mem_bytes), shape.gpu_type)


def of_type(host: Host, indices: tuple[int, ...], gpu_type: str) -> tuple[int, ...]:
    """Those of the GPU indices whose model is of the type: "a100" matches "NVIDIA A100-SXM4"."""
    if not gpu_type:
        return indices
    wanted = gpu_type.lower()
    fitting = {g.index for g in host.gpus if wanted in g.model.lower()}
    return tuple(i for i in indices if i in fitting)


def admits(host: Host, shape: Shape) -> bool:
    """The filters that do not depend on what is free: state, partition, host lists, zone, features,
    containers."""
    return (
        host.schedulable
        and (not shape.partitions or any(p in host.partitions for p in shape.partitions))
        and (not shape.hosts_only or host.name in shape.hosts_only)
        and host.name not in shape.hosts_excluded
        and host.name not in shape.foreign
        and (not shape.closed or host.name not in _closed(shape.closed))
        and (not shape.zone or host.zone == shape.zone)
        and _has_features(host, shape)
        and (not shape.container or bool(host.containers))
    )


@lru_cache(maxsize=64)
def _closed(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(pairs)


def _has_features(host: Host, shape: Shape) -> bool:
    return not shape.features or any(matches(one, host.all_features) for one in shape.features)


def room(host: Host, free: Free | None, shape: Shape) -> int:
    """Tasks of this shape that fit into what is free on an admitted host."""
    if free is None or (shape.exclusive and not _untouched(host, free)):
        return 0
    tasks = shape.tasks_per_host or UNLIMITED
    if shape.cpus_per_task:
        tasks = min(tasks, free.cpus // shape.cpus_per_task)
    if shape.mem_bytes_per_task:
        tasks = min(tasks, (free.mem_bytes - shape.mem_bytes_per_host) // shape.mem_bytes_per_task)
    if shape.gpus_per_task:
        tasks = min(tasks, len(gpus_for(host, free, shape)) // shape.gpus_per_task)
    if free.mem_bytes < (host.mem_bytes if shape.mem_all else shape.mem_bytes_per_host):
        return 0
    if shape.gpus_per_host and len(gpus_for(host, free, shape)) < shape.gpus_per_host:
        return 0
    return max(tasks, 0)


def capacity(host: Host, free: Free | None, shape: Shape) -> int:
    """Tasks of this shape that the host can take now; 0 when any filter refuses it."""
    return room(host, free, shape) if admits(host, shape) else 0


def refusal(host: Host, free: Free | None, shape: Shape) -> Reason | None:
    """Why the host cannot take a single task of this shape, with numbers; None when it can."""
    if not host.schedulable:
        if host.drained_by:
            why = f"is drained: {host.drained_by}"
        else:
            why = f"is {host.state}" + (f": {host.reason}" if host.reason else "")
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, why, (("state", str(host.state)),))
    if shape.partitions and not any(p in host.partitions for p in shape.partitions):
        partitions, asked = ", ".join(host.partitions) or "none", " or ".join(shape.partitions)
        return Reason(
            ReasonCode.HOST_NOT_AVAILABLE,
            f"is not in partition {asked} (its partitions: {partitions})",
            (("partition", ",".join(shape.partitions)),),
        )
    if shape.hosts_only and host.name not in shape.hosts_only:
        return Reason(
            ReasonCode.HOST_NOT_AVAILABLE,
            f"is not among the {len(shape.hosts_only)} hosts that the job names "
            f"({fold_hosts(list(shape.hosts_only))})",
            (("hosts_named", len(shape.hosts_only)),),
        )
    if host.name in shape.hosts_excluded:
        return Reason(
            ReasonCode.HOST_NOT_AVAILABLE,
            "is excluded by the job",
            (("hosts_excluded", len(shape.hosts_excluded)),),
        )
    if host.name in shape.foreign:
        return Reason(
            ReasonCode.RESOURCES,
            "has jobs of another user, and one of them or this job shares hosts with its own user's alone",
            (("hosts_of_others", len(shape.foreign)), ("free_of_others", 0)),
        )
    if shape.closed and (reserved := _closed(shape.closed).get(host.name)) is not None:
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, reserved, (("hosts_reserved", len(shape.closed)),))
    if shape.zone and host.zone != shape.zone:
        return Reason(
            ReasonCode.ZONE,
            f"is in zone {host.zone}, the job asks for zone {shape.zone}",
            (("zone", host.zone), ("zone_asked", shape.zone)),
        )
    if not _has_features(host, shape):
        asked, has = " or ".join(filter(None, shape.features)), ", ".join(sorted(host.all_features)) or "none"
        return Reason(
            ReasonCode.HOST_NOT_AVAILABLE,
            f"has not the features {asked} (its features: {has})",
            (("features", asked),),
        )
    if shape.container and not host.containers:
        return Reason(
            ReasonCode.HOST_NOT_AVAILABLE,
            "has no runtime for the job's container (podman, apptainer or enroot)",
            (("containers", "none"),),
        )
    if free is None:
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, "has not yet reported its resources", (("known", 0),))
    return _lacking(host, free, shape)


def _lacking(host: Host, free: Free, shape: Shape) -> Reason | None:
    if shape.exclusive and not _untouched(host, free):
        return Reason(
            ReasonCode.RESOURCES,
            f"the job asks for whole hosts, {free.cpus} of {host.cpus} CPUs and "
            f"{len(free.gpus)} of {len(host.gpus)} GPUs are free{_beside_strays(free)}",
            (("cpus_free", free.cpus), ("cpus", host.cpus), ("gpus_free", len(free.gpus))),
        )
    told: list[str] = []
    numbers: list[tuple[str, float | int | str]] = []
    if need := shape.least_gpus:
        kind = f"{shape.gpu_type} " if shape.gpu_type else ""
        have = len(gpus_for(host, free, shape))
        total = len(of_type(host, tuple(g.index for g in host.gpus), shape.gpu_type))
        if have < need:
            each = f" with {_gib(shape.gpu_mem_bytes)} of memory" if shape.gpu_mem_bytes else ""
            told.append(f"{need} {kind}GPUs{each}, {have} free of {total}")
            numbers += [("gpus_needed", need), ("gpus_free", have), ("gpus", total)]
    if free.cpus < shape.cpus_per_task:
        told.append(f"{shape.cpus_per_task} CPUs, {free.cpus} free of {host.cpus}")
        numbers += [("cpus_needed", shape.cpus_per_task), ("cpus_free", free.cpus), ("cpus", host.cpus)]
    mem_bytes = host.mem_bytes if shape.mem_all else shape.least_mem_bytes
    if free.mem_bytes < mem_bytes:
        told.append(f"{_gib(mem_bytes)} of memory, {_gib(free.mem_bytes)} free of {_gib(host.mem_bytes)}")
        numbers += [
            ("mem_bytes_needed", mem_bytes),
            ("mem_bytes_free", free.mem_bytes),
            ("mem_bytes", host.mem_bytes),
        ]
    if not told:
        return None
    per_host = shape.gpus_per_host or shape.mem_bytes_per_host or shape.mem_all
    why = f"{'each host of the job' if per_host else 'a task'} needs {', and '.join(told)}"
    return Reason(ReasonCode.RESOURCES, why + _beside_strays(free), tuple(numbers))


def _beside_strays(free: Free) -> str:
    """Whom the host still ends, if it does."""
    if not free.strays:
        return ""
    jobs = ", ".join(map(str, free.strays[:8])) + (", …" if len(free.strays) > 8 else "")
    return f"; what earlier attempts that were given up still use there is held until they end (job {jobs})"


def _untouched(host: Host, free: Free) -> bool:
    """Does no job hold anything of the host? (Every task holds at least one CPU.)"""
    return free.cpus >= host.cpus and free.mem_bytes >= host.mem_bytes and len(free.gpus) == len(host.gpus)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
