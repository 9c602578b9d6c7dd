"""A daemon that waits reads the state ahead when the leader is silent, and never leads from an old one."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.bootstrap.waiting import Found, Waiting
from rm.config import Config, DaemonConfig, HttpsConfig, WebConfig
from rm.core.model.host import Host
from rm.core.store import Batch, Doors, Lease, Loaded
from tests.fakes import ManualClock

LEASE_S = 3.0
WAIT_S = 30


class WatchedStore(MemoryStore):
    """Tells of each reading of the state: did it lead by then? Time passes by the looks at the lease, until
    `until`: nobody who is busy misses any of it."""

    def __init__(self, db: MemoryDatabase) -> None:
        super().__init__(db)
        self.led_at_load: list[bool] = []
        self.loaded = threading.Event()
        self.now = self.until = 100.0

    def lease(self) -> Lease:
        found = super().lease()
        self.now = min(self.now + 0.5, self.until)
        return found

    def load(self, ended_after_us: int | None = None) -> Loaded:
        self.led_at_load.append(super().lease().holder == "two")
        found = super().load(ended_after_us)
        self.loaded.set()
        return found


class Scene:
    """`one` leads, and `two` waits, by the clock of its store."""

    def __init__(self, directory: Path) -> None:
        db = MemoryDatabase()
        self.one, self.store = MemoryStore(db), WatchedStore(db)
        self.one.acquire_lease("one", 0, int(LEASE_S * 1e6))
        config = Config(daemon=DaemonConfig(socket=str(directory / "two.sock"), lease_s=LEASE_S))
        self.clock = ManualClock()
        self.waiting = Waiting(config, self.store, self.clock, "two", lambda: self.store.now)

    async def played(self, between: Batch | None) -> Found:
        leading = asyncio.create_task(self.waiting.lead(asyncio.Event()))
        self.store.until = self.store.now + LEASE_S / 2
        assert await asyncio.to_thread(self.store.loaded.wait, WAIT_S)
        if between is not None:  # it was only slow, and vanishes afterwards
            self.one.commit(between, 0)
        self.clock.us += 60_000_000
        self.store.until = math.inf
        assert await asyncio.wait_for(leading, WAIT_S) is not None
        return await self.waiting.state(lambda: False)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_lease_is_taken_with_the_addresses_of_the_daemons_doors(tmp_path: Path) -> None:
    store = MemoryStore()
    config = Config(
        daemon=DaemonConfig(socket=str(tmp_path / "rm.sock")),
        https=HttpsConfig(url="https://rm.example.org:6832/"),
        web=WebConfig(listen="10.0.0.1:8080"),
    )
    waiting = Waiting(config, store, ManualClock(), "one")
    assert asyncio.run(waiting.lead(asyncio.Event())) is not None
    assert store.lease().doors == Doors("https://rm.example.org:6832", "http://10.0.0.1:8080/")


def test_the_state_is_read_before_the_lease_is_over(scene: Scene) -> None:
    found = asyncio.run(scene.played(None))
    assert scene.store.led_at_load == [False]
    assert found.loaded.version == found.loaded.next_job_id - 1 == 0


def test_what_the_leader_committed_after_the_reading_is_not_missed(scene: Scene) -> None:
    host = Host("h1", "z", "10.0.0.1", cpus=1, mem_bytes=1)
    found = asyncio.run(scene.played(Batch(hosts=(host,))))
    assert found.loaded.version == 1
    assert found.state.silent_since == {"h1": scene.clock.us}


def test_hosts_that_were_read_ahead_are_silent_since_the_daemon_leads(scene: Scene) -> None:
    scene.one.commit(Batch(hosts=(Host("h1", "z", "10.0.0.1", cpus=1, mem_bytes=1),)), 0)
    found = asyncio.run(scene.played(None))
    assert scene.store.led_at_load == [False]
    assert found.state.silent_since == {"h1": scene.clock.us}
