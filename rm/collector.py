"""Python's collector of cycles, kept away from what is made by the ten thousand and holds none.

A full collection goes over all that is alive, and nothing else runs meanwhile: 100 ms with 20,000 jobs.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

OLDEST = 2  # of the collector's generations
YOUNG = 10_000  # objects until a first look; most that a turn of the leader makes have gone by then


class _Off:
    """How many want nothing to be collected now, and whether anything was before the first of them."""

    lock = threading.Lock()
    wanted = 0
    was_on = True


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected meanwhile: each look would go over all that was made so far, in vain. Several
    threads may want it at once."""
    with _Off.lock:
        if not _Off.wanted:
            _Off.was_on = gc.isenabled()
            gc.disable()
        _Off.wanted += 1
    try:
        yield
    finally:
        with _Off.lock:
            _Off.wanted -= 1
            if not _Off.wanted and _Off.was_on:
                gc.enable()


@contextmanager
def made_at_once() -> Iterator[None]:
    """As `uncollected`, for much that holds no cycle and lives for a while: it counts as old at once. Else
    the first look after this would go over all of it. What is young before is looked at, as it would be
    then."""
    with uncollected():
        gc.collect(OLDEST - 1)
        yield
        if not gc.get_freeze_count():  # what somebody keeps frozen would be thawed with it
            gc.freeze()
            gc.unfreeze()


@contextmanager
def made_to_stay() -> Iterator[None]:
    """What is made meanwhile lives on: nothing is collected, and later collections pass over all of it."""
    with uncollected():
        yield
        gc.freeze()


def pass_over_survivors() -> None:
    """From now on a full collection goes over what was made since the last one, and not again over what it
    left alive. Cycles among that are found once `look_at_all` was called. Looks at the youngest are rarer."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def look_at_all() -> None:
    """The next full collection goes over everything."""
    gc.unfreeze()


def _freeze(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()
