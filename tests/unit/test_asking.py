"""Questions that take long: nobody makes others wait by asking many, or about the jobs of others."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.asker import ASKER
from rm.core.jobs import events as ev
from rm.core.scheduling.foreseen import Foreseen, Playing
from rm.daemon.services import foresight
from rm.daemon.services.asking import Asking
from tests import builders
from tests.fakes import PATIENCE_S
from tests.unit.test_service import House


class Leader:
    """Answers at once, and counts."""

    asked = 0

    def ask(self, question: Any) -> Future[Any]:
        self.asked += 1
        done: Future[Any] = Future()
        done.set_result(question(None, 7))
        return done

    def waiting(self) -> None:
        return None


def as_asker(name: str, asking: asyncio.Future[Any] | Any) -> asyncio.Future[Any]:
    ASKER.set(name)
    return asyncio.ensure_future(asking)


def test_many_questions_about_anothers_job_wait_in_the_turn_of_who_asks() -> None:
    leader: Any = Leader()
    asking, order, begin = Asking(leader), list[str](), threading.Event()

    def think(who: str) -> asyncio.Future[Any]:
        """About a job of Ann's."""
        return as_asker(who, asking.think_of("ann", lambda cycle, now_us: who, order.append))

    async def story() -> None:
        first = as_asker("bob", asking.think("bob", lambda: begin.wait(PATIENCE_S)))
        many = [think("mallory") for _ in range(20)]
        own = think("ann")
        await asyncio.sleep(0)
        assert leader.asked == 0  # nobody has a copy of the state waiting
        begin.set()
        await asyncio.gather(first, own, *many)

    asyncio.run(story())
    asking.close()
    assert "ann" in order[:2]
    assert leader.asked == len(order) == 21


def test_others_have_their_turn_while_expected_starts_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A play is made in slices, and gives the turn to whoever asks meanwhile."""
    house, went_on, go_on = House(tmp_path), list[str](), Playing.go_on
    spec = builders.spec(cpus_per_task=8, time_limit_us=10**9)
    house.do(ev.HostAdded(builders.host("h1", cpus=8)))
    house.do(*(ev.JobSubmitted(number, spec) for number in range(1, 61)))
    begun = threading.Event()

    def slice_of(playing: Playing) -> bool:
        went_on.append("play")
        if len(went_on) == 1:
            begun.wait(PATIENCE_S)
        return go_on(playing)

    monkeypatch.setattr(Playing, "go_on", slice_of)
    monkeypatch.setattr(foresight, "PLAYED_S", PATIENCE_S)

    async def story() -> int:
        starts = asyncio.ensure_future(house.service.foresight.starts())
        while not went_on:
            await asyncio.sleep(0)
        asking = house.service.foresight._asking
        other = asyncio.ensure_future(asking.think("bob", lambda: went_on.append("bob")))
        await asyncio.sleep(0)
        begun.set()
        await asyncio.gather(starts, other)
        return len((await starts)[0].starts)

    assert asyncio.run(story()) == 59
    assert went_on[:2] == ["play", "bob"]
    assert len(went_on) > 5
    house.leader.stop()


def test_a_play_that_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)

    class Endless:
        def __init__(self, *arguments: Any) -> None:
            self.slices = 0

        def go_on(self) -> bool:
            self.slices += 1
            return False

        def found(self) -> Foreseen:
            return Foreseen({}, self.slices)

    monkeypatch.setattr(foresight, "Playing", Endless)
    monkeypatch.setattr(foresight, "PLAYED_S", 0.05)
    found, _ = asyncio.run(asyncio.wait_for(house.service.foresight.starts(), PATIENCE_S))
    assert found.until_us
    house.leader.stop()


def test_all_who_ask_when_jobs_will_start_get_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, plays = House(tmp_path), []
    house.do(ev.JobSubmitted(1, builders.spec()))

    class Fake:
        def __init__(self, state: Any, *rest: Any) -> None:
            plays.append(list(state.pending))

        def go_on(self) -> bool:
            return True

        def found(self) -> Foreseen:
            return Foreseen({}, 5)

    monkeypatch.setattr(foresight, "Playing", Fake)

    async def story() -> list[Any]:
        return await asyncio.gather(*(house.service.foresight.starts() for _ in range(20)))

    told = asyncio.run(story())
    assert plays == [[1]]
    assert {found.until_us for found, users in told} == {5}
    assert told[0][1] == {1: "alice"}
    house.clock.us += foresight.KEPT_US
    asyncio.run(house.service.foresight.starts())
    assert len(plays) == 2
    house.leader.stop()
