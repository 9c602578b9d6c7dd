"""What the GPUs of a step did on this host, by the looks that the agent takes at those of the attempt.

The agent writes what it saw into the attempt's folder (rm_gpu_used.py). A look counts for the time since the
last one, or since the step's begin. What the driver counts belongs to no process: steps that share a GPU each
have all that it did meanwhile.
"""

import os
import time

import rm_gpu_used
from rm_news import now_us

EACH_S = 1.0  # between two looks whether there is news


class StepGpus:
    """`names`: of the GPUs that the step sees, as the job was given them."""

    def __init__(self, folder, names):
        self._path, self._names = folder.at(rm_gpu_used.SEEN), set(names)
        self._folder = folder
        self._numbers = None  # by rm_gpu_used.KEYS
        self._since_us, self._last = now_us(), []  # when they were looked at last, and how they were
        self._look_at, self._mark = 0.0, None

    def look(self):
        """Take what has been seen since the last time."""
        if not self._names or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + EACH_S
        try:
            found = os.stat(self._path)
        except OSError:
            return
        mark = found.st_mtime_ns, found.st_ino
        if mark == self._mark:
            return
        self._mark = mark
        at_us, gpus = rm_gpu_used.seen(self._folder)
        its = [gpu for gpu in gpus if gpu.names & self._names]
        us = min(at_us - self._since_us, rm_gpu_used.STALE_US)
        if its and us > 0:
            self._numbers = rm_gpu_used.added(self._numbers, us, its)
            self._since_us, self._last = at_us, its

    def told(self, ended_us=None):
        """What they did, by rm_gpu_used.KEYS; {} where nobody looked. `ended_us`: from the last look to then
        they went on as they were."""
        numbers = self._numbers
        if numbers and ended_us is not None:
            us = max(0, min(ended_us - self._since_us, int(rm_gpu_used.LOOK_S * 1e6)))
            numbers = rm_gpu_used.added(numbers, us, self._last)
        return dict(zip(rm_gpu_used.KEYS, numbers)) if numbers else {}  # noqa: B905

    def end(self):
        """At the step's end."""
        self._look_at = 0.0
        self.look()
        return self.told(now_us())
