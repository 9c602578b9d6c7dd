"""A journal under other policies: exact small cases, and worlds with failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.opening import open_store
from rm.cli.main import run
from rm.core.jobs import events as ev
from rm.core.jobs.free import all_of
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.journal import journal
from rm.core.journal.journal import Chosen, Recorder
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.store import Batch, Entry
from rm.sim import replay_summary
from rm.sim.recording import read
from rm.sim.replay import verify
from rm.sim.whatif import Decider, Fate, WhatIf
from tests import builders
from tests.examples import seeds
from tests.sim.world import World

S = 1_000_000
Entries = list[tuple[int, Entry]]
FIFO = {"queue": Chosen("fifo"), "placement": Chosen("first-fit"), "comm": Chosen("none")}


class Log:
    """A journal that is written by hand: the test says what the hosts and users tell, and when."""

    def __init__(self, *hosts: str, cpus: int = 4, down_after_s: int = 20) -> None:
        policies = Policies(*(load(kind, FIFO[kind].name) for kind in FIFO))
        self.cycle = Cycle(ClusterState(), policies, Rules(down_after_us=down_after_s * S))
        self.recorder = Recorder("of this test", FIFO)
        self.entries: Entries = []
        self.at(0, *(ev.HostAdded(builders.host(h, cpus=cpus)) for h in hosts))
        self.at(0, *(ev.HostUp(h, "boot", "1") for h in hosts))

    def at(self, time_s: float, *events: ev.Event) -> None:
        now_us = S + round(time_s * S)
        made = self.recorder.before(self.cycle, now_us)
        outcome = self.cycle.step(events, now_us)
        made += self.recorder.after(self.cycle, events, outcome, now_us)
        for entry in made:
            self.entries.append((len(self.entries) + 1, entry))

    def submit(self, time_s: float, job: int, **fields: Any) -> None:
        fields.setdefault("cpus_per_task", 4)
        self.at(time_s, ev.JobSubmitted(job, builders.spec(f"job{job}", **fields)))

    def runs(self, time_s: float, job: int, host: str = "h1") -> None:
        attempt = self.cycle.state.jobs[job].attempt
        self.at(time_s, ev.TasksStarted(job, attempt, host, S + round(time_s * S), (0,)))

    def ends(self, time_s: float, job: int, host: str = "h1", code: int = 0) -> None:
        attempt = self.cycle.state.jobs[job].attempt
        self.at(time_s, ev.TaskExited(job, attempt, host, 0, code, 0, None, S + round(time_s * S)))

    def what_if(self, **changed: str) -> dict[int, Fate]:
        assert verify(self.entries).difference is None
        return WhatIf(read(self.entries), Decider(changed, None)).play(self.entries)


def times_s(fates: Mapping[int, Fate]) -> dict[int, tuple[float | None, float | None]]:
    return {
        job: tuple(None if t is None else (t - S) / S for t in (f.start_us, f.end_us))  # type: ignore[misc]
        for job, f in fates.items()
    }


def three_jobs() -> Log:
    """One host; a long job runs, then come a middling and a short one."""
    log = Log("h1")
    log.submit(0, 1, expected_us=100 * S)
    log.runs(0, 1)
    log.submit(1, 2, expected_us=50 * S)
    log.submit(2, 3, expected_us=10 * S)
    log.ends(100, 1)
    log.runs(101, 2)
    log.ends(151, 2)
    log.runs(152, 3)
    log.ends(162, 3)
    return log


def test_the_shortest_job_first_and_each_as_long_as_it_ran() -> None:
    log = three_jobs()
    same = log.what_if()
    assert times_s(same) == {1: (0, 100), 2: (101, 151), 3: (152, 162)}
    other = log.what_if(queue="srsf")
    assert times_s(other) == {1: (0, 100), 3: (101, 111), 2: (112, 162)}
    rows = replay_summary.rows(read(log.entries), same, other)
    values = {which: replay_summary.metrics(rows, which) for which in ("recorded", "modelled", "replayed")}
    assert values["recorded"] == values["modelled"]
    assert values["modelled"]["mean_wait_s"] == pytest.approx((0 + 100 + 150) / 3)
    assert values["replayed"]["mean_wait_s"] == pytest.approx((0 + 111 + 99) / 3)
    assert values["replayed"]["mean_jct_s"] == pytest.approx((100 + 161 + 109) / 3)
    assert values["replayed"]["makespan_s"] == 162
    assert replay_summary.counts(rows) == {
        "jobs": 3, "compared": 3, "earlier": 1, "later": 1, "elsewhere": 0
    }  # fmt: skip


def test_what_users_asked_happens_at_its_time() -> None:
    log = three_jobs()
    log.submit(170, 4)
    log.runs(170, 4)
    log.submit(171, 5, expected_us=30 * S, hold=True)
    log.submit(172, 6, expected_us=40 * S)
    log.at(180, ev.CancelRequested(4, "alice"))
    log.ends(181, 4, code=143)
    log.at(181, ev.ReleaseRequested(5, "alice"))
    log.at(182, ev.CancelRequested(6, "alice"))
    other = times_s(log.what_if(queue="srsf"))
    assert other[4] == (170, 180)  # how long it takes to die is not told: only its job's own ends are
    assert other[6] == (180, 182)  # job 5 is still held when the host is free
    assert other[5] == (182, 212)  # what it declares: it never ran


def test_hosts_fall_silent_and_boot_at_their_times() -> None:
    log = Log("h1", "h2")
    log.submit(0, 1, requeue=True)
    log.runs(0, 1)
    log.submit(1, 2)
    log.runs(1, 2, "h2")
    log.at(10, ev.HostSilent("h1", "cut"))  # goes on, and ends meanwhile
    log.at(25, ev.HostUp("h1", "boot", "1"), ev.TaskExited(1, 1, "h1", 0, 0, 0, None, S + 12 * S))
    log.submit(30, 3, requeue=True, hosts_only=("h1",))
    log.runs(30, 3)
    log.at(40, ev.HostSilent("h1", "power"))
    log.at(50, ev.HostUp("h1", "boot 2", "1"), ev.TasksLost(3, 1, "h1", (0,)))
    log.runs(50, 3)
    log.ends(65, 3)
    log.ends(70, 2, "h2")
    assert times_s(log.what_if()) == {1: (0, 25), 2: (1, 70), 3: (30, 65)}
    elsewhere = log.what_if(placement="consolidate")
    assert times_s(elsewhere)[3] == (30, 65)


def test_a_job_that_could_not_be_launched_there_cannot_either() -> None:
    log = Log("h1", "h2")
    log.submit(0, 1)
    log.at(1, ev.LaunchFailed(1, 1, "h1", "internal", "no cgroup"))
    log.runs(2, 1, "h2")
    log.ends(12, 1, "h2")
    fates = log.what_if()
    assert fates[1].hosts == ("h2",)
    assert times_s(fates) == {1: (2, 12)}  # both launches take the time that the one that worked took


def test_a_journal_that_begins_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "START_EVERY_US", 60 * S)
    log = three_jobs()
    later = [i for i, (_, e) in enumerate(log.entries) if e.kind == "start"][1]
    log.entries = log.entries[later:]
    assert (log.entries[0][1].at_us - S) / S == 100
    fates = times_s(log.what_if(queue="srsf"))
    assert fates[1] == (0, 100)
    assert fates[3][0] < fates[2][0]  # type: ignore[operator]
    rows = replay_summary.rows(read(log.entries), *2 * [log.what_if()])
    assert [row.story.id for row in rows] == [2, 3]  # the first one runs already


def element(log: Log, time_s: float, job: int, lasts_s: float) -> None:
    log.runs(time_s, job)
    log.ends(time_s + lasts_s, job)


def array_and_job() -> Log:
    """One host: the elements 0 to 2 run one after the other, as jobs 2, 3 and 5, and job 4 after them."""
    log = Log("h1")
    log.submit(0, 1, array="0-2", expected_us=60 * S)
    element(log, 0, 2, 20)
    log.runs(20, 3)
    log.submit(25, 4, expected_us=10 * S)
    log.ends(60, 3)
    element(log, 60, 5, 30)
    element(log, 90, 4, 10)
    return log


def test_elements_of_arrays_are_the_same_ones_in_another_order() -> None:
    log = array_and_job()
    same = log.what_if()
    assert {job: t for job, t in times_s(same).items() if job != 1} == {
        2: (0, 20), 3: (20, 60), 5: (60, 90), 4: (90, 100)
    }  # fmt: skip
    other = times_s(log.what_if(queue="srsf"))
    # the short job goes before the last element, which then has another id, and its own length
    assert {job: t for job, t in other.items() if job != 1} == {
        2: (0, 20), 3: (20, 60), 4: (60, 70), 5: (70, 100)
    }  # fmt: skip
    rows = replay_summary.rows(read(log.entries), same, same)
    assert [row.story.id for row in rows] == [2, 3, 4, 5]


def test_what_is_asked_of_an_element_is_asked_of_the_same_one() -> None:
    log = Log("h1")
    log.submit(0, 1, array="0-1", expected_us=60 * S)
    element(log, 0, 2, 10)
    log.runs(10, 3)
    log.submit(5 + 10, 4, expected_us=10 * S)
    log.at(20, ev.CancelRequested(3, "alice"))
    log.ends(21, 3, code=143)
    element(log, 21, 4, 10)
    assert times_s(log.what_if())[3] == (10, 20)
    held = Log("h1")
    held.submit(0, 1, expected_us=50 * S)
    held.submit(0, 2, array="0-1", expected_us=90 * S)
    held.submit(0, 3, expected_us=20 * S)
    element(held, 0, 1, 50)
    held.runs(50, 4)
    held.at(60, ev.CancelRequested(4, "alice"))  # under the other policies it still waits in its array then
    held.ends(61, 4, code=143)
    element(held, 61, 5, 90)
    element(held, 151, 3, 20)
    other = times_s(held.what_if(queue="srsf"))
    assert (other[1], other[3]) == ((0, 50), (50, 70))
    assert 4 not in other  # it never got a job
    assert other[5] == (70, 160)


def test_an_element_that_the_journal_never_placed_runs_as_its_array_says() -> None:
    log = Log("h1")
    log.submit(0, 1, array="0-1", expected_us=30 * S)
    log.runs(0, 2)
    log.submit(9, 3, expected_us=5 * S)
    log.ends(10, 2)
    log.runs(10, 4)
    log.at(11)
    play = WhatIf(read(log.entries), Decider({"queue": "srsf"}, None))
    fates = times_s(play.play(log.entries))
    assert fates[2] == (0, 10)
    assert fates[3][0] == 10  # before the second element
    assert play.assumed


def test_a_journal_may_begin_with_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "START_EVERY_US", 8 * S)
    log = Log("h1")
    log.submit(0, 1, array="0-2", expected_us=60 * S)
    log.runs(0, 2)
    log.at(10)
    log.ends(20, 2)
    element(log, 20, 3, 5)
    element(log, 25, 4, 5)
    later = [i for i, (_, e) in enumerate(log.entries) if e.kind == "start"][1]
    log.entries = log.entries[later:]
    fates = {job: t for job, t in times_s(log.what_if()).items() if job > 1}
    assert fates == {2: (0, 20), 3: (20, 25), 4: (25, 30)}


@pytest.fixture(scope="module")
def worlds() -> dict[tuple[int, float], World]:
    made = {}
    for seed, faults in [(s, 0.0) for s in range(6)] + [(s, 1.0) for s in range(6)]:
        world = World(seed, hosts=5, jobs=25, faults=faults, journalled=FIFO, arrays=False)
        world.run()
        made[seed, faults] = world
    return made


@pytest.mark.parametrize("seed", seeds(8))
def test_worlds_with_arrays_and_failures_end_under_other_policies(seed: int) -> None:
    world = World(seed, hosts=5, jobs=25, faults=1.0, journalled=FIFO)
    world.run()
    entries = world.db.journal
    told = read(entries)
    assert any(story.element for story in told.jobs.values())
    play = WhatIf(told, Decider({"queue": "srsf", "placement": "zone"}, None))
    fates = play.play(entries)
    assert all(fate.state.final for fate in fates.values())
    state = play._cycle.state  # type: ignore[union-attr]
    assert not state.placed
    free = {n: f for n, f in state.free.items() if not f.strays}  # a lost host may be stopping what it ran
    assert {n: all_of(state.hosts[n]) for n in free} == free


def test_without_failures_the_model_tells_what_happened(worlds: Any) -> None:
    """Where many things happen at one instant their order may differ, but not on the whole."""
    exact = 0
    for seed in range(6):
        entries = worlds[seed, 0.0].db.journal
        told = read(entries)
        same = WhatIf(told, Decider({}, None)).play(entries)
        rows = replay_summary.rows(told, same, same)
        assert len(rows) == 25
        exact += all(
            (r.recorded.start_us, r.recorded.hosts) == (r.modelled.start_us, r.modelled.hosts) for r in rows
        )
        waits = [replay_summary.metrics(rows, which)["mean_wait_s"] for which in ("recorded", "modelled")]
        assert waits[1] == pytest.approx(waits[0], rel=0.1)
    assert exact >= 3


def test_with_failures_every_job_ends_and_every_host_is_free(worlds: Any) -> None:
    for seed in range(6):
        entries = worlds[seed, 1.0].db.journal
        play = WhatIf(read(entries), Decider({"queue": "srsf", "placement": "zone"}, None))
        fates = play.play(entries)
        assert all(fate.state.final for fate in fates.values()), seed
        assert len(fates) == 25
        state = play._cycle.state  # type: ignore[union-attr]
        assert not state.placed
        assert {n: all_of(h) for n, h in state.hosts.items()} == state.free


# -- the command ----------------------------------------------------------------------------------

Rmx = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rmx(capfd: pytest.CaptureFixture[str]) -> Rmx:
    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["sim", "replay", *words])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def database(tmp_path: Path) -> str:
    store = open_store(f"sqlite:///{tmp_path}/rm.sqlite3")
    store.acquire_lease("me", 0, 1)
    store.commit(Batch(events=tuple(e for _, e in three_jobs().entries)), 0)
    store.close()
    return f"{tmp_path}/rm.sqlite3"


def test_equal_decisions_are_said_and_different_ones_end_with_1(
    rmx: Rmx, database: str, tmp_path: Path
) -> None:
    code, out, err = rmx(database)
    assert (code, err) == (0, "")
    assert "11 steps with 11 events and 3 placements; starts: 1." in out
    assert out.endswith("Every decision is the same.\n")
    exported = tmp_path / "j.jsonl"
    assert rmx(database, "--export", str(exported))[:2] == (0, "")
    text = exported.read_text()
    assert '"name":"fifo"' in text
    exported.write_text(text.replace('"name":"fifo"', '"name":"srsf"'))
    code, out, _ = rmx(str(exported))
    assert code == 1
    assert "job 2 was placed on h1 then, and waits" in out
    assert "decided by rm of this test; this is rm" in out
    code, out, _ = rmx(str(exported), "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["version"]) == (1, False, 1)
    assert found["difference"]["what"].startswith("job 2 was placed on h1 then")


def test_what_if_is_told_in_a_table_and_as_json(rmx: Rmx, database: str, tmp_path: Path) -> None:
    code, out, _ = rmx(database, "--queue", "srsf", "--jobs")
    assert code == 0
    assert "What if:  queue srsf, placement first-fit, comm none." in out
    waits = next(line for line in out.splitlines() if line.startswith("mean_wait_s"))
    assert waits.split()[1:4] == ["83.33", "83.33", "70"]
    assert "1 start earlier, 1 later and 0 on other hosts" in out
    assert [line.split()[:5] for line in out.splitlines() if line.strip().startswith(("2 ", "3 "))] == [
        ["2", "job2", "100.0", "100.0", "111.0"],
        ["3", "job3", "150.0", "150.0", "99.0"],
    ]
    found = json.loads(rmx(database, "--queue", "srsf", "--json")[1])
    assert found["jobs"][2]["replayed"]["start_us"] == S + 101 * S
    assert found["policies"][0]["queue"]["name"] == "srsf"
    assert found["counts"]["compared"] == 3
    (tmp_path / "rm.toml").write_text('[policies]\nqueue = "srsf"\nplacement = "zone"\ncomm = "none"\n')
    from_file = json.loads(rmx(database, "--policies", str(tmp_path / "rm.toml"), "--json")[1])
    assert from_file["metrics"]["replayed"] == found["metrics"]["replayed"]
    assert from_file["policies"][0]["placement"]["options"]["w_loss"] == 2.0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nothing.db"], 2, "The journal nothing.db cannot be read: No such file"),
        (["--queue", "shortest", "DB"], 8, "There is no queue policy 'shortest'"),
        (["--since", "yesterweek", "DB"], 2, "--since is 'yesterweek'. Write 2026-11-14"),
        (["--export", "/nowhere/x", "DB"], 2, "/nowhere/x cannot be written"),
    ],
)
def test_mistakes_are_sentences(rmx: Rmx, database: str, words: list[str], code: int, sentence: str) -> None:
    found, out, err = rmx(*(database if word == "DB" else word for word in words))
    assert (found, out) == (code, "")
    assert sentence in err


def test_since_begins_at_the_last_start_before(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "START_EVERY_US", 60 * S)
    store = open_store(f"sqlite:///{tmp_path}/rm.sqlite3")
    store.acquire_lease("me", 0, 1)
    store.commit(Batch(events=tuple(e for _, e in three_jobs().entries)), 0)
    store.close()
    where = f"{tmp_path}/rm.sqlite3"
    for since, begins_us in (
        (None, S),
        ("1970-01-01T00:00:00+00:00", S),
        ("1970-01-01T00:02:00+00:00", 101 * S),
        ("0s", 163 * S),
    ):
        words = ["--since", since] if since else []
        assert json.loads(rmx(where, *words, "--json")[1])["from_us"] == begins_us
