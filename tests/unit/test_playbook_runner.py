"""Runs of playbooks by the daemon: their turns, what is kept of them, ends of all kinds; schedules."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.playbook import matching
from rm.adapters.playbook.catalogue import Catalogue
from rm.adapters.playbook.vault import seal
from rm.adapters.store.memory import MemoryStore
from rm.core.people.audit import Outcome
from rm.core.playbook_runs import PlaybookRun, RunOptions, RunState
from rm.daemon.playbooks import runner, service
from rm.daemon.playbooks.runner import WAITING_MOST, size_of
from rm.daemon.playbooks.starting import Starting
from rm.errors import LimitReached, NotFound, StoreUnavailable, UsageError
from rm.units import HOUR_US
from tests.cluster import until
from tests.fakes import ManualClock
from tests.playing import PATIENCE_S, FakeProcess, Playing, folder_of, outcome, playing_in

PASSWORD = "of-the-mirror"


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    with playing_in(tmp_path) as playing:
        yield playing


def start(playing: Playing, name: str = "plain", **answers: Any) -> int:
    options = RunOptions("h1", ("a",), (), True)
    return asyncio.run(playing.service.start(name, options, answers, "ann")).id


def over(playing: Playing, run: int) -> PlaybookRun:
    until(lambda: playing.run(run).ended_us, f"run {run} is over")
    return playing.run(run)


def told(playing: Playing, run: int) -> PlaybookRun:
    return asyncio.run(playing.service.run(run))[0]


def test_orders_have_the_answers_and_the_record_none_that_is_private(playing: Playing) -> None:
    run = start(playing, "site", password=PASSWORD, release="8", mirrors=["a", "b"])
    process = playing.next()
    assert process.orders["prompted"] == {"password": PASSWORD, "release": "8"}
    assert process.orders["extra"] == {"channel": "stable", "mirrors": ["a", "b"]}
    assert process.orders["defaults"] == ["channel"]
    assert process.orders["secrets"] == [PASSWORD]
    assert (process.orders["limit"], process.orders["tags"], process.orders["check"]) == ("h1", ["a"], True)
    process.say(kind="play", text="p", hosts=["h1"])
    process.say(kind="start", host="h1", task="Install")
    process.say(kind="note", text="as it seems")
    doing = until(lambda: asyncio.run(playing.service.run(run))[1], "it is at something")
    assert doing["h1"][0] == "Install"
    process.task(outcome(1))
    process.task(outcome(2, status="skipped"))
    until(lambda: len(playing.runs.outcomes(run)) == 2, "what tasks came to is kept while it runs")
    assert told(playing, run).recap == {"h1": {"ok": 1, "changed": 1, "skipped": 1}}
    process.end("ok", recap={"h1": {"ok": 9}}, not_reached=["h2"])
    found = over(playing, run)
    assert (found.state, found.recap, found.not_reached) == (RunState.OK, {"h1": {"ok": 9}}, ("h2",))
    assert found.answers == {"release": "8", "channel": "stable", "mirrors": ["a", "b"]}
    assert (found.private, found.notes, found.message) == (("password",), ("as it seems",), "")
    assert PASSWORD not in repr(found)
    assert asyncio.run(playing.service.outcomes(run, 1, 5, "", ())) == ([outcome(2, status="skipped")], 0)


def test_two_run_at_a_time_and_of_one_playbook_only_one(playing: Playing) -> None:
    first, second = start(playing), start(playing)
    other, third = start(playing, "drain"), start(playing, "site", password=PASSWORD)
    until(lambda: len(playing.processes) == 2, "two run")
    states = [told(playing, one).state for one in (first, second, other, third)]
    assert states == ["running", "waiting", "running", "waiting"]
    draining, plain = sorted(
        playing.processes, key=lambda process: process.orders["path"].endswith("plain.yaml")
    )
    plain.end()
    until(lambda: len(playing.processes) == 3, "the next begins")
    assert told(playing, second).state is RunState.RUNNING
    draining.end()
    until(lambda: len(playing.processes) == 4, "the last begins")
    for process in playing.processes[2:]:
        process.end()
    assert all(over(playing, one).state is RunState.OK for one in (first, second, other, third))


def test_too_many_that_wait_are_refused(playing: Playing) -> None:
    for _ in range(WAITING_MOST + 1):
        start(playing)
    with pytest.raises(LimitReached, match="100 runs of playbooks of ann wait already"):
        start(playing)
    other = asyncio.run(playing.service.start("plain", RunOptions(), {}, "bob"))
    assert told(playing, other.id).state is RunState.WAITING, "what one has asked for refuses nobody else"


def test_a_run_that_waited_is_not_begun_for_somebody_who_lost_the_role(playing: Playing) -> None:
    first, second = start(playing), start(playing)
    process = playing.next()
    playing.may = False
    process.end()
    assert over(playing, first).state is RunState.OK, "it had begun"
    found = over(playing, second)
    assert (found.state, found.began_us) == (RunState.FAILED, 0)
    assert found.message == "ann may not start playbooks any more: it was not begun."
    assert len(playing.processes) == 1


def test_a_run_that_takes_too_long_is_broken_off(playing: Playing) -> None:
    run = start(playing)
    process = playing.next()
    until(lambda: told(playing, run).began_us, "it has begun")
    playing.clock.step(HOUR_US)  # somebody sets the clock
    playing.clock.us += HOUR_US - 1
    process.task(outcome(1))
    until(lambda: playing.runs.outcomes(run), "it is followed")
    assert not process.stopped.is_set()
    playing.clock.us += 1
    until(process.stopped.is_set, "it is broken off")
    process.end("interrupted", not_reached=["h1"])
    found = over(playing, run)
    assert (found.state, found.not_reached) == (RunState.INTERRUPTED, ("h1",))
    assert found.message.startswith("It took longer than playbooks.time_limit_hours, 1, allow.")


def test_a_run_that_waits_and_one_that_runs_are_stopped(playing: Playing) -> None:
    first, second = start(playing), start(playing)
    process = playing.next()
    asyncio.run(playing.service.stop(second, "boss"))
    assert over(playing, second).message == "boss stopped it before it began."
    asyncio.run(playing.service.stop(first, "boss"))
    assert process.stopped.is_set()
    process.end("interrupted", not_reached=["h1"])
    found = over(playing, first)
    assert (found.state, found.not_reached) == (RunState.INTERRUPTED, ("h1",))
    assert found.message.startswith("boss stopped it.")
    assert asyncio.run(playing.service.stop(first, "boss")) == found, "it is over already"
    with pytest.raises(NotFound):
        asyncio.run(playing.service.stop(99, "boss"))


@pytest.mark.parametrize(
    ("end", "state", "message"),
    [
        (lambda process: process.end("failed", message="No such host."), "failed", "No such host."),
        (lambda process: process.end("unreachable"), "unreachable", ""),
        (lambda process: process.die(), "failed", "ended with code -9 before the playbook did"),
    ],
)
def test_ends_of_runs(playing: Playing, end: Any, state: str, message: str) -> None:
    run = start(playing)
    process = playing.next()
    process.say(kind="task", outcome={"number": "none"})
    process.say(kind="of another rm")
    end(process)
    found = over(playing, run)
    assert found.state == state
    assert message in found.message


def test_of_a_flood_the_beginning_is_kept_and_every_result(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may print without end; the database and the answers stay small."""
    monkeypatch.setattr(runner, "DETAILS_MOST", 3 * size_of(outcome(1, output="x" * 10_000)))
    run = start(playing)
    process = playing.next()
    for number in range(1, 7):
        process.task(outcome(number, output="x" * 10_000, message="m" * 1_000 if number > 3 else "done"))
    process.end()
    found = over(playing, run)
    kept = playing.runs.outcomes(run)
    assert [len(one.output) for one in kept] == [10_000] * 3 + [0] * 3
    assert [len(one.message) for one in kept[3:]] == [runner.SHORT_MOST] * 3
    assert len(found.notes) == 1
    assert found.recap["h1"]["changed"] == 6


def test_an_answer_holds_few_outcomes_that_are_long(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ANSWER_MOST", 25_000)
    run = playing.runs.add(PlaybookRun("plain", "ann", 5, state=RunState.OK, ended_us=6))
    playing.runs.record(run, [outcome(n, output="x" * 10_000) for n in range(1, 6)])
    pages, after = [], 0
    while True:
        found, after = asyncio.run(playing.service.outcomes(run, after, 1_000, "", ()))
        pages.append([one.number for one in found])
        if not after:
            break
    assert pages == [[1, 2], [3, 4], [5]]
    monkeypatch.setattr(service, "ANSWER_MOST", 1)
    assert asyncio.run(playing.service.outcomes(run, 0, 1_000, "", ()))[1] == 1, "one at least"
    monkeypatch.setattr(service, "READ_AT_ONCE", 2)
    monkeypatch.setattr(service, "ANSWER_MOST", 1 << 30)
    for limit, following in ((4, 4), (5, 0), (6, 0)):
        found, after = asyncio.run(playing.service.outcomes(run, 0, limit, "", ()))
        assert ([one.number for one in found], after) == (list(range(1, 6))[:limit], following)


def test_a_database_that_is_away_does_not_keep_the_event_loop_waiting(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard is held while a run is recorded; who is answered meanwhile waits in a thread."""
    first = start(playing)
    add, entered, back = playing.runs.add, threading.Event(), threading.Event()

    def away(run: PlaybookRun) -> int:
        entered.set()
        assert back.wait(60)
        return add(run)

    monkeypatch.setattr(playing.runs, "add", away)

    async def story() -> None:
        begun = asyncio.create_task(playing.service.start("plain", RunOptions(), {}, "ann"))
        assert await asyncio.to_thread(entered.wait, 60)
        asked = [
            asyncio.create_task(playing.service.newest(5, 0, "")),
            asyncio.create_task(playing.service.run(first)),
        ]
        for _ in range(100):
            await asyncio.sleep(0)  # the loop goes on: it would hang here else
        back.set()
        await begun
        await asyncio.gather(*asked)

    def give_up() -> None:  # where the loop is kept waiting nothing else would go on
        late.set()
        back.set()

    late = threading.Event()
    timer = threading.Timer(20, give_up)
    timer.start()
    asyncio.run(story())
    timer.cancel()
    assert not late.is_set()


def test_a_process_that_cannot_be_started(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(orders: Any) -> FakeProcess:
        raise OSError("no more processes")

    monkeypatch.setattr(playing.runner, "_start", refuse)
    assert "no more processes" in over(playing, start(playing)).message


def test_the_end_of_the_daemon_interrupts_all(playing: Playing) -> None:
    running, waiting = start(playing), start(playing)
    process = playing.next()

    def obey() -> None:
        assert process.stopped.wait(60)
        process.end("interrupted")

    thread = threading.Thread(target=obey)
    thread.start()
    playing.service.close()
    thread.join()
    found = over(playing, running)
    assert (found.state, found.message[:16]) == (RunState.INTERRUPTED, "The daemon ended")
    assert over(playing, waiting).message == "The daemon ended before it began."


def test_the_next_daemon_says_what_became_of_unfinished_runs(tmp_path: Path) -> None:
    store = MemoryStore()
    store.playbook_runs.add(PlaybookRun("plain", "ann", 5, state=RunState.RUNNING))
    playing = Playing(folder_of(tmp_path), runs=store.playbook_runs)
    playing.runner.mark_interrupted()
    found = playing.run(1)
    assert found.state is RunState.INTERRUPTED
    assert "The daemon ended while the playbook ran" in found.message


def test_what_tasks_came_to_waits_for_a_database_that_is_away(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, refused = playing.runs.record, []

    def away(run: int, found: Any) -> None:
        if len(refused) < 3:
            refused.append(run)
            raise StoreUnavailable("The database is away.")
        record(run, found)

    monkeypatch.setattr(playing.runs, "record", away)
    run = start(playing)
    process = playing.next()
    process.task(outcome(1))
    process.end()
    assert over(playing, run).state is RunState.OK
    assert playing.runs.outcomes(run) == [outcome(1)]
    assert refused == [run] * 3


def test_a_default_that_the_vault_holds_is_private(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (tmp_path / "password").write_text("of the vault")
    sealed = seal(b"sesame-in-the-vault", b"of the vault").replace("\n", "\n            ")
    (folder / "plain.yaml").write_text(
        f"- hosts: all\n  vars_prompt:\n    - name: token\n      private: false\n      default: !vault |\n"
        f"            {sealed}\n  tasks:\n    - ping:\n"
    )
    starting = Starting(
        catalogue=Catalogue(str(folder)), runner=Playing(folder).runner, clock=ManualClock(),
        vault_password_file=str(tmp_path / "password"),
    )  # fmt: skip
    (question,) = starting.survey("plain")[1]
    assert (question.name, question.private) == ("token", True)
    assert starting.asked("plain", RunOptions(), {})[1].secrets == ("sesame-in-the-vault",)


# -- schedules


def schedule(playing: Playing, name: str = "plain", cron: str = "0 3 * * *", **answers: Any) -> int:
    return asyncio.run(playing.service.schedule(name, cron, RunOptions(), answers, "ann"))[0].id


def test_a_schedule_begins_runs_one_after_the_other(playing: Playing) -> None:
    id = schedule(playing, "drain")
    (_, due, _), = playing.timers.due.values()  # fmt: skip
    due()
    process = playing.next()
    made = playing.runs.schedules()[0]
    assert playing.run(made.last_run).schedule == id
    due()
    assert f"Run {made.last_run}" in playing.runs.schedules()[0].message
    process.end()
    over(playing, made.last_run)
    playing.may = False
    due()
    assert playing.runs.schedules()[0].message == "ann may not start playbooks any more."
    assert [(act.user, act.via, act.target, act.outcome) for act in playing.acts] == [
        ("ann", "schedule", "playbook drain", outcome)
        for outcome in (Outcome.BEGUN, Outcome.REFUSED, Outcome.REFUSED)
    ]
    asyncio.run(playing.service.unschedule(id))
    assert (playing.timers.due, playing.runs.schedules()) == ({}, [])
    due()  # that was under way
    assert len(playing.processes) == 1
    with pytest.raises(NotFound):
        asyncio.run(playing.service.unschedule(id))


def test_a_run_by_cron_is_known_to_its_schedule_also_where_the_audit_log_refuses_it(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same time would begin another run after a restart of the daemon."""

    def away(act: Any) -> None:
        raise StoreUnavailable("The database is away.")

    monkeypatch.setattr(playing.schedules, "_record", away)
    schedule(playing, "drain")
    (_, due, _), = playing.timers.due.values()  # fmt: skip
    due()
    kept = playing.runs.schedules()[0]
    assert kept.last_run > 0
    assert kept.last_us > 0
    assert kept.message == ""


def test_a_pattern_that_takes_hours_keeps_no_thread_of_the_daemon_waiting(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "WITHIN_S", 0.5)
    survey = tmp_path / "playbooks" / "plain.survey.yml"
    survey.write_text("words: {pattern: '(a+)+'}\n")
    with pytest.raises(UsageError, match="does not match"):
        start(playing, words="a" * 60_000 + "!")
    monkeypatch.setattr(matching, "WITHIN_S", 60.0)
    start(playing, words="aaa")
    assert playing.next().orders["extra"] == {"words": "aaa"}


def test_all_patterns_of_a_survey_together_have_the_time_of_one(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted is what the processes compute, not the time that passes."""
    monkeypatch.setattr(matching, "WITHIN_S", 0.5)
    survey = tmp_path / "playbooks" / "plain.survey.yml"
    survey.write_text("".join(f"words{n}: {{pattern: '(a+)+'}}\n" for n in range(20)))
    before_s = computed_s()
    with pytest.raises(UsageError, match="words19' does not match"):
        start(playing, **{f"words{n}": "a" * 60_000 + "!" for n in range(20)})
    assert computed_s() - before_s < 5  # and not 20 times a half


@pytest.mark.parametrize("broken", ["(", "(" * 900 + ")" * 900, "a{99999999999999999999}"])
def test_what_is_no_pattern_keeps_no_other_from_matching(broken: str) -> None:
    with matching.Fits() as fits:
        assert [fits("a+", "aa"), fits(broken, "a"), fits("b", "b")] == [True, False, True]


def computed_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def test_neither_many_patterns_nor_a_slow_machine_make_an_answer_wrong(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process for all, which may start as slowly as it does."""
    begun: list[Any] = []
    popen = matching.subprocess.Popen

    def slow(argv: Any, **how: Any) -> Any:
        begun.append(argv)
        return popen(["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *argv], **how)

    monkeypatch.setattr(matching, "WITHIN_S", 0.5)
    starts = SimpleNamespace(Popen=slow, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(matching, "subprocess", starts)
    survey = tmp_path / "playbooks" / "plain.survey.yml"
    survey.write_text("".join(f"words{n}: {{pattern: a+}}\n" for n in range(50)))
    start(playing, **{f"words{n}": "a" for n in range(50)})
    assert len(playing.next().orders["extra"]) == 50
    assert len(begun) == 1


def test_whose_patterns_take_long_keeps_nobody_else_waiting(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who reads nor who starts another run, however often one person asks."""
    (tmp_path / "playbooks" / "plain.survey.yml").write_text("words: {pattern: a+}\n")
    go_on, held = threading.Event(), threading.Semaphore(0)

    def slow(fits: matching.Fits, pattern: str, text: str) -> bool:
        held.release()
        return go_on.wait(PATIENCE_S)

    monkeypatch.setattr(matching.Fits, "__call__", slow)

    async def scene() -> None:
        begin = playing.service.start
        many = [asyncio.create_task(begin("plain", RunOptions(), {"words": "a"}, "ann")) for _ in range(100)]
        try:
            assert await asyncio.to_thread(held.acquire, timeout=PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                assert await playing.service.newest(5, 0, "") == []
                assert (await begin("drain", RunOptions(), {}, "bob")).by == "bob"
            assert not any(one.done() for one in many)
            for one in many[1:]:
                one.cancel()
            await asyncio.wait(many[1:])
        finally:
            go_on.set()
        await many[0]
        assert many[0].result().by == "ann"

    asyncio.run(scene())
    assert not held.acquire(blocking=False)  # whoever has gone is not waited for


def test_a_schedule_keeps_no_private_answer_and_must_fit(playing: Playing) -> None:
    with pytest.raises(UsageError, match="private answers password") as caught:
        schedule(playing, "site", password=PASSWORD)
    assert PASSWORD not in str(caught.value)
    with pytest.raises(UsageError, match="needs an answer"):
        schedule(playing, "site")
    with pytest.raises(UsageError, match="cron"):
        schedule(playing, cron="daily")
    with pytest.raises(NotFound):
        schedule(playing, "other")
    assert playing.runs.schedules() == []


def test_stored_schedules_are_followed_by_the_next_daemon(tmp_path: Path) -> None:
    folder, store = folder_of(tmp_path), MemoryStore()
    schedule(Playing(folder, runs=store.playbook_runs), "plain")
    again = Playing(folder, runs=store.playbook_runs)
    again.schedules.follow_all()
    assert list(again.timers.due) == ["playbook schedule 1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions("@/etc/shadow"), "no pattern"),
        (RunOptions("h1;id"), "no pattern"),
        (RunOptions("", ("a b",)), "no tag"),
        (RunOptions("", ("a",) * 51), "50 tags"),
    ],
)
def test_options_that_are_refused(playing: Playing, options: RunOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asyncio.run(playing.service.start("plain", options, {}, "ann"))
