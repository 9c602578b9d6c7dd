"""Moves the wall clock of the Python program that imports it, by the nanoseconds in the file $RM_BENCH_CLOCK.

Read by the daemon as `sitecustomize`: a machine has one clock, which is not for a benchmark to move.
"""

import mmap
import os
import struct
import time

with open(os.environ["RM_BENCH_CLOCK"], "rb") as _file:
    _page = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns


def _moved_ns() -> int:
    moved: int = struct.unpack("q", _page[:8])[0]
    return moved


time.time_ns = lambda: _time_ns() + _moved_ns()
time.time = lambda: _time() + _moved_ns() / 1e9
