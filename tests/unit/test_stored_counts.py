"""What the status tells of the database: after each commit anew, and else without a question to it."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from rm.core.model.job import JobState
from rm.core.store import Damaged
from rm.daemon.services import stored
from rm.daemon.services.stored import StoredCounts
from rm.errors import StoreUnavailable

PATIENCE_S = 30.0
AWAY = StoreUnavailable("The database is away.")


@dataclass
class House:
    """The store, the clock and the leader of one."""

    now_us: int = 0
    version: int = 1
    ended: int = 0
    damaged: list[Damaged] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    trouble: StoreUnavailable | None = None

    def monotonic_us(self) -> int:
        return self.now_us

    def counts(self) -> dict[JobState, int]:
        self.asked.append("counts")
        return {JobState.COMPLETED: self.ended}

    def aside(self) -> list[Damaged]:
        self.asked.append("aside")
        return list(self.damaged)

    def end(self) -> None:
        self.ended += 1
        self.version += 1

    def counted(self) -> StoredCounts:
        known: Any = self
        return StoredCounts(known, known, lambda: self.version, lambda: self.trouble)


async def ended_of(counted: StoredCounts) -> int:
    return (await counted.now()).counts[JobState.COMPLETED]


def test_each_end_counts_at_once_and_nothing_is_asked_in_between() -> None:
    house = House()
    counted = house.counted()

    async def story() -> None:
        assert await ended_of(counted) == 0
        house.asked.clear()
        assert [await ended_of(counted) for _ in range(3)] == [0, 0, 0]
        assert house.asked == []
        house.end()
        assert await ended_of(counted) == 1
        assert house.asked == ["counts"]

    asyncio.run(story())


def test_what_is_pruned_or_set_aside_shows_without_a_commit() -> None:
    house = House(ended=5)
    counted = house.counted()

    async def story() -> None:
        assert await ended_of(counted) == 5
        house.ended = 3
        house.damaged.append(Damaged("job", ("7",), "The row of job 7 cannot be read."))
        house.now_us += stored.AGE_US
        held = await counted.now()
        assert (held.counts[JobState.COMPLETED], list(held.aside)) == (3, house.damaged)

    asyncio.run(story())


def test_a_look_that_began_before_a_commit_does_not_answer_for_after_it() -> None:
    house = House()
    counted, began, go_on = house.counted(), threading.Event(), threading.Event()
    look = house.counts

    def slow() -> dict[JobState, int]:
        found = look()
        began.set()
        go_on.wait(PATIENCE_S)
        return found

    house.counts = slow  # type: ignore[method-assign]

    async def story() -> None:
        first = asyncio.create_task(ended_of(counted))
        await asyncio.to_thread(began.wait, PATIENCE_S)
        house.end()
        second = asyncio.create_task(ended_of(counted))
        await asyncio.sleep(0)  # it has joined the look
        go_on.set()
        assert (await first, await second) == (0, 1)

    asyncio.run(story())


def test_a_leader_that_waits_for_its_database_is_told_whatever_was_counted() -> None:
    house = House()
    counted = house.counted()

    async def story() -> None:
        await counted.now()
        house.trouble = AWAY
        with pytest.raises(StoreUnavailable, match="away"):
            await counted.now()

    asyncio.run(story())


def test_a_look_that_fails_after_its_answer_was_given_up_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, complaints, answered, failed = House(), [], threading.Event(), threading.Event()
    counted = house.counted()

    def late() -> Any:
        answered.wait(PATIENCE_S)
        failed.set()
        raise AWAY

    house.counts = late  # type: ignore[method-assign]
    monkeypatch.setattr(stored, "LOOK_S", 0.01)

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: complaints.append(what))
        with pytest.raises(StoreUnavailable, match="not answered"):
            await counted.now()
        answered.set()
        await asyncio.to_thread(failed.wait, PATIENCE_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others) if others else None
        del others
        gc.collect()

    asyncio.run(story())
    assert complaints == []
