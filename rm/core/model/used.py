"""What an attempt of a job used on its hosts, as they measured it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALL_TASKS = -1


LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class NetworkUsed:
    """Bytes of IP packets that passed an interface of the host, with the headers of IP."""

    interface: str
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Used:
    """`user_us` and `system_us` of processors, in the program and in the kernel. `mem_bytes`: the most memory
    at once without file caches; `peak_bytes` with them. `read_bytes` and `written_bytes` of disks. Of GPUs:
    `gpu_us` is the time that was watched, added up over them, `gpu_busy_us` how much of it they were busy,
    `gpu_mem_bytes` the most memory of one of them, `energy_mj` what they drew, in millijoules. `network`: of
    all tasks on a host together, by interface."""

    user_us: int = 0
    system_us: int = 0
    mem_bytes: int = 0
    peak_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    gpu_us: int = 0
    gpu_busy_us: int = 0
    gpu_mem_bytes: int = 0
    energy_mj: int = 0
    network: tuple[NetworkUsed, ...] = ()

    @property
    def passed(self) -> tuple[int, int]:
        """Bytes received and sent, except those that did not leave the host."""
        out = [one for one in self.network if one.interface != LOOPBACK]
        return sum(one.received_bytes for one in out), sum(one.sent_bytes for one in out)

    @property
    def cpu_us(self) -> int:
        return self.user_us + self.system_us


@dataclass(frozen=True, slots=True)
class HostUsed:
    """What was used on a host of the job: by one task alone, or by the attempt with all of its tasks there
    (`rank` ALL_TASKS). A task that is alone on its host has no line of its own."""

    host: str
    rank: int
    used: Used


def together(lines: Iterable[HostUsed]) -> Used | None:
    """All hosts together; of memory the most on one host. None: no host told it."""
    found = [line.used for line in lines if line.rank == ALL_TASKS]
    if not found:
        return None
    return Used(
        sum(one.user_us for one in found),
        sum(one.system_us for one in found),
        max(one.mem_bytes for one in found),
        max(one.peak_bytes for one in found),
        sum(one.read_bytes for one in found),
        sum(one.written_bytes for one in found),
        sum(one.gpu_us for one in found),
        sum(one.gpu_busy_us for one in found),
        max(one.gpu_mem_bytes for one in found),
        sum(one.energy_mj for one in found),
    )


def with_told(
    lines: Sequence[HostUsed], host: str, rank: int, own: Used | None, whole: Used | None
) -> tuple[HostUsed, ...]:
    """With what a host says at the end of a task: of this one, and of all there with its last."""
    new = [HostUsed(host, rank, own)] if own is not None else []
    new += [HostUsed(host, ALL_TASKS, whole)] if whole is not None else []
    return (*lines, *new)
