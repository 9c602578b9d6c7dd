"""What every store must do with runs of playbooks, whatever it keeps its data in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rm.core.playbook_runs import PlaybookRun, PlaybookSchedule, RunOptions, RunState, TaskOutcome

RUN = PlaybookRun(
    "site", "ada", 5, options=RunOptions("z1", ("a", "b"), ("c",), True, False),
    answers={"release": "7.2", "count": 3, "list": ["x"]}, private=("secret",), schedule=4,
)  # fmt: skip
DONE = replace(
    RUN, state=RunState.FAILED, began_us=6, ended_us=9, message="é\u2028'", notes=("n",),
    recap={"h1": {"ok": 3, "failed": 1}}, not_reached=("h2",),
)  # fmt: skip


def outcome(number: int, host: str = "h1", status: str = "ok") -> TaskOutcome:
    return TaskOutcome(
        number, host, "Play", f"task {number}", "copy", status, at_us=number, took_us=7, message="m",
        output="line\n\x00", diffs=("-a\n+b\n",), items=(("i", "ok", ""),), file="site.yml", line=3,
        delegated="h9",
    )  # fmt: skip


def test_a_run_comes_back_whole_and_ends_once(database: Any, store: Any) -> None:
    runs = store.playbook_runs
    first, second = runs.add(RUN), runs.add(replace(RUN, playbook="other"))
    assert 0 < first < second
    assert runs.get(first) == replace(RUN, id=first)
    assert runs.get(second + 1) is None
    assert runs.put(replace(DONE, id=first))
    assert not runs.put(replace(RUN, id=first, message="again")), "it is over"
    assert not runs.put(replace(DONE, id=second + 1))
    again = database.open()
    assert again.playbook_runs.get(first) == replace(DONE, id=first)
    again.close()


def test_the_newest_runs_by_page_and_by_playbook(store: Any) -> None:
    runs = store.playbook_runs
    ids = [runs.add(replace(RUN, playbook="ab"[n % 2])) for n in range(5)]
    assert [one.id for one in runs.newest(2)] == [ids[4], ids[3]]
    assert [one.id for one in runs.newest(2, before=ids[3])] == [ids[2], ids[1]]
    assert [one.id for one in runs.newest(9, playbook="b")] == [ids[3], ids[1]]


def test_what_is_not_over_is_interrupted(store: Any) -> None:
    runs = store.playbook_runs
    over, running = runs.add(DONE), runs.add(replace(RUN, state=RunState.RUNNING))
    waiting = runs.add(RUN)
    told = runs.add(replace(RUN, told=True))
    assert runs.interrupt("The daemon ended.", "Nothing is known.", 77) == 3
    assert runs.get(told).message == "Nothing is known."
    assert runs.get(over).state is RunState.FAILED
    for id in (running, waiting):
        found = runs.get(id)
        assert (found.state, found.ended_us) == (RunState.INTERRUPTED, 77)
        assert found.message == "The daemon ended."
    assert runs.interrupt("The daemon ended.", "", 78) == 0


def test_outcomes_of_tasks_by_page_host_and_status(database: Any, store: Any) -> None:
    runs = store.playbook_runs
    id = runs.add(RUN)
    found = [outcome(n, "h1" if n % 2 else "h2", "failed" if n == 4 else "ok") for n in range(1, 1200)]
    runs.record(id, found[:3])
    runs.record(id, found[3:])
    runs.record(id, ())
    runs.record(id, [replace(found[0], message="again")])
    again = database.open()
    assert again.playbook_runs.outcomes(id) == found[:1000]
    assert again.playbook_runs.outcomes(id, after=1000) == found[1000:]
    assert [one.number for one in again.playbook_runs.outcomes(id, limit=2, host="h2")] == [2, 4]
    assert again.playbook_runs.outcomes(id, statuses=("failed", "unreachable")) == [found[3]]
    assert again.playbook_runs.outcomes(id + 1) == []
    again.close()


def test_old_runs_are_forgotten_with_their_outcomes(store: Any) -> None:
    runs = store.playbook_runs
    old, late, newer = (runs.add(replace(DONE, ended_us=at)) for at in (10, 30, 40))
    running = runs.add(RUN)
    for id in (old, late, newer, running):
        runs.record(id, [outcome(1), outcome(2)])
    assert runs.prune(before_us=20, most=5) == 1
    assert [one.id for one in runs.newest(9)] == [running, newer, late]
    assert runs.outcomes(old) == [] != runs.outcomes(late)
    assert runs.prune(before_us=20, most=1) == 1
    assert [one.id for one in runs.newest(9)] == [running, newer], "one that runs is never forgotten"
    assert runs.add(RUN) > running


def test_schedules(database: Any, store: Any) -> None:
    runs = store.playbook_runs
    made = PlaybookSchedule("site", "0 3 * * *", "ada", 5, options=RUN.options, answers={"a": 1})
    first, second = runs.add_schedule(made), runs.add_schedule(replace(made, by="eve"))
    changed = replace(made, id=first, last_us=9, last_run=3, message="m")
    assert runs.put_schedule(changed)
    again = database.open()
    assert again.playbook_runs.schedules() == [changed, replace(made, id=second, by="eve")]
    again.close()
    assert runs.remove_schedule(second)
    assert not runs.remove_schedule(second)
    assert not runs.put_schedule(replace(made, id=second))
    assert [one.id for one in runs.schedules()] == [first]
