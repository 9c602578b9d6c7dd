"""Asking for hosts' keys: hosts that do not answer hold up nobody but who asks for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from rm.core.model.host import Host
from rm.daemon.services import host_keys
from rm.daemon.services.host_keys import HostKeyDesk
from rm.errors import Conflict, Unreachable
from tests.fakes import PATIENCE_S

DEAD, GOOD = Host("dead", "z", "10.0.0.1"), Host("good", "z", "10.0.0.2")


class Keys:
    """`dead` hosts answer when `release` is set, by a failure."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []

    def present(self, host: Host) -> Mapping[str, Any]:
        self.asked.append(host.name)
        if host.name.startswith("dead"):
            self.release.wait(PATIENCE_S)
            raise Unreachable(f"Host {host.name} does not answer.")
        return {"presented": host.name}

    def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]:
        return {"presented": fingerprint}


def test_many_who_ask_for_a_dead_host_are_one_question_and_block_nobody() -> None:
    keys = Keys()

    async def work() -> None:
        desk = HostKeyDesk(keys)
        waiting = [asyncio.ensure_future(desk.present(DEAD)) for _ in range(300)]
        assert await desk.present(GOOD) == {"presented": "good"}
        assert await asyncio.to_thread(lambda: "free") == "free"  # the loop's own threads
        waiting[0].cancel()
        keys.release.set()
        found = await asyncio.gather(*waiting[1:], return_exceptions=True)
        assert {type(one) for one in found} == {Unreachable}
        with pytest.raises(Unreachable):
            await desk.present(DEAD)
        assert await desk.present(GOOD) == {"presented": "good"}

    asyncio.run(work())
    assert sorted(keys.asked) == ["dead", "good", "good"]  # a failure is kept for a while, a key is not


def test_accepting_a_key_makes_the_next_look_a_new_one() -> None:
    keys = Keys()

    async def work() -> None:
        desk = HostKeyDesk(keys)
        await desk.present(GOOD)
        await desk.accept(GOOD, "SHA256:x")
        await desk.present(GOOD)

    asyncio.run(work())
    assert keys.asked == ["good", "good"]


def test_a_limit_of_hosts_that_are_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_keys, "WAITING_MAX", 2)
    keys = Keys()

    async def work() -> None:
        desk = HostKeyDesk(keys)
        waiting = [asyncio.ensure_future(desk.present(Host(f"dead{n}", "z", "10.0.0.1"))) for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="2 hosts are being asked"):
            await desk.present(GOOD)
        keys.release.set()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(work())
