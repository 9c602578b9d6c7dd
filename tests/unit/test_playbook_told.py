"""Runs that shells tell of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rm.core.playbook_runs import PlaybookRun, RunOptions, RunState
from rm.daemon.playbooks import runner, telling
from rm.errors import Conflict, LimitReached, NotFound
from tests.cluster import until
from tests.playing import Playing, outcome, playing_in
from tests.unit.test_playbook_runner import over, start, told


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    with playing_in(tmp_path) as playing:
        yield playing


def test_nobody_has_all_the_runs_of_shells_that_are_recorded_at_once(playing: Playing) -> None:
    def tell(by: str) -> None:
        asyncio.run(playing.service.tell("/srv/site.yml", RunOptions(), (), by))

    for _ in range(telling.AT_ONCE_OF_ONE):
        tell("ann")
    with pytest.raises(LimitReached, match=f"{telling.AT_ONCE_OF_ONE} runs in shells of ann"):
        tell("ann")
    tell("bob")


def tell(playing: Playing, run: int, *lines: dict[str, Any], by: str = "ann", batch: int = 0) -> PlaybookRun:
    return asyncio.run(playing.service.progress(run, lines, by, batch))


def began(playing: Playing, playbook: str = "/srv/site.yml") -> int:
    options = RunOptions("h1", check=True)
    return asyncio.run(playing.service.tell(playbook, options, ("release",), "ann")).id


def task(number: int, **more: Any) -> dict[str, Any]:
    return {"kind": "task", "outcome": asdict(replace(outcome(number), **more))}


END = {"kind": "end", "state": "failed", "message": "", "recap": {"h1": {"ok": 1}}, "not_reached": ["h2"]}


def test_a_shells_run_is_recorded_as_it_is_told_and_by_its_caller_alone(playing: Playing) -> None:
    run = began(playing)
    tell(playing, run, {"kind": "start", "host": "h1", "task": "Copy"}, {"kind": "note", "text": "hello"})
    until(lambda: asyncio.run(playing.service.run(run))[1], "the host is at work")
    until(lambda: told(playing, run).notes == ("hello",), "the note is there")
    with pytest.raises(NotFound, match="told of by eve"):
        tell(playing, run, task(1), by="eve")
    with pytest.raises(Conflict, match="Ctrl-C there"):
        asyncio.run(playing.service.stop(run, "ann"))
    tell(playing, run, task(1), task(2, status="failed"))
    tell(playing, run, task(2, status="failed"), END)  # the answer to the request before was lost
    found = over(playing, run)
    assert (found.told, found.by, found.state, found.private) == (True, "ann", RunState.FAILED, ("release",))
    assert (found.recap, found.not_reached) == ({"h1": {"ok": 1}}, ("h2",))
    assert [one.number for one in playing.runs.outcomes(run)] == [1, 2]
    with pytest.raises(NotFound):
        tell(playing, run, task(3))


def test_a_batch_whose_answer_was_lost_is_recorded_once(playing: Playing) -> None:
    run = began(playing)
    for _ in range(2):
        tell(playing, run, {"kind": "note", "text": "hello"}, task(1), batch=1)
    until(lambda: told(playing, run).recap, "the outcome has come")
    with pytest.raises(NotFound, match="told of by eve"):
        tell(playing, run, task(1), by="eve", batch=1)
    for _ in range(2):
        tell(playing, run, {"kind": "note", "text": "bye"}, {**END, "recap": {}}, batch=2)
    found = over(playing, run)
    assert (found.state, found.notes) == (RunState.FAILED, ("hello", "bye"))
    assert (found.recap["h1"]["ok"], [one.number for one in playing.runs.outcomes(run)]) == (1, [1])
    for batch in (0, 3):
        with pytest.raises(NotFound):
            tell(playing, run, task(2), batch=batch)


def test_shells_do_not_wait_for_each_other_nor_keep_the_daemons_runs_waiting(playing: Playing) -> None:
    runs = [began(playing) for _ in range(4)]
    until(lambda: all(told(playing, run).state is RunState.RUNNING for run in runs), "all are going on")
    start(playing)
    playing.next().end()
    for run in runs:
        tell(playing, run, END)
        over(playing, run)


def test_a_shell_that_falls_silent_is_given_up(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    run = began(playing)
    tell(playing, run, task(1))
    playing.service.look()
    assert not told(playing, run).ended_us
    monkeypatch.setattr(telling, "SILENT_S", -1.0)
    playing.service.look()
    found = over(playing, run)
    assert (found.state, found.message) == (RunState.INTERRUPTED, telling.SILENT)
    assert [one.number for one in playing.runs.outcomes(run)] == [1]


def test_of_a_shells_run_the_daemon_does_not_say_how_it_went_on(playing: Playing) -> None:
    run = began(playing)
    tell(playing, run, task(1))
    playing.service.close()
    found = over(playing, run)
    assert (found.state, found.message) == (RunState.INTERRUPTED, runner.TOLD_NO_MORE)


def test_a_daemon_may_record_no_shells_runs(playing: Playing) -> None:
    none = telling.Telling(runs=playing.runs, clock=playing.clock, enabled=False)
    with pytest.raises(Conflict, match="records no runs of shells"):
        none.begin("/srv/site.yml", RunOptions(), (), "ann")
