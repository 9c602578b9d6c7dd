"""What a step of a job used, or uses so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a quantity: the sum over the tasks, and the tasks with the most and the least, with their hosts."""

    total: int = 0
    most: int = 0
    most_host: str = ""
    most_rank: int = 0
    least: int = 0
    least_host: str = ""
    least_rank: int = 0


@dataclass(frozen=True, slots=True)
class StepUsed:
    """`tasks`: of how many tasks it is known. `user_us` and `system_us` of processors, in programs and in the
    kernel, of all that the step started; the others of its tasks: `mem_bytes` the most resident memory at
    once, `read_bytes` and `written_bytes` of disks. On one host at once all of it had at most `host_bytes`
    without file caches, `peak_bytes` with them (0: not known). Of the GPUs that it saw: the time that was
    watched, added up over them, how much of it they were busy, the most memory of one, and what they drew, in
    millijoules."""

    tasks: int = 0
    user_us: int = 0
    system_us: int = 0
    cpu_us: Spread = Spread()
    mem_bytes: Spread = Spread()
    read_bytes: Spread = Spread()
    written_bytes: Spread = Spread()
    host_bytes: int = 0
    peak_bytes: int = 0
    gpu_us: int = 0
    gpu_busy_us: int = 0
    gpu_mem_bytes: int = 0
    energy_mj: int = 0


QUANTITIES = ("cpu_us", "mem_bytes", "read_bytes", "written_bytes")


def on_host(used: StepUsed, host: str) -> StepUsed:
    """What a host told of its own tasks, with its name."""
    named = {name: replace(getattr(used, name), most_host=host, least_host=host) for name in QUANTITIES}
    return replace(used, **named)


def together(parts: Sequence[StepUsed]) -> StepUsed | None:
    """Of several hosts; None: none has told."""
    if not parts:
        return None
    cpu_us, mem_bytes, read_bytes, written_bytes = (
        _spread([getattr(part, name) for part in parts]) for name in QUANTITIES
    )
    return StepUsed(
        sum(part.tasks for part in parts),
        sum(part.user_us for part in parts),
        sum(part.system_us for part in parts),
        cpu_us,
        mem_bytes,
        read_bytes,
        written_bytes,
        max(part.host_bytes for part in parts),
        max(part.peak_bytes for part in parts),
        sum(part.gpu_us for part in parts),
        sum(part.gpu_busy_us for part in parts),
        max(part.gpu_mem_bytes for part in parts),
        sum(part.energy_mj for part in parts),
    )


def _spread(parts: Sequence[Spread]) -> Spread:
    most, least = max(parts, key=lambda one: one.most), min(parts, key=lambda one: one.least)
    return Spread(
        sum(part.total for part in parts),
        most.most,
        most.most_host,
        most.most_rank,
        least.least,
        least.least_host,
        least.least_rank,
    )
