"""GPUs that several jobs share: one part at a time, never interrupted, the least key first.

Ada-SRSF Sec. IV: compute tasks are non-preemptive; among those that wait on a GPU the job with
the shortest remaining service goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Gpu = tuple[str, int]  # host and index


@dataclass(slots=True)
class _Device:
    running: int | None = None
    waiting: list[tuple[int, float]] = field(default_factory=list)  # (job, duration_us)


class GpuPool:
    """Who runs and who waits on each GPU. `key` ranks the waiting jobs at the moment of choice."""

    def __init__(self, key: Callable[[int], tuple[float, int]]) -> None:
        self._key = key
        self._devices: dict[Gpu, _Device] = {}

    def ask(self, gpu: Gpu, job: int, duration_us: float) -> bool:
        """`job` wants to run a part: True when it may start now, else it waits its turn."""
        device = self._devices.get(gpu)
        if device is None:
            device = self._devices[gpu] = _Device()
        if device.running is None and not device.waiting:
            device.running = job
            return True
        device.waiting.append((job, duration_us))
        return False

    def done(self, gpu: Gpu) -> None:
        """The running part has ended. What it leads to may ask for the GPU before `choose`."""
        self._devices[gpu].running = None

    def choose(self, gpu: Gpu) -> tuple[int, float] | None:
        """Start the next part on an idle GPU: its job and duration, None when nobody waits."""
        device = self._devices[gpu]
        if device.running is not None or not device.waiting:
            return None
        waiting = device.waiting
        at = 0
        if len(waiting) > 1:
            keys = [self._key(job) for job, _ in waiting]
            at = keys.index(min(keys))
        job, duration_us = waiting.pop(at)
        device.running = job
        return job, duration_us

    def leave(self, gpu: Gpu, job: int) -> None:
        """`job` is stopped: it neither runs nor waits here any more."""
        device = self._devices.get(gpu)
        if device is None:
            return
        device.waiting = [w for w in device.waiting if w[0] != job]
        if device.running == job:
            device.running = None
