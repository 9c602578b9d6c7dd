"""The near end of a session, without a far one."""

from __future__ import annotations

import select
from typing import Any

import pytest

from rm.cli.jobs import attended
from rm.client import attending


class Far:
    """A session of a program that ends as soon as somebody has looked."""

    began, displaced = True, False

    def __init__(self, *_: Any) -> None:
        self.said: list[tuple[int, int]] = []

    def resize(self, rows: int, columns: int) -> None:
        self.said.append((rows, columns))

    def attend(self, streams: attending.Streams) -> attending.Ended | None:
        ready, _, _ = select.select([streams.wake], [], [], 0)
        assert ready == [streams.wake]
        assert streams.look(self)  # type: ignore[arg-type]
        return attending.Ended(3, 0)


def test_a_window_that_changed_before_the_session_began_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is read before signals are heard: a change in between was told with the next one only."""
    made: list[Far] = []

    def far(*words: Any) -> Far:
        made.append(Far(*words))
        return made[-1]

    monkeypatch.setattr(attending, "Session", far)
    monkeypatch.setattr(attended, "raw", lambda terminal: attended.suppress())
    monkeypatch.setattr(attended, "window", lambda: (50, 132))

    class Here:
        new_connection = None

    with attended.Signals() as signals:
        attendance = attended.Attendance(Here(), 7, "h1", "name", None, terminal=True)  # type: ignore[arg-type]
        assert attendance.run(signals) == 3
    assert made[0].said == [(50, 132)]
