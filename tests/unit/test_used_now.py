"""What a running job uses, asked of its hosts."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

from rm.core.model.job import Job, JobState, Task
from rm.daemon.agents import Agents
from rm.daemon.services.used_now import UsedNow
from rm.protocol.job_steps import UsedNowTold
from tests.builders import job as made


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
