"""Why a host cannot take a task of some shape: a Reason with its numbers.

For any host there is one exactly when its capacity (`rm.core.jobs.room`) is 0.
"""

from __future__ import annotations

from rm.core.jobs.room import closed_hosts, gpus_for, has_features, of_type, untouched
from rm.core.model.asked.demand import Shape
from rm.core.model.host import Host
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.units import GIB, fold_hosts, format_count


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
            f"is not among the {format_count(len(shape.hosts_only), 'host')} that the job names "
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
    if shape.closed and (reserved := closed_hosts(shape.closed).get(host.name)) is not None:
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, reserved, (("hosts_reserved", len(shape.closed)),))
    if shape.zone and host.zone != shape.zone:
        return Reason(
            ReasonCode.ZONE,
            f"is in zone {host.zone}, the job asks for zone {shape.zone}",
            (("zone", host.zone), ("zone_asked", shape.zone)),
        )
    if not has_features(host, shape):
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
    if shape.exclusive and not untouched(host, free):
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
            told.append(f"{format_count(need, kind + 'GPU')}{each}, {have} free of {total}")
            numbers += [("gpus_needed", need), ("gpus_free", have), ("gpus", total)]
    if free.cpus < shape.cpus_per_task:
        told.append(f"{format_count(shape.cpus_per_task, 'CPU')}, {free.cpus} free of {host.cpus}")
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


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
