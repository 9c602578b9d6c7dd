"""May a host take a task of some shape, and how many? Placement policies begin with that.

`rm.policies.placement.steps.filters` says why where it may not, with numbers.
"""

from __future__ import annotations

from rm.core.jobs.free import usable_gpus
from rm.core.model.asked.demand import Shape
from rm.core.model.asked.gpu_type import is_of_type
from rm.core.model.host import Host
from rm.core.model.snapshot import Free
from rm.features import matches

UNLIMITED = 1 << 40  # tasks; what a host takes of tasks that ask for nothing
CLOSED_KEPT = 64
Closed = tuple[tuple[str, str], ...]
_closed: dict[int, tuple[Closed, dict[str, str]]] = {}  # by identity; the tuple is kept, and so its identity


def gpus_for(host: Host, free: Free, shape: Shape) -> tuple[int, ...]:
    """The GPU indices that tasks of this shape may use now: idle or shareable, and of its type."""
    return of_type(host, usable_gpus(free, shape.gpu_mem_bytes), shape.gpu_type)


def of_type(host: Host, indices: tuple[int, ...], gpu_type: str) -> tuple[int, ...]:
    """Those of the GPU indices whose model is of the type."""
    if not gpu_type:
        return indices
    fitting = {g.index for g in host.gpus if is_of_type(g.model, gpu_type)}
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
        and (not shape.closed or host.name not in closed_hosts(shape.closed))
        and (not shape.zone or host.zone == shape.zone)
        and has_features(host, shape)
        and (not shape.container or bool(host.containers))
    )


def closed_hosts(pairs: Closed) -> dict[str, str]:
    """Why each of the hosts is kept from the job. Found by identity: one tuple serves for every host that a
    policy is asked about, and hashing it costs as much as looking through it."""
    known = _closed.get(id(pairs))
    if known is None or known[0] is not pairs:
        if len(_closed) >= CLOSED_KEPT:
            _closed.clear()
        known = _closed[id(pairs)] = pairs, dict(pairs)
    return known[1]


def has_features(host: Host, shape: Shape) -> bool:
    return not shape.features or any(matches(one, host.all_features) for one in shape.features)


def room(host: Host, free: Free | None, shape: Shape) -> int:
    """Tasks of this shape that fit into what is free on an admitted host."""
    if free is None or (shape.exclusive and not untouched(host, free)):
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


def untouched(host: Host, free: Free) -> bool:
    """Does no job hold anything of the host? (Every task holds at least one CPU.)"""
    return free.cpus >= host.cpus and free.mem_bytes >= host.mem_bytes and len(free.gpus) == len(host.gpus)
