"""The collector of cycles goes over what is old only when it is told to, and finds the cycles there then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from rm import collector


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = list(gc.callbacks)
    collector.pass_over_survivors()
    yield
    gc.callbacks[:] = before
    gc.unfreeze()


def test_what_outlived_a_full_collection_is_not_gone_over_again() -> None:
    old = Cycle()
    gc.collect()
    assert not any(one is old for one in gc.get_objects())  # those that a collection goes over
    new = Cycle()
    assert any(one is new for one in gc.get_objects())


def test_what_was_made_since_the_last_full_collection_is_collected() -> None:
    gc.collect()
    gone = weakref.ref(Cycle())
    gc.collect()
    assert gone() is None


def test_an_old_cycle_is_collected_once_all_is_looked_at() -> None:
    old = Cycle()
    gc.collect()
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is not None
    collector.look_at_all()
    gc.collect()
    assert gone() is None


def test_it_is_enough_to_ask_once() -> None:
    collector.pass_over_survivors()
    assert gc.callbacks.count(collector._freeze) == 1


def test_what_is_made_to_stay_is_gone_over_neither_then_nor_later() -> None:
    looks: list[str] = []
    gc.callbacks.append(lambda phase, info: looks.append(phase))
    try:
        with collector.made_to_stay():
            kept = [Cycle() for _ in range(100_000)]
            assert looks == []
        assert gc.isenabled()
    finally:
        gc.callbacks.pop()
    gone_over = {id(one) for one in gc.get_objects()}
    assert not any(id(one) in gone_over for one in kept)


def test_it_begins_again_when_nobody_wants_it_off() -> None:
    first, second = collector.uncollected(), collector.uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()  # the other thread's
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_what_is_made_at_once_is_old_and_what_was_young_before_is_looked_at() -> None:
    gc.callbacks.remove(collector._freeze)
    gc.unfreeze()
    gone, before = weakref.ref(Cycle()), gc.isenabled()
    with collector.made_at_once():
        assert gone() is None
        assert not gc.isenabled()
        made = [Cycle() for _ in range(5)]
    assert gc.isenabled() is before
    assert gc.get_freeze_count() == 0
    assert not any(one is made[0] for one in gc.get_objects(0) + gc.get_objects(1))
    old = weakref.ref(made.pop())
    gc.collect()
    assert old() is None


def test_what_is_frozen_stays_so() -> None:
    kept = Cycle()
    gc.freeze()
    with collector.made_at_once():
        pass
    assert not any(one is kept for one in gc.get_objects())
