"""News of one attempt after the other, which a supervisor of several sends together."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))

import rm_news


class Told:
    """What is sent, and a clock that stands still unless it is set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.sent = 1000.0, list[list[Any]]()
        patch.setattr(rm_news, "time", SimpleNamespace(monotonic=lambda: self.now))
        patch.setattr(rm_news, "say", self._say)

    def _say(self, _: str, words: bytes) -> None:
        self.sent.append([json.loads(text) for text in words.splitlines()])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def line(job: int) -> bytes:
    return rm_news.line_of({"event": "exit"}, job, 1)


def test_a_start_is_told_soon_when_nothing_was_told_lately(told: Told) -> None:
    news = rm_news.Gathered("events")
    assert news.due() is None
    news.start([{"event": "started"}], began_at=told.now)
    assert news.due() == told.now + rm_news.TOGETHER_S == news.due_of(told.now)
    news.send((5, 1))
    assert told.sent == [[{"event": "started", "job": 5, "attempt": 1}]]
    assert news.due() is None


def test_tellings_are_apart_and_what_ended_meanwhile_is_told_once(told: Told) -> None:
    news = rm_news.Gathered("events")
    news.end(line(5))
    news.send(())
    first = told.now
    for job in (6, 7):
        told.now += 0.03
        news.start([{"event": "started"}], began_at=told.now)
        news.starts = []  # it has ended
        news.end(line(job))
        assert news.due() == first + rm_news.APART_S
    news.send(())
    assert [[event["job"] for event in sent] for sent in told.sent] == [[5], [6, 7]]


def test_what_is_sent_together_stays_whole(told: Told) -> None:
    news = rm_news.Gathered("events")
    while not news.many():
        news.end(line(5))
    assert sum(map(len, news.ends)) + len(line(5)) < rm_news.PIPE_BYTES
