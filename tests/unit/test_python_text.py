"""Python text is parsed right whatever other threads do."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rm.python_text import literal, parsed

DEEP = "[[[[{'a': [(1, 2), [3, [4, [5]]]]}]]]]"


@pytest.fixture
def collecting() -> Iterator[None]:
    """Cyclic garbage is looked for often, and another thread may run meanwhile."""

    def other_threads(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(other_threads)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(other_threads)


@pytest.mark.usefixtures("collecting")
def test_threads_parse_beside_each_other() -> None:
    text = "\n".join(f"x{number} = {DEEP}" for number in range(50))
    with ThreadPoolExecutor(4) as threads:
        trees = [threads.submit(parsed, text) for _ in range(60)]
        values = [threads.submit(literal, DEEP) for _ in range(60)]
        assert {len(tree.result().body) for tree in trees} == {50}
        assert all(value.result() == literal(DEEP) for value in values)
