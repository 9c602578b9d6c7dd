"""Which programs of jobs get a client of the daemon, and how many at once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rm.daemon.services.job_clients import OF_HOST, OF_USER, Asker, JobClients, RunsClient, Way
from rm.daemon.services.job_waiters import JobWaiters
from rm.errors import Unreachable
from rm.protocol.clients import ENDED, ERRORS, HEAD
from rm.protocol.notifications import Asked
from tests import builders
from tests.fake_channel import Channel


class Hosts:
    def __init__(self, words: bytes) -> None:
        self._words = words
        self.channels: list[tuple[str, Channel]] = []

    def attend(self, name: str) -> Any:
        if name == "away":
            raise Unreachable("It is away.")
        self.channels.append((name, Channel(self._words)))
        return self.channels[-1][1]


class Clients:
    """`run` of those that are served, until `over`."""

    def __init__(self) -> None:
        self.served: list[Asker] = []
        self.over = asyncio.Event()

    async def run(self, asker: Asker, way: Way) -> None:
        self.served.append(asker)
        await self.over.wait()


def user_of(host: str, job: int, attempt: int) -> str:
    """Jobs of ann, bob, cid and dan run on h1 and away, in their second attempt."""
    return (
        {1: "ann", 2: "bob", 3: "ann", 4: "cid", 5: "dan"}.get(job, "")
        if attempt == 2 and host in ("h1", "away")
        else ""
    )


def service_of(hosts: Hosts, run: RunsClient | None) -> JobClients:
    return JobClients(
        attend=hosts.attend, cluster="c", user_of=user_of, waiting=JobWaiters().waiting, run=run
    )


def asked(job: int = 1, attempt: int = 2, waiting: int = 1) -> Asked:
    return Asked(job=job, attempt=attempt, waiting=waiting)


OK = b'{"ok": true}\n'


def among(hosts: Hosts, *told: tuple[str, Asked], until: Callable[[Clients], bool]) -> list[Asker]:
    """Who is served after these words of hosts."""

    async def main() -> list[Asker]:
        clients = Clients()
        service = service_of(hosts, clients.run)
        for host, words in told:
            service.asked(host, words)
        async with asyncio.timeout(30):
            while not until(clients):
                await asyncio.sleep(0.01)
            serving = JobClients._serve.__qualname__  # a task for each: also for those who are not served yet
            begun = sum(task.get_coro().__qualname__ == serving for task in asyncio.all_tasks())
            assert begun == len(clients.served) or not clients.served
            clients.over.set()
            await service.close()
        return clients.served

    return asyncio.run(main())


def test_a_host_is_heard_for_the_attempts_that_are_placed_on_it() -> None:
    hosts = Hosts(OK)
    told = [("h2", asked()), ("h1", asked(attempt=1)), ("h1", asked(job=9)), ("h1", asked(job=2))]
    assert among(hosts, *told, until=lambda c: bool(c.served)) == [Asker("bob", "h1", 2)]
    ((host, channel),) = hosts.channels
    words = {"cluster": "c", "job": 2, "attempt": 2, "answer": True}
    assert (host, json.loads(channel.heard)) == ("h1", words)


def test_as_many_are_served_at_once_as_wait_and_no_more_than_a_user_and_a_host_may_have() -> None:
    def served(*told: Asked, count: int) -> int:
        hosts = Hosts(OK)
        return len(among(hosts, *[("h1", one) for one in told], until=lambda c: len(c.served) >= count))

    assert served(asked(waiting=3), count=3) == 3
    assert served(asked(waiting=3), asked(waiting=3), count=3) == 3  # the same ones, told of again
    assert served(asked(waiting=10**9), count=OF_USER) == OF_USER
    assert served(asked(waiting=64), asked(job=3, waiting=64), asked(job=2), count=OF_USER + 1) == OF_USER + 1
    crowd = [asked(job=job, waiting=64) for job in (1, 2, 4, 5)]  # of four users
    assert served(*crowd, count=OF_HOST) == OF_HOST


def test_who_asks_while_others_are_served_is_served_too() -> None:
    hosts = Hosts(OK)

    async def main() -> None:
        clients = Clients()
        service = service_of(hosts, clients.run)
        async with asyncio.timeout(30):
            for served in (1, 2, 3):
                service.asked("h1", asked(waiting=1))
                while len(clients.served) < served:
                    await asyncio.sleep(0.01)
            await service.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "words", [b'{"error": "No program of the job asks."}\n', b"", b"[1]\n", b"x" * 99 + b"\n"]
)
def test_a_host_where_nobody_waits_or_that_says_something_else_is_left(words: bytes) -> None:
    hosts = Hosts(words)
    told = [("h1", asked()), ("away", asked(job=2))]
    assert among(hosts, *told, until=lambda _: bool(hosts.channels)) == []


def test_where_jobs_have_no_clients_a_program_is_told_so() -> None:
    hosts = Hosts(OK)

    async def main() -> None:
        service = service_of(hosts, None)
        service.asked("h1", asked())
        while not hosts.channels or ENDED not in hosts.channels[0][1].heard:
            await asyncio.sleep(0.01)
        await service.close()

    asyncio.run(main())
    frames = hosts.channels[0][1].heard.partition(b"\n")[2]
    kind, _, length = HEAD.unpack_from(frames)
    assert kind == ERRORS
    assert b"jobs.clients in rm.toml is off" in frames[HEAD.size : HEAD.size + length]
    assert HEAD.unpack(frames[HEAD.size + length :]) == (ENDED, 1, 0)


def test_a_client_ends_with_its_job_though_the_host_keeps_the_channel() -> None:
    hosts, waiters, users = Hosts(OK), JobWaiters(), {1: "ann", 2: "bob"}
    gone, looks = asyncio.Event(), Counter[int]()

    def user_of(host: str, job: int, attempt: int) -> str:
        looks[job] += 1
        return users.get(job, "")

    async def run(asker: Asker, way: Way) -> None:
        begun.append(asker.job)
        try:
            await asyncio.Event().wait()  # the host says nothing and keeps the channel
        finally:
            ended.append(asker.job)
            gone.set()

    async def main() -> None:
        service = JobClients(
            attend=hosts.attend,
            cluster="c",
            user_of=user_of,
            waiting=waiters.waiting,
            run=run,
        )
        for job in users:
            service.asked("h1", asked(job=job))
        async with asyncio.timeout(30):
            while len(begun) < 2:
                await asyncio.sleep(0.01)
            changed, before = builders.job(1), looks[1]
            waiters.changed([changed])  # a new version that has its tasks still
            while looks[1] == before:
                await asyncio.sleep(0)
            for _ in range(10):  # as many turns as a cancellation could take
                await asyncio.sleep(0)
            assert ended == []
            del users[1]
            waiters.changed([changed])
            await gone.wait()
        assert ended == [1]
        await service.close()
        assert sorted(ended) == [1, 2]

    begun: list[int] = []
    ended: list[int] = []
    asyncio.run(main())
