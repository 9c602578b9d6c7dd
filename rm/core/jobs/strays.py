"""Attempts that the state has given up and that hosts still run: they hold what they use until they end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rm.core.model.host import Gpu, Host
from rm.core.model.snapshot import Free


@dataclass(frozen=True, slots=True)
class Held:
    """What the ranks of one attempt that still run use on their host. `cpus` and `mem_bytes` of all of them
    together; `gpus` by UUID or index, as the host was asked for them; None: nobody knows, so everything."""

    ranks: tuple[int, ...]
    cpus: int = 0
    mem_bytes: int = 0
    gpus: tuple[str, ...] | None = None


Strays = Mapping[tuple[int, int], Held]  # by (job, attempt)


@dataclass(frozen=True, slots=True)
class Lacking:
    """What strays use that is not free; `gpus` by index."""

    cpus: int
    mem_bytes: int
    gpus: frozenset[int]

    def within(self, other: Lacking) -> bool:
        return self.cpus <= other.cpus and self.mem_bytes <= other.mem_bytes and self.gpus <= other.gpus


def lacking(free: Free, host: Host, strays: Collection[Held]) -> Lacking:
    """What the strays of a host use of that which is not `free` there."""
    cpus, mem_bytes, gpus = -free.cpus, -free.mem_bytes, _taken(strays, host.gpus)
    for held in strays:
        cpus += host.cpus if held.gpus is None else held.cpus
        mem_bytes += host.mem_bytes if held.gpus is None else held.mem_bytes
    return Lacking(max(0, cpus), max(0, mem_bytes), frozenset(gpus.difference(free.gpus)))


def without_strays(free: Free, gpus: Iterable[Gpu], strays: Strays) -> Free:
    """What is left of a host beside its strays. `gpus` are the host's own."""
    jobs = tuple(sorted({job for job, _ in strays}))
    if any(held.gpus is None for held in strays.values()):
        return Free(0, 0, (), (), jobs)
    cpus = free.cpus - sum(held.cpus for held in strays.values())
    mem_bytes = free.mem_bytes - sum(held.mem_bytes for held in strays.values())
    taken = _taken(strays.values(), gpus)
    idle = tuple(g for g in free.gpus if g not in taken)
    shared = tuple(pair for pair in free.gpu_mem if pair[0] not in taken)
    return Free(max(0, cpus), max(0, mem_bytes), idle, shared, jobs)


def _taken(strays: Collection[Held], gpus: Iterable[Gpu]) -> set[int]:
    """The GPUs that strays use, by index; all of their host where that is not known. A task may be given a
    GPU by its index or its UUID."""
    indices = {word: gpu.index for gpu in gpus for word in (str(gpu.index), gpu.uuid) if word}
    names: set[str] = set()
    for held in strays:
        if held.gpus is None:
            return set(indices.values())
        names.update(held.gpus)
    return {indices[name] for name in names} if names <= indices.keys() else set(indices.values())
