"""`rmx shell`: which command runs in a job."""

from __future__ import annotations

from typing import Any

import pytest

from rm.cli.jobs import enter
from tests.command_line import Rmx
from tests.fake_service import Daemon


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("id", "-u"), ["id", "-u"]),
        (("--", "id", "-u"), ["id", "-u"]),
        (("sh", "-c", "true", "--", "x"), ["sh", "-c", "true", "--", "x"]),
    ],
)
def test_two_dashes_before_the_command_are_not_its_name(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], command: list[str]
) -> None:
    begun: list[Any] = []

    class Attended:
        def __init__(self, *given: Any, **_: Any) -> None:
            begun.append(given[4])

        def run(self, _: Any) -> int:
            return 0

    monkeypatch.setattr(enter, "Attendance", Attended)
    rmx("submit", "--wrap=true")
    daemon.service.run(1)
    assert rmx("shell", "1", *words).code == 0
    assert begun[0]["argv"] == command
