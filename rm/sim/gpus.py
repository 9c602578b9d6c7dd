"""GPUs that several jobs share: one part at a time, never interrupted, the least service first.

Ada-SRSF Sec. IV: compute tasks are non-preemptive; among those that wait on a GPU the job with
the shortest remaining service goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heappushpop

Gpu = tuple[str, int]  # host and index
# Remaining service, job and part. The service cannot change while the part waits: it is counted at the end of
# an iteration, which no job reaches before its GPUs have computed all parts.
Turn = tuple[float, int, int]


@dataclass(slots=True, eq=False)
class Device:
    """A GPU: the job that runs on it, and those that wait, as a heap."""

    running: int | None = None
    waiting: list[Turn] = field(default_factory=list)


class GpuPool:
    """Who runs and who waits on each GPU."""

    def __init__(self) -> None:
        self._devices: dict[Gpu, Device] = {}

    def devices(self, gpus: Iterable[Gpu]) -> tuple[Device, ...]:
        """The GPUs, in that order, as the other methods take them."""
        return tuple(self._devices.setdefault(gpu, Device()) for gpu in gpus)

    def ask(self, device: Device, turn: Turn) -> bool:
        """A job wants to run a part: True when it may start now, else it waits its turn."""
        if device.running is None and not device.waiting:
            device.running = turn[1]
            return True
        heappush(device.waiting, turn)
        return False

    def go_on(self, devices: Sequence[Device], turn: Turn) -> list[Turn]:
        """A part of a job has ended on these GPUs, and it wants to run another: what runs now on each."""
        chosen = []
        for device in devices:
            first = heappushpop(device.waiting, turn)
            device.running = first[1]
            chosen.append(first)
        return chosen

    def done(self, devices: Sequence[Device]) -> None:
        """The running part has ended. What it leads to may ask for the GPUs before `choose`."""
        for device in devices:
            device.running = None

    def choose(self, devices: Sequence[Device]) -> list[Turn]:
        """Start the next part on each of these idle GPUs, for all of which somebody waits."""
        chosen = []
        for device in devices:
            first = heappop(device.waiting)
            device.running = first[1]
            chosen.append(first)
        return chosen

    def leave(self, device: Device, job: int) -> None:
        """`job` is stopped: it neither runs nor waits here any more."""
        device.waiting = [turn for turn in device.waiting if turn[1] != job]
        heapify(device.waiting)
        if device.running == job:
            device.running = None
