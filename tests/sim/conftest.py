"""What only computes for minutes leaves the processors to tests that wait for what hosts do in time."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

GENTLE = 10


@pytest.fixture(scope="module")
def gently() -> Iterator[None]:
    """At a lower priority, where it can be given back; the collector passes over what tests hold."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, max(before, GENTLE))
    gc.freeze()
    yield
    gc.unfreeze()
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, before)
