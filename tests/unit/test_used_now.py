"""What a running job uses, asked of its hosts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from rm.core.model.job import Job, JobState, Task
from rm.core.model.step_used import StepUsed
from rm.daemon.agents import Agents
from rm.daemon.execution.step_book import step_used
from rm.daemon.services import used_now
from rm.daemon.services.used_now import UsedNow
from rm.protocol.job_steps import Spread, StepUsedNow, UsedNowTold
from rm.protocol.job_steps import StepUsed as StepUsedTold
from tests.builders import job as made

NONE = Spread(total=0, most=0, most_rank=0, least=0, least_rank=0)
USED = StepUsedTold(
    tasks=1, user_us=0, system_us=0, cpu_us=NONE, mem_bytes=NONE, read_bytes=NONE, written_bytes=NONE
)


class Fleet:
    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def call(self, name: str, request: Any, timeout_s: float) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


def test_many_who_ask_at_once_make_hosts_look_once() -> None:
    fleet, job = Fleet(), made(1, state=JobState.RUNNING, tasks=(Task(0, "h1", ()),))

    async def found(job_id: int) -> Job:
        return job

    async def ask() -> None:
        used_now = UsedNow(cast(Agents, fleet), found)
        people = [asyncio.create_task(used_now.of(1)) for _ in range(5)]
        while not fleet.asked:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        people[0].cancel()
        for question in fleet.asked:
            question.set_result(UsedNowTold(lines=[]))
        assert await asyncio.gather(*people[1:]) == [(job.attempt, [], [])] * 4
        assert len(fleet.asked) == 1
        await asyncio.sleep(0)
        later = asyncio.create_task(used_now.of(1))  # they look anew
        while len(fleet.asked) < 2:
            await asyncio.sleep(0)
        fleet.asked[1].set_result(UsedNowTold(lines=[]))
        await later

    asyncio.run(asyncio.wait_for(ask(), 20))


def test_a_host_that_tells_of_very_many_steps_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, job = Fleet(), made(1, state=JobState.RUNNING, tasks=(Task(0, "h1", ()),))
    here, threads = threading.get_ident(), set()

    def watched(told: StepUsedTold) -> StepUsed:
        threads.add(threading.get_ident())
        return step_used(told)

    monkeypatch.setattr(used_now, "step_used", watched)

    async def found(job_id: int) -> Job:
        return job

    async def ask() -> None:
        look = asyncio.create_task(UsedNow(cast(Agents, fleet), found).of(1))
        while not fleet.asked:
            await asyncio.sleep(0)
        lines = [StepUsedNow(step=n, used=USED) for n in range(used_now.LONG + 1)]
        fleet.asked[0].set_result(UsedNowTold(lines=lines))
        _, told, silent = await look
        assert ([step for step, _ in told], silent) == (list(range(used_now.LONG + 1)), [])

    asyncio.run(asyncio.wait_for(ask(), 20))
    assert threads
    assert here not in threads  # the one that answers everybody
