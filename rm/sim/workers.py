"""Processes that work out parts of a simulation, and end with the process that wants them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor


def workers(count: int) -> ProcessPoolExecutor:
    """So many of them; each imports what it needs by itself."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, initializer=_end_with_the_parent)


def _end_with_the_parent() -> None:
    """Also when it was killed: the workers hold each other's queue open, and would wait in it for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
