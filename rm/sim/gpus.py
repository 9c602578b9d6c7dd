"""GPUs that several jobs share: one part at a time, never interrupted, the least key first.

Ada-SRSF Sec. IV: compute tasks are non-preemptive; among those that wait on a GPU the job with
the shortest remaining service goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Gpu = tuple[str, int]  # host and index


@dataclass(slots=True, eq=False)
class Device:
    """A GPU: the job that runs on it, and those that wait, each with the number of its part."""

    running: int | None = None
    waiting: list[tuple[int, int]] = field(default_factory=list)


class GpuPool:
    """Who runs and who waits on each GPU. `key` ranks the waiting jobs at the moment of choice."""

    def __init__(self, key: Callable[[int], tuple[float, int]]) -> None:
        self._key = key
        self._devices: dict[Gpu, Device] = {}

    def devices(self, gpus: Iterable[Gpu]) -> tuple[Device, ...]:
        """The GPUs, in that order, as the other methods take them."""
        return tuple(self._devices.setdefault(gpu, Device()) for gpu in gpus)

    def ask(self, device: Device, job: int, part: int) -> bool:
        """`job` wants to run a part: True when it may start now, else it waits its turn."""
        if device.running is None and not device.waiting:
            device.running = job
            return True
        device.waiting.append((job, part))
        return False

    def go_on(self, device: Device, job: int, part: int) -> tuple[int, int]:
        """A part of `job` has ended, and it wants to run another: the job and part that run now."""
        waiting = device.waiting
        if not waiting:
            return job, part
        waiting.append((job, part))
        return self._first(device)

    def done(self, device: Device) -> None:
        """The running part has ended. What it leads to may ask for the GPU before `choose`."""
        device.running = None

    def choose(self, device: Device) -> tuple[int, int] | None:
        """Start the next part on an idle GPU: its job and number, None when nobody waits."""
        if device.running is not None or not device.waiting:
            return None
        return self._first(device)

    def leave(self, device: Device, job: int) -> None:
        """`job` is stopped: it neither runs nor waits here any more."""
        device.waiting = [w for w in device.waiting if w[0] != job]
        if device.running == job:
            device.running = None

    def _first(self, device: Device) -> tuple[int, int]:
        waiting = device.waiting
        at = 0
        if len(waiting) > 1:
            keys = [self._key(job) for job, _ in waiting]
            at = keys.index(min(keys))
        job, part = waiting.pop(at)
        device.running = job
        return job, part
