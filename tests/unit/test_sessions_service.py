"""Sessions that the daemon attends on hosts that are slow, or lie."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rm.core.model.job import Job, JobState, Task
from rm.daemon.services.sessions import Sessions
from rm.errors import Conflict, LimitReached, Unreachable
from tests import builders
from tests.fake_channel import Channel
from tests.fakes import PATIENCE_S

MANY = 40  # more than asyncio's own threads


class Hosts:
    def __init__(self, words: bytes = b"", opens: threading.Event | None = None) -> None:
        self._words, self._opens = words, opens

    def attend(self, name: str) -> Any:
        if self._opens is not None:
            assert self._opens.wait(PATIENCE_S)
        return Channel(self._words)


def running() -> Job:
    return builders.job(1, state=JobState.RUNNING, tasks=(Task(0, "h1", (0,)),))


async def attend(sessions: Sessions, user: str = "ann", host: str = "") -> None:
    async with sessions.attend(running(), host, "abcdefgh", None, user):
        pass


def test_a_host_that_is_not_the_jobs_is_not_asked() -> None:
    hosts = Hosts(b'{"ok": true}\n')
    asyncio.run(attend(Sessions(hosts, "c"), host="h1"))
    with pytest.raises(Conflict, match="does not run on h2: it runs on h1"):
        asyncio.run(attend(Sessions(hosts, "c"), host="h2"))


def test_what_a_host_refuses_with_cannot_command_a_terminal() -> None:
    words = json.dumps({"error": "no\x1b]0;owned\x07", "code": "session-refused"}).encode() + b"\n"
    with pytest.raises(Conflict, match=r"no\?\]0;owned\?"):
        asyncio.run(attend(Sessions(Hosts(words), "c")))


def test_an_answer_that_is_too_deep_is_none() -> None:
    with pytest.raises(Unreachable, match="attends no sessions"):
        asyncio.run(attend(Sessions(Hosts(b"[" * 60_000 + b"\n"), "c")))


def test_a_host_that_answers_byte_by_byte_gains_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.daemon.services.sessions.ANSWER_S", 0.0)
    with pytest.raises(Unreachable, match="did not answer in time"):
        asyncio.run(attend(Sessions(Hosts(b" " * 60_000), "c")))


def test_hosts_that_do_not_answer_keep_nobody_elses_threads() -> None:
    opens = threading.Event()

    async def play() -> None:
        sessions = Sessions(Hosts(b'{"ok": true}\n', opens), "c")
        waiting = [asyncio.ensure_future(attend(sessions)) for _ in range(MANY)]
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.to_thread(int), PATIENCE_S / 2)
        finally:
            opens.set()
        await asyncio.gather(*waiting)

    asyncio.run(play())


def attended(sessions: Sessions, order: str, host: str = "h1") -> str:
    """Who of `order`, a letter each, gets a session on the host while those before have theirs."""
    job = builders.job(1, state=JobState.RUNNING, tasks=(Task(0, host, (0,)),))

    async def play() -> str:
        got = ""
        async with AsyncExitStack() as stack:
            for user in order:
                try:
                    await stack.enter_async_context(sessions.attend(job, "", "abcdefgh", None, user))
                    got += user
                except LimitReached:
                    got += "-"
        return got

    return asyncio.run(play())


def test_nobody_takes_all_sessions_of_a_host() -> None:
    sessions = Sessions(Hosts(b'{"ok": true}\n'), "c", most_of_user=64, most_on_host=16)
    assert attended(sessions, "a" * 20 + "b" * 5 + "c") == "a" * 12 + "-" * 8 + "bbbb-" + "-"
    assert attended(sessions, "a" * 16) == "a" * 12 + "----"  # all are given back
    roomy = Sessions(Hosts(b'{"ok": true}\n'), "c", most_of_user=3, most_on_host=16)
    assert attended(roomy, "aaaabb") == "aaa-bb"
