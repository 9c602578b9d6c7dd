"""The weekly digest when the leader dies while it sends: the standby goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from email import message_from_bytes
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests import preloaded
from tests.cluster import RMX, until
from tests.ports import Kept

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the daemon's socket is root's")
ADDRESSES = ("a@example.org", "b@example.org", "c@example.org")


class Box:
    """A mail server's; `strikes` happens while it has a letter to this address and has not answered yet."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, str]] = []  # (to, Message-ID), as they were taken
        self.strikes: tuple[str, Callable[[], None]] | None = None  # (to, what happens)
        self.lock = threading.Lock()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        (to,) = envelope.rcpt_tos
        with self.lock:
            self.letters.append((to, str(message_from_bytes(envelope.content)["Message-ID"])))
            if self.strikes is not None and self.strikes[0] == to:
                self.strikes[1]()
                self.strikes = None
        return "250 kept"


def _stop_between_writes(process: int, database: Path) -> None:
    """A daemon that stands still within a write keeps SQLite's lock, and nobody can lead in its place."""
    while True:
        os.kill(process, signal.SIGSTOP)
        while not _stands(process):
            time.sleep(0.01)
        with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:  # locked
                os.kill(process, signal.SIGCONT)
        time.sleep(0.01)


def _stands(process: int) -> bool:
    """All of its threads: one stops the others, once it has its turn."""
    states = []
    for path in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):  # it ended meanwhile
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return all(state == "T" for state in states)


@pytest.fixture
def box() -> Iterator[tuple[Box, int]]:
    box = Box()
    kept = Kept()
    server = Controller(box, hostname="127.0.0.1", port=kept.number)
    server.start()
    yield box, kept.number
    server.stop()
    kept.close()


class Daemon:
    """Digests are due from an hour of Monday on that is half a day away: no new ones come meanwhile."""

    def __init__(self, directory: Path, name: str, smtp: int) -> None:
        hour = (time.gmtime().tm_hour + 12) % 24
        self._database = directory / "rm.sqlite3"
        self._config, self._log = directory / f"{name}.toml", directory / f"{name}.log"
        self._config.write_text(
            f'[daemon]\nsocket = "{directory}/{name}.sock"\nstate_dir = "{directory}/{name}"\n'
            f'database = "sqlite:///{self._database}"\n[web]\nlisten = ""\n[monitor]\nenabled = false\n'
            '[jobs]\nmail = "mail"\n[sharing]\n'
            f'digest = ["physics = {", ".join(ADDRESSES)}"]\ndigest_hour = {hour}\n'
            '[[alerts.channel]]\nname = "mail"\nmail_to = ["ops@example.org"]\nmail_from = "rm@example.org"\n'
            f'smtp = "127.0.0.1:{smtp}"\n'
        )
        self.process = preloaded.daemon(RMX, self._config, self._log)

    def says(self, words: str) -> bool:
        log = self._log.read_text()
        assert self.process.poll() is None, log
        return words in log

    def strike(self, how: signal.Signals) -> None:
        if how == signal.SIGSTOP:
            _stop_between_writes(self.process.pid, self._database)
        else:
            self.process.send_signal(how)

    def has_written(self) -> int:
        """So many letters are known to be sent."""
        with closing(sqlite3.connect(self._database)) as connection:
            rows = connection.execute("SELECT body FROM documents WHERE name LIKE 'digest/%'").fetchall()
        return sum("begun_us" not in json.loads(body) for (body,) in rows)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(60)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("at", range(len(ADDRESSES)))
def test_no_digest_is_lost_and_none_comes_as_another_when_the_leader_dies(
    box: tuple[Box, int], tmp_path: Path, at: int, how: signal.Signals
) -> None:
    letters, smtp = box
    daemons = list[Daemon]()
    try:
        with letters.lock:  # nothing is taken before it is known whom to strike
            daemons.append(Daemon(tmp_path, "first", smtp))
            letters.strikes = ADDRESSES[at], partial(daemons[0].strike, how)
        until(lambda: letters.strikes is None, "the leader is struck")
        daemons.append(Daemon(tmp_path, "second", smtp))
        until(lambda: {to for to, _ in letters.letters} == {*ADDRESSES}, "all have their digest")
        until(lambda: daemons[1].says("leads with epoch"), "the second one leads")
        if how == signal.SIGSTOP:  # it does not know that another one leads
            daemons[0].process.send_signal(signal.SIGCONT)
            until(lambda: daemons[0].process.poll() is not None, "the first one sees it, and ends")
        daemons.append(Daemon(tmp_path, "third", smtp))
        until(lambda: daemons[1].has_written() == len(ADDRESSES), "all is written down")
        daemons[1].end()
        until(lambda: daemons[2].says("leads with epoch"), "the third one leads")
    finally:
        for daemon in daemons:
            daemon.end()
    taken = Counter(letters.letters)
    assert len(taken) == len(ADDRESSES), "each has one Message-ID"
    again = {to for (to, _), times in taken.items() if times > 1}
    assert again <= {ADDRESSES[at]}, "only of this one nobody knows whether the server took it"
    assert max(taken.values()) <= 2
