"""A lost host is tried again often enough, and an agent that hangs is found; nobody else is blamed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rm.adapters.agent_channel import AgentChannel
from rm.adapters.heartbeat import STEP_S, Heartbeat
from rm.adapters.retries import KEY_S, LAST_S, Retries
from rm.protocol.hosts import Ping

DEAD_AFTER_S = 15.0
TICK_S = 0.1


class FakeChannel:
    """It counts what it is asked; a test says what it hears."""

    def __init__(self) -> None:
        self.heard, self.unread, self.asked = 0, False, 0

    def call(self, request: Any, timeout_s: float) -> None:
        assert isinstance(request, Ping)
        self.asked += 1


class Watch:
    """A heartbeat with a clock of its own."""

    def __init__(self) -> None:
        self.channel, self.now = FakeChannel(), 1000.0
        self._heartbeat = Heartbeat(DEAD_AFTER_S)

    def look(self, after_s: float = TICK_S) -> bool:
        self.now += after_s
        return self._heartbeat.look(cast("AgentChannel", self.channel), self.now)

    def dies_after_s(self, within_s: float = 100.0) -> float | None:
        begun = self.now
        while self.now - begun < within_s:
            if not self.look():
                return self.now - begun
        return None


def test_an_agent_that_answers_lives_and_is_asked_only_when_it_is_quiet() -> None:
    watch = Watch()
    for _ in range(600):
        assert watch.look()
        watch.channel.heard += 1
    assert watch.channel.asked == 0
    for _ in range(600):  # a minute: it says nothing but its answers
        asked = watch.channel.asked
        assert watch.look()
        watch.channel.heard += watch.channel.asked - asked
    assert 5 <= watch.channel.asked <= 60 / (DEAD_AFTER_S / 3)


def test_an_agent_that_hangs_is_found_in_time() -> None:
    watch = Watch()
    watch.channel.heard = 7
    assert watch.look()
    assert watch.dies_after_s() == pytest.approx(DEAD_AFTER_S, abs=0.3)
    assert watch.channel.asked == 1


def test_no_agent_is_blamed_for_a_daemon_that_stood_still() -> None:
    watch = Watch()
    watch.channel.heard = 7
    assert watch.look()
    assert all(watch.look() for _ in range(100))  # asked, and on the way
    assert watch.look(after_s=600)
    watch.channel.heard += 1
    assert watch.look()
    assert STEP_S < DEAD_AFTER_S / 10


def test_what_has_arrived_and_is_not_read_counts_as_an_answer() -> None:
    watch = Watch()
    watch.channel.unread = True
    assert watch.dies_after_s() is None
    watch.channel.unread = False
    assert watch.dies_after_s() == pytest.approx(TICK_S, abs=TICK_S)


@pytest.mark.parametrize("down_after_s", [5.0, 20.0, 300.0])
def test_a_host_that_returns_in_time_is_tried_in_time(down_after_s: float) -> None:
    retries = Retries(down_after_s, now=0.0)
    now = 100.0
    gap_s = retries.pause_s(began=20.0, now=now, greeted=True)
    lost_at = now
    while (now := now + 1.3 * gap_s) - lost_at < down_after_s:  # the longest of the random pauses
        gap_s = retries.pause_s(now, now)
        assert 1.3 * gap_s <= max(2.0, 0.15 * down_after_s)
    assert now - lost_at <= 1.15 * down_after_s


def test_a_host_that_stays_away_is_tried_less_and_less() -> None:
    retries, now, pauses = Retries(20.0, now=0.0), 0.0, []
    for _ in range(40):
        pauses.append(retries.pause_s(now, now))
        now += pauses[-1]
    assert pauses[0] < 1 < max(pauses) == pauses[-1] == LAST_S
    assert retries.pause_s(now, now, refused=True) == KEY_S
    retries.hurry()
    assert retries.pause_s(now, now) < 1
