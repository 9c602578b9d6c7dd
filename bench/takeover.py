"""How long submissions are refused when the leader vanishes under load and another daemon waits.

    python -m bench takeover [--quick]

From the last answer of the leader to the first submission that the other acknowledged. On PostgreSQL the
leader is killed, stopped, or cut from the database in the middle of a commit. On one SQLite file it is
killed, or stopped between two commits: a process that is stopped inside a transaction keeps the file to
itself until it goes on.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import threading
import time
from collections.abc import Iterator

from bench.cluster import spec
from bench.figure import Figure, Settings
from bench.nemesis.daemon import Daemon
from bench.nemesis.database import Postgres, Sqlite
from bench.nemesis.door import NoAnswer, ask
from bench.nemesis.site import Site, hosts_up, site, until
from rm.errors import RmError

TARGET_S = 5.0
ROUNDS, QUICK_ROUNDS = 20, 3
HOSTS = 2
LOADERS, BATCH = 2, 20
PAUSE_S = 0.05
PATIENCE_S = 60.0
WAYS = {"postgresql": ("killed", "stopped", "cut in a commit"), "sqlite": ("killed", "stopped")}


class Load:
    """Submissions of held jobs to one daemon until it does not answer; `last` is when it did."""

    def __init__(self, daemon: Daemon) -> None:
        self.last = time.monotonic()
        self._daemon = daemon
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(LOADERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        jobs = {"specs": [spec("load", hold=True)] * BATCH}
        while not self._ended.is_set():
            try:
                ask(self._daemon.socket, "POST", "jobs", jobs, timeout_s=2.0)
                self.last = max(self.last, time.monotonic())
                time.sleep(PAUSE_S)
            except NoAnswer:
                time.sleep(0.05)


def takeover_s(made: Site, leader: Daemon, other: Daemon, way: str) -> float:
    """One round; afterwards `other` leads, and `leader` waits."""
    load = Load(leader)
    try:
        time.sleep(1.0)
        with vanished(made, leader, way):
            since = time.monotonic()
            while True:
                with contextlib.suppress(NoAnswer):
                    ask(other.socket, "POST", "jobs", {"spec": spec("load", hold=True)}, timeout_s=1.0)
                    break
                if time.monotonic() - since > PATIENCE_S:
                    raise RmError(f"Nobody took over within {PATIENCE_S:g} s from a leader that was {way}.")
                time.sleep(0.01)
            took = time.monotonic() - load.last
    finally:
        load.stop()
    ask(other.socket, "DELETE", "jobs?name=load", timeout_s=60.0)
    until(leader.waits, "the former leader waits")
    doors = made.doors()
    until(lambda: hosts_up(doors) == HOSTS, "the hosts are up again")
    return took


@contextlib.contextmanager
def vanished(made: Site, leader: Daemon, way: str) -> Iterator[None]:
    """It is away inside, and comes back to wait."""
    starts = leader.starts
    if way == "killed":
        leader.wanted = False  # its machine is gone
        leader.send(signal.SIGKILL)
    elif way == "stopped":
        leader.send(signal.SIGSTOP)
        while isinstance(made.database, Sqlite) and made.database.is_locked():
            leader.send(signal.SIGCONT)
            time.sleep(0.005)
            leader.send(signal.SIGSTOP)
    else:
        until(lambda: in_commit(made.database), "a commit is under way")
        leader.cut("database", "both")
    try:
        yield
    finally:
        if way == "stopped":
            leader.send(signal.SIGCONT)
        elif way != "killed":
            leader.cut("database", "")
        leader.wanted = True
    until(lambda: leader.starts > starts, "the former leader is started again")


def in_commit(database: object) -> bool:
    return isinstance(database, Postgres) and database.in_transaction() > 0


def run(settings: Settings) -> list[Figure]:
    rounds = QUICK_ROUNDS if settings.quick else ROUNDS
    figures = []
    for kind, ways in WAYS.items():
        with site(kind, HOSTS, daemons=2) as made:
            leader, other = made.daemons
            for way in ways:
                took = []
                for _ in range(rounds):
                    took.append(takeover_s(made, leader, other, way))
                    leader, other = other, leader
                what = f"take-over on {kind}, leader {way}"
                figures += [
                    Figure(f"{what}, median", statistics.median(took), "s", f"of {rounds}"),
                    Figure(f"{what}, longest", max(took), "s", "", TARGET_S),
                ]
    return figures
