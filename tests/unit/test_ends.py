"""What a host remembers of attempts that it has discarded: in one file, for a time, whatever stands in it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import AGENTS, agents

sys.path.insert(0, str(AGENTS))
import rm_ends


class Attempt:
    def __init__(self, job: int, attempt: int, *states: str) -> None:
        self.ranks = {
            rank: {"job": job, "attempt": attempt, "rank": rank, "state": state}
            for rank, state in enumerate(states)
        }


def names(lines: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(line["job"], line["attempt"], line["rank"]) for line in lines]


def test_ends_are_told_of_the_jobs_that_are_asked_for(tmp_path: Path) -> None:
    ends = rm_ends.Ends(str(tmp_path))
    assert ends.of({1: 1}) == []
    ends.remember([Attempt(1, 1, "exited", "lost"), Attempt(2, 1, "prepared")])
    ends.remember([Attempt(1, 2, "exited"), Attempt(3, 1, "exited")])
    another = rm_ends.Ends(str(tmp_path))  # a later agent
    assert names(another.of({1: 1, 2: 1})) == [(1, 1, 0), (1, 1, 1), (1, 2, 0)]
    assert names(another.of({1: 2})) == [(1, 2, 0)]
    assert another.of({}) == []


def test_of_an_attempt_with_several_ends_the_last_one_counts(tmp_path: Path) -> None:
    ends = rm_ends.Ends(str(tmp_path))
    ends.remember([Attempt(1, 1, "lost")])
    ends.remember([Attempt(1, 1, "exited")])
    assert [line["state"] for line in ends.of({1: 1})] == ["exited"]


def test_a_line_that_a_full_disk_has_torn_costs_only_itself(tmp_path: Path) -> None:
    ends = rm_ends.Ends(str(tmp_path))
    ends.remember([Attempt(1, 1, "exited")])
    path = tmp_path / "ends"
    path.write_bytes(path.read_bytes() + b'{"at": 1, "tasks": [{"jo')
    ends.remember([Attempt(2, 1, "exited")])
    path.write_bytes(path.read_bytes() + b'[]\n{"at": "x"}\n\xff\n{"at": 1, "tasks": [{}]}\n')
    assert names(ends.of({1: 1, 2: 1})) == [(1, 1, 0), (2, 1, 0)]
    ends.prune()
    assert names(ends.of({1: 1, 2: 1})) == [(1, 1, 0), (2, 1, 0)]


def test_what_is_old_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, now = rm_ends.Ends(str(tmp_path)), time.time()
    for job, ago_s in ((1, 100), (2, 50)):
        monkeypatch.setattr(time, "time", lambda ago_s=ago_s: now - ago_s)
        ends.remember([Attempt(job, 1, "exited")])
    monkeypatch.setattr(time, "time", lambda: now)
    ends.prune(200)
    assert names(ends.of({1: 1, 2: 1})) == [(1, 1, 0), (2, 1, 0)]
    ends.prune(70)
    assert names(ends.of({1: 1, 2: 1})) == [(2, 1, 0)]
    ends.prune(0)
    assert (tmp_path / "ends").read_bytes() == b""


def test_of_very_many_the_older_half_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = rm_ends.Ends(str(tmp_path))
    ends.remember([Attempt(job, 1, "exited") for job in range(10)])
    monkeypatch.setattr(rm_ends, "TOLD_MAX", 3)
    assert names(ends.of(dict.fromkeys(range(10), 1))) == [(7, 1, 0), (8, 1, 0), (9, 1, 0)]
    monkeypatch.setattr(rm_ends, "MOST_BYTES", 600)
    ends.prune()
    assert (tmp_path / "ends").read_text().count("\n") == 5


def test_what_is_remembered_stays_small_without_a_hello(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm_ends, "MOST_BYTES", 10_000)
    ends = rm_ends.Ends(str(tmp_path))
    for job in range(1_000):
        ends.remember([Attempt(job, 1, "exited")])
    assert (tmp_path / "ends").stat().st_size <= 10_000
    told = names(ends.of(dict.fromkeys(range(1_000), 1)))
    assert told == [(job, 1, 0) for job in range(1_000 - len(told), 1_000)]
    assert len(told) > 40


def test_they_are_kept_as_long_as_the_daemon_says_whatever_agent_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with agents() as start:
        agent = start()
        ends = rm_ends.Ends(str(agent.state))
        monkeypatch.setattr(time, "time", lambda: now - 2 * rm_ends.KEEP_S)
        ends.remember([Attempt(1, 1, "exited")])
        agent.kill()
        again = start()
        asked = {"about": [[1, 1]], "keep_s": 3 * rm_ends.KEEP_S}
        assert names(again.call("tasks", **asked)["remembered"]) == [(1, 1, 0)]
        assert again.call("tasks", about=[[1, 1]])["remembered"] == []
