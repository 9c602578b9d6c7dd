"""Who follows a log reads all of it once, whichever daemons lead meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.client import Client, followed_log
from rm.client.connection import Connection
from rm.core.model.job import Job
from rm.core.model.logs import LogPiece
from rm.errors import NotFound, Unreachable
from tests import builders
from tests.agent_process import until
from tests.fake_service import FakeService, serving
from tests.fakes import PATIENCE_S

ENDLESS = LogPiece(0, 0, b"no more comes")


def saying(*pieces: LogPiece) -> type[FakeService]:
    """A daemon whose only log has these pieces; after ENDLESS it waits. It has the job before it serves: a
    follower may ask at once."""

    class Saying(FakeService):
        def __init__(self) -> None:
            super().__init__()
            me = pwd.getpwuid(os.getuid()).pw_name
            self.table[1] = Job(1, builders.spec(user=me), submitted_us=1)

        async def read(self, *asked: Any, **more: Any) -> AsyncIterator[LogPiece]:
            self.log.append(("logs", *asked[3:], *more.values()))
            for piece in pieces:
                if piece is ENDLESS:
                    await asyncio.Event().wait()
                yield piece

    return Saying


@pytest.fixture
def leaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaders]:
    monkeypatch.setattr("rm.client.connection.PAUSE_S", 0.01)
    monkeypatch.setattr(followed_log, "PAUSE_S", 0.01)
    made = Leaders(tmp_path / "rm.sock")
    with made.ends:
        yield made


class Leaders:
    """One after the other at the same socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.ends = contextlib.ExitStack()
        self.asked: list[Any] = []
        self._service: FakeService | None = None

    def next(self, *pieces: LogPiece) -> None:
        self.end()
        self._service = self.ends.enter_context(serving(self.socket, kind=saying(*pieces))).service

    def end(self) -> None:
        self.ends.close()
        if self._service is not None:
            self.asked += [entry[1:] for entry in self._service.log if entry[0] == "logs"]
            self._service = None

    def until_asked(self, times: int = 1) -> None:
        """Wait until somebody reads."""
        assert self._service is not None
        log = self._service.log
        until(lambda: sum(entry[0] == "logs" for entry in log) >= times, f"{times} have asked")

    def follow(self, **more: Any) -> Iterator[bytes]:
        return Client(Connection(str(self.socket), patience_s=60)).logs(1, follow=True, **more)


def test_the_next_leader_goes_on_where_the_last_one_ended(leaders: Leaders) -> None:
    leaders.next(LogPiece(2, 700, b"seven\n"), LogPiece(2, 706, b"eight\n"), ENDLESS)
    follower = leaders.follow(lines=2)
    assert [next(follower), next(follower)] == [b"seven\n", b"eight\n"]
    leaders.next(LogPiece(2, 712, b"nine\n"), LogPiece(3, 0, b"again\n"), ENDLESS)
    assert [next(follower), next(follower)] == [b"nine\n", b"again\n"]
    leaders.next(LogPiece(3, 6, b"the end\n"))
    assert list(follower) == [b"the end\n"]
    leaders.end()
    # offset, follow, lines, attempt, from_attempt
    assert leaders.asked == [(0, True, 2, 0, 0), (712, True, 0, 0, 2), (6, True, 0, 0, 3)]


def test_of_one_attempt_no_other_is_asked_for(leaders: Leaders) -> None:
    leaders.next(LogPiece(1, 5, b"x"), ENDLESS)
    follower = leaders.follow(attempt=1, offset=5)
    assert next(follower) == b"x"
    leaders.next()
    assert list(follower) == []
    leaders.end()
    assert leaders.asked == [(5, True, 0, 1, 0), (6, True, 0, 1, 0)]


def test_before_the_first_byte_the_same_is_asked_again(leaders: Leaders) -> None:
    leaders.next(ENDLESS)
    follower, came = leaders.follow(lines=3), list[bytes]()
    thread = threading.Thread(target=lambda: came.extend(follower))
    thread.start()
    leaders.until_asked()
    leaders.next(LogPiece(1, 0, b"all\n"))
    thread.join(PATIENCE_S)
    leaders.end()
    assert came == [b"all\n"]
    assert leaders.asked == [(0, True, 3, 0, 0)] * 2


def test_a_daemon_that_is_there_and_says_nothing_ends_nobodys_patience(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives signs of life, without which the daemon would be taken for gone."""
    monkeypatch.setattr("rm.web.routes.logs.SIGN_OF_LIFE_S", 0.01)
    monkeypatch.setattr(followed_log, "SILENT_S", 5.0)
    leaders.next(LogPiece(1, 0, b"a"), LogPiece(1, 1, b""), LogPiece(1, 1, b"\nb\n"), LogPiece(1, 4, b"c"))
    assert list(leaders.follow()) == [b"a", b"\nb\n", b"c"]


def test_a_silent_daemon_is_taken_for_gone(leaders: Leaders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "SILENT_S", 0.05)
    leaders.next(LogPiece(1, 0, b""), ENDLESS)
    with pytest.raises(Unreachable, match="in the middle"):
        list(Client(Connection(str(leaders.socket), patience_s=0)).logs(1, follow=True))


def test_a_daemon_that_never_begins_its_answer_is_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine vanished after the client connected: no end of the connection comes."""
    monkeypatch.setattr(followed_log, "SILENT_S", 0.05)
    path = str(tmp_path / "rm.sock")
    with socket.socket(socket.AF_UNIX) as vanished:
        vanished.bind(path)
        vanished.listen()
        with pytest.raises(Unreachable, match="did not answer within"):
            list(Client(Connection(path, patience_s=0, timeout_s=0.05)).logs(1, follow=True))


def test_a_daemon_that_has_nothing_to_begin_with_is_waited_for(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits has no log yet; the daemon says that it is there when it is asked."""
    monkeypatch.setattr(followed_log, "SILENT_S", 0.05)
    leaders.next(ENDLESS)
    follower, came = (
        Client(Connection(str(leaders.socket), patience_s=60)).logs(1, follow=True),
        list[bytes](),
    )
    thread = threading.Thread(target=lambda: came.extend(follower))
    thread.start()
    leaders.until_asked(3)
    leaders.next(LogPiece(1, 0, b"all\n"))
    thread.join(PATIENCE_S)
    assert came == [b"all\n"]


def test_what_the_next_leader_refuses_is_no_end(leaders: Leaders) -> None:
    leaders.next(LogPiece(1, 0, b"a"), ENDLESS)
    follower = leaders.follow(task=0)
    assert next(follower) == b"a"
    leaders.end()
    with serving(leaders.socket), pytest.raises(NotFound, match="There is no job 1"):
        list(follower)
