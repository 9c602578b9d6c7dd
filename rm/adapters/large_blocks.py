"""The C library's large blocks of memory, given back to the machine as soon as they are free.

glibc learns from each large block that is freed, and takes the next ones from heaps that it keeps: after
some answers with all of 10,000 jobs a daemon would hold tens of megabytes for good, in each thread that made
one (mallopt(3), "Note: the dynamic mmap threshold").
"""

from __future__ import annotations

import ctypes

M_MMAP_THRESHOLD = -3  # of malloc.h
LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """From now on, in all threads; another C library than glibc goes on as it does."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
