"""Attempts that the state has given up and that hosts still run: they hold what they use until they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rm.core.model.host import Gpu
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


def fits_beside(free: Free, gpus: Iterable[Gpu], held: Iterable[Held]) -> bool:
    """Do jobs leave so much of a host free that strays use nothing of theirs?"""
    indices = {word: gpu.index for gpu in gpus for word in (str(gpu.index), gpu.uuid) if word}
    cpus, mem_bytes, idle = free.cpus, free.mem_bytes, set(free.gpus)
    for one in held:
        cpus, mem_bytes = cpus - one.cpus, mem_bytes - one.mem_bytes
        if one.gpus is None or not {indices.get(word) for word in one.gpus} <= idle:
            return False
    return cpus >= 0 and mem_bytes >= 0


def without_strays(free: Free, gpus: Iterable[Gpu], strays: Strays) -> Free:
    """What is left of a host beside its strays. `gpus` are the host's own."""
    taken: set[int] | None = set()
    cpus, mem_bytes = free.cpus, free.mem_bytes
    indices = {word: gpu.index for gpu in gpus for word in (str(gpu.index), gpu.uuid) if word}
    for held in strays.values():
        cpus, mem_bytes = cpus - held.cpus, mem_bytes - held.mem_bytes
        if held.gpus is None or not indices.keys() >= set(held.gpus):
            taken = None
        elif taken is not None:
            taken.update(indices[word] for word in held.gpus)
        if held.gpus is None:
            cpus = mem_bytes = 0
    idle = () if taken is None else tuple(g for g in free.gpus if g not in taken)
    shared = () if taken is None else tuple(pair for pair in free.gpu_mem if pair[0] not in taken)
    jobs = tuple(sorted({job for job, _ in strays}))
    return Free(max(0, cpus), max(0, mem_bytes), idle, shared, jobs)
