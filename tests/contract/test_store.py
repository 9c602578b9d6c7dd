"""What every store must do, whatever it keeps its data in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm.adapters.store import sql as store_sql
from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.core.model.asked.array import SETS, Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.choice import Choice
from rm.core.model.host import Host, Zone
from rm.core.model.job import Job, JobState, Task
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import KeptLog, LogName
from rm.core.model.network.links import LinkStats
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.people.audit import Act
from rm.core.people.token import Token
from rm.core.sharing.ended import Ended, Heap, Sums
from rm.core.sharing.usage_query import Asked
from rm.core.store import START, STEP, Batch, Entry, Measured, StoredAction
from rm.errors import StoreError
from tests import builders
from tests.examples import examples


def test_every_field_of_every_value_comes_back(database: Any, store: Any) -> None:
    job = replace(builders.filled(Job), id=1, state=JobState.RUNNING, array_job=0, array_task=None)
    # sets of elements must be sets, no two may share an element, and all together are what was asked for
    sets = {name: str(n) for n, name in enumerate(SETS)}
    waits = replace(job.dependencies[0], tasks="1", undecided="2", met="3", lost="4")
    array = replace(job.array, **sets, held=sets["waiting"], admin_held=sets["waiting"])
    spec = replace(job.spec, array=f"0-{len(SETS) - 1}")
    job = replace(job, array=array, dependencies=(waits,), spec=spec)
    host, zone, stats = builders.filled(Host), builders.filled(Zone), builders.filled(LinkStats)
    assert job.spec.traffic.phases[0].rate_bps > 0
    measured = Measured("a", "b", stats)
    store.commit(Batch(jobs=(job,), hosts=(host,), zones=(zone,), measurements=(measured,)), 0)
    again = database.open()
    loaded = again.load()
    assert loaded.jobs == (job,)
    assert (loaded.hosts, loaded.zones, loaded.measurements) == ((host,), (zone,), (measured,))
    assert again.job(1) == job
    assert again.jobs() == [job]
    again.close()


def array_with(*tasks: int, ended_us: int | None = None, **changes: Any) -> tuple[Job, ...]:
    """The record of an array, and of some elements that have jobs of their own: 11, 12, ..."""
    whole = replace(builders.job(10, array="0-9"), array=Array(waiting="3-9", running="0-2"))
    if ended_us is not None:
        whole = replace(whole, state=JobState.COMPLETED, ended_us=ended_us)
    one = replace(whole, array=None, array_job=10, **changes)
    return whole, *(replace(one, id=11 + n, array_task=task) for n, task in enumerate(tasks))


def test_elements_of_an_array_have_its_specification(database: Any, store: Any) -> None:
    jobs = array_with(0, 2, 1)
    store.commit(Batch(jobs=jobs[:1]), 0)
    store.commit(Batch(jobs=jobs), 1)
    again = database.open()
    assert again.load().jobs == jobs
    assert [job.array_task for job in again.elements(10)] == [0, 1, 2]
    assert again.elements(10, (2,)) == [jobs[2]]
    assert again.elements(10, (7,)) == again.elements(11) == []


def test_what_was_changed_of_an_element_alone_comes_back(database: Any, store: Any) -> None:
    array, first, second = array_with(0, 1)
    own = JobUpdate(comment="mine", time_limit_us=0)
    second = replace(second, own=own, spec=own.applied(second.spec), updates=1)
    store.commit(Batch(jobs=(array, first, second)), 0)
    again = database.open()
    assert again.load().jobs == (array, first, second)
    assert again.elements(10) == [first, second]


def test_a_changed_specification_is_stored_and_its_elements_have_it(database: Any, store: Any) -> None:
    array, first, second = array_with(0, 1)
    single = builders.job(20)
    store.commit(Batch(jobs=(array, first, second, single)), 0)
    spec = replace(array.spec, comment="other", time_limit_us=None, hosts_only=("h1",))
    changed = [replace(one, spec=spec, updates=1) for one in (array, first, second)]
    again = replace(single, spec=replace(single.spec, name="renamed"), updates=2)
    store.commit(Batch(jobs=(*changed, again)), 1)
    kept = {job.id: job for job in database.open().load().jobs}
    assert [kept[one.id].spec for one in (array, first, second)] == [spec] * 3
    assert kept[20] == again
    assert [job.id for job in store.jobs(name="renamed")] == [20]


def test_an_array_is_kept_as_long_as_one_of_its_elements(database: Any, store: Any) -> None:
    array, first, second = array_with(0, 1, ended_us=50)
    store.commit(Batch(jobs=(array, first, replace(second, ended_us=70))), 0)
    assert store.prune(60) == 1
    assert [job.id for job in database.open().jobs()] == [10, 12]
    assert database.open().elements(10, (1,))[0].spec == array.spec
    assert store.prune(80) == 2
    assert store.jobs() == []


def test_a_script_comes_back_to_the_byte(database: Any, store: Any) -> None:
    plain = builders.job(1)
    script = "#!/bin/sh\r\n\x00\x01 '\"\\ \u2028\U0001f600" + "x" * 3_000_000
    job = replace(plain, spec=replace(plain.spec, script=script))
    store.commit(Batch(jobs=(job,)), 0)
    assert database.open().job(1) == job


def test_numbers_that_json_cannot_say_do_not_damage_a_job(database: Any, store: Any) -> None:
    reason = Reason(ReasonCode.BANDWIDTH, "too narrow", (("needed", float("inf")), ("free", float("nan"))))
    store.commit(Batch(jobs=(replace(builders.job(1), reason=reason),)), 0)
    numbers = dict(database.open().job(1).reason.numbers)
    assert str(numbers["needed"]) == "inf"
    assert str(numbers["free"]) == "nan"


def test_an_empty_store(database: Any) -> None:
    loaded = database.open().load()
    assert (loaded.version, loaded.next_job_id, loaded.next_action_id) == (0, 1, 1)
    assert (loaded.jobs, loaded.hosts, loaded.zones, loaded.actions, loaded.measurements) == ((),) * 5


def test_the_outbox_holds_what_has_no_outcome(database: Any, store: Any) -> None:
    actions = tuple(StoredAction(i, "launch", 7, 1, "a", {"tasks": [[0, None]], "n": 1.5}) for i in (3, 2, 9))
    store.commit(Batch(actions=actions), 0)
    store.commit(Batch(actions=(StoredAction(10, "stop"),), finished_actions=(3, 3, 10, 999)), 1)
    loaded = database.open().load()
    assert loaded.actions == (actions[1], actions[2])
    assert loaded.next_action_id == 11


def test_hosts_and_zones_keep_the_inventory_order(database: Any, store: Any) -> None:
    hosts = [builders.host(n, gpus=2, variables=(("rack", "7"),)) for n in ("zulu", "alpha", "mike")]
    store.commit(Batch(hosts=tuple(hosts), zones=(Zone("z2"), Zone("z1", 5))), 0)
    changed = replace(hosts[0], reason="moved", drained_by="bob: disk")
    store.commit(Batch(hosts=(changed,), zones=(Zone("z2", 9),)), 1)
    loaded = database.open().load()
    assert loaded.hosts == (changed, hosts[1], hosts[2])
    assert loaded.zones == (Zone("z2", 9), Zone("z1", 5))
    store.commit(Batch(removed_hosts=("zulu", "nobody"), hosts=(changed,), removed_zones=("z2",)), 2)
    loaded = database.open().load()
    assert loaded.hosts == (hosts[1], hosts[2], changed)
    assert loaded.zones == (Zone("z1", 5),)


def test_the_newest_measurement_counts_and_goes_with_its_host(database: Any, store: Any) -> None:
    old, new = LinkStats(0.5, 100, 10**9, 3, 1), LinkStats(None, 90, None, None, 2, failures=4)
    pairs = [("b", "a"), ("a", "b"), ("b", "c"), ("c", "d")]
    store.commit(Batch(measurements=tuple(Measured(*p, old) for p in pairs)), 0)
    store.commit(Batch(measurements=(Measured("a", "b", new), Measured("b", "a", new))), 1)
    expected = (
        *(Measured(*p, new) for p in (("a", "b"), ("b", "a"))),
        *(Measured(*p, old) for p in pairs[2:]),
    )
    assert database.open().load().measurements == expected
    store.commit(Batch(removed_hosts=("b",)), 2)
    assert database.open().load().measurements == (Measured("c", "d", old),)


def test_documents(database: Any, store: Any) -> None:
    store.commit(Batch(documents=(("b", {"x": [1, None]}), ("a", {}), ("gone", {}), ("gone", None))), 0)
    assert database.open().load().documents == (("a", {}), ("b", {"x": [1, None]}))
    store.commit(Batch(documents=(("b", {"x": 2}), ("a", None))), 1)
    assert database.open().load().documents == (("b", {"x": 2}),)


def test_the_journal_is_read_in_pages(store: Any) -> None:
    entries = [Entry(i, START if i % 4 == 1 else "tick", {"i": i}) for i in range(10)]
    store.commit(Batch(events=tuple(entries[:6])), 0)
    store.commit(Batch(events=tuple(entries[6:])), 1)
    read: list[tuple[int, Entry]] = []
    while page := store.journal(after=read[-1][0] if read else 0, limit=3):
        assert len(page) <= 3
        read += page
    assert [e for _, e in read] == entries
    assert [s for s, _ in read] == sorted({s for s, _ in read})
    assert store.journal_starts() == [(seq, e.at_us) for seq, e in read if e.kind == START]


def test_what_load_and_jobs_select(store: Any) -> None:
    ends = {2: (JobState.COMPLETED, 100), 3: (JobState.FAILED, 200), 5: (JobState.CANCELLED, 300)}
    jobs = {i: builders.job(i, user="bob" if i % 2 else "eve", name=f"n{i % 3}") for i in range(1, 8)}
    jobs |= {i: replace(jobs[i], state=s, ended_us=e) for i, (s, e) in ends.items()}
    store.commit(Batch(jobs=tuple(jobs.values())), 0)

    def ids(**query: Any) -> list[int]:
        return [j.id for j in store.jobs(**query)]

    assert [j.id for j in store.load().jobs] == [1, 4, 6, 7]
    assert [j.id for j in store.load(ended_after_us=200).jobs] == [1, 3, 4, 5, 6, 7]
    assert ids() == [1, 2, 3, 4, 5, 6, 7]
    assert ids(limit=2) == [6, 7]
    assert ids(limit=2, before_id=6) == [4, 5]
    assert ids(limit=0) == []
    assert ids(ended_after_us=300) == [1, 4, 5, 6, 7]
    assert ids(states=[JobState.FAILED, JobState.CANCELLED]) == [3, 5]
    assert ids(states=[]) == []
    assert ids(user="eve") == [2, 4, 6]
    assert ids(user="eve", name="n0", states=[JobState.PENDING]) == [6]
    assert store.job(99) is None


def test_an_array_is_found_by_what_was_cancelled_of_it_before_it_started(store: Any) -> None:
    failed = replace(builders.job(1), state=JobState.FAILED, ended_us=5)
    told = replace(failed, id=2, history=((5, 'named "dropped":"1"'),))
    arrays = [
        replace(failed, id=3 + at, spec=replace(failed.spec, array="0-3"), array=sets)
        for at, sets in enumerate((Array(failed="0-3"), Array(failed="0", dropped="1-3")))
    ]
    store.commit(Batch(jobs=(failed, told, *arrays)), 0)

    def ids(*states: JobState, by_rests: bool) -> list[int]:
        return [j.id for j in store.jobs(states=states, by_rests=by_rests)]

    assert ids(JobState.CANCELLED, by_rests=True) == [4]
    assert ids(JobState.CANCELLED, by_rests=False) == []
    assert ids(JobState.COMPLETED, by_rests=True) == []
    assert ids(JobState.FAILED, JobState.CANCELLED, by_rests=True) == [1, 2, 3, 4]


def test_load_has_ended_jobs_by_which_pending_ones_are_to_be_judged(store: Any) -> None:
    ended = {i: replace(builders.job(i), state=JobState.FAILED, ended_us=5) for i in range(1, 6)}
    asked = [Dependency("afterok", i, standing=s) for i, s in zip(range(1, 4), Standing, strict=True)]
    waits = replace(builders.job(7), dependencies=(*asked, Dependency("singleton")))
    over = replace(ended[5], id=8, dependencies=(Dependency("afterany", 4),))
    store.commit(Batch(jobs=(*ended.values(), waits, over)), 0)
    unfulfilled = [one.job for one in asked if one.standing is not Standing.FULFILLED]
    assert [j.id for j in store.load().jobs] == [*unfulfilled, waits.id]
    assert [j.id for j in store.load(ended_after_us=5).jobs] == [1, 2, 3, 4, 5, 7, 8]


def test_pruning_keeps_what_is_still_needed(database: Any, store: Any) -> None:
    def ended(id: int, at: int) -> Job:
        return replace(builders.job(id), state=JobState.COMPLETED, ended_us=at)

    jobs = (ended(1, 10), ended(2, 30), ended(3, 10), builders.job(4))
    store.commit(Batch(jobs=jobs, actions=(StoredAction(1, "discard", 3),)), 0)
    assert store.counts() == {JobState.COMPLETED: 3, JobState.PENDING: 1}
    assert store.prune(before_us=0, most=3) == 0
    assert store.prune(before_us=30) == 1
    assert [j.id for j in store.jobs()] == [2, 3, 4]
    assert database.open().load().next_job_id == 5
    with pytest.raises(StoreError):  # the id of a forgotten job is not free again
        store.commit(Batch(jobs=(ended(1, 40),)), 1)
    store.commit(Batch(jobs=(replace(jobs[1], exit_code=0),)), 1)


def test_of_each_users_ended_jobs_those_stay_that_weigh_so_much(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number alone, 100,000 jobs of one user with scripts of 4 MiB filled 400 GB of disk."""
    monkeypatch.setattr(store_sql, "PRUNE_CHUNK", 2)

    def ended(id: int, user: str, at_us: int, **fields: Any) -> Job:
        made = builders.job(id, user=user, script="#!/bin/sh\n#" + "🐎" * 25_000, **fields)
        return replace(made, state=JobState.CANCELLED, ended_us=at_us)

    array = replace(ended(4, "mallory", 15, array="0-1"), array=Array(cancelled="0-1"))
    element = replace(ended(5, "mallory", 40), spec=array.spec, array_job=4, array_task=0)
    mallorys = [ended(id, "mallory", 10 * id) for id in (1, 2, 3)]
    waits = builders.job(6, user="mallory", script="#!/bin/sh\n" + "#" * 100_000)
    store.commit(Batch(jobs=(*mallorys, array, element, waits, ended(7, "ann", 1))), 0)
    assert store.prune(before_us=0, most=9, most_bytes=1_000_000) == 0
    assert store.prune(before_us=0, most=9, most_bytes=250_000) == 3
    assert store.ids() == {2, 3, 6, 7}


@pytest.mark.parametrize(("most", "left"), [(9, [1, 2, 3, 4, 5]), (3, [1, 2, 3, 5]), (1, [3, 5]), (0, [5])])
def test_only_so_many_ended_jobs_are_kept(
    database: Any, store: Any, most: int, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_sql, "PRUNE_CHUNK", 2)
    ends_us = {1: 20, 2: 20, 3: 30, 4: 10}
    jobs = [replace(builders.job(id), state=JobState.FAILED, ended_us=at) for id, at in ends_us.items()]
    store.commit(Batch(jobs=(*jobs, builders.job(5))), 0)
    late = KeptLog(LogName(6, 1, 0, "out"), 1, 1)  # of a job that was forgotten before
    store.commit(Batch(logs=(late, KeptLog(LogName(5, 1, 0, "out"), 1, 1))), 1)
    assert store.prune(before_us=0, most=most) == 5 - len(left)
    assert store.ids() == set(left)
    assert [len(store.logs(job)) for job in (5, 6)] == [1, 0]


def test_a_pruned_journal_begins_with_a_start(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sql, "PRUNE_CHUNK", 2)
    kinds = ["submit", START, STEP, STEP, START, STEP, START, STEP]
    store.commit(Batch(events=tuple(Entry(10 * i, kind) for i, kind in enumerate(kinds))), 0)
    last = store.journal()[-1][0]
    assert store.prune_journal(before_us=9) == 0  # no start is so old
    assert store.prune_journal(before_us=40) == 4
    assert [e.at_us for _, e in store.journal()] == [40, 50, 60, 70]
    assert store.prune_journal(before_us=59) == 0
    assert store.prune_journal(before_us=10**6) == 2
    assert [e.at_us for _, e in store.journal()] == [60, 70]
    store.commit(Batch(events=(Entry(90, STEP),)), 1)
    assert store.journal()[-1][0] > last


@pytest.mark.parametrize(
    "bad",
    [
        Batch(jobs=(builders.job(5), builders.job(3))),
        Batch(jobs=(builders.job(5),), actions=(StoredAction(4, "stop"), StoredAction(4, "stop"))),
        Batch(jobs=(builders.job(5),), actions=(StoredAction(2, "stop"),)),
    ],
    ids=["job", "action-twice", "action"],
)
def test_a_refused_batch_leaves_no_trace(database: Any, store: Any, bad: Batch) -> None:
    """Ids that were given out, or skipped, are never used for something else."""
    store.commit(Batch(jobs=(builders.job(4),), actions=(StoredAction(3, "launch"),)), 0)
    before = store.load()
    bad = replace(bad, events=(Entry(1, "x"),), hosts=(builders.host("a"),), documents=(("d", {}),))
    with pytest.raises(StoreError):
        store.commit(bad, 1)
    assert database.open().load() == before
    assert store.journal() == []
    assert store.commit(Batch(jobs=(builders.job(5),)), 1) == 2


# ── the model ──

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
ints = st.integers(-(2**63), 2**63 - 1)
bodies = st.dictionaries(
    words,
    st.recursive(st.none() | st.booleans() | ints | words, lambda c: st.lists(c, max_size=2), max_leaves=4),
)
few = st.sampled_from("abc")
small = st.integers(1, 12)
stats = st.builds(LinkStats, st.none() | st.floats(0, 100), st.none() | ints, measured_at_us=small)


def a_job(id: int, state: JobState, ended_us: int | None, history: list[tuple[int, str]]) -> Job:
    """The specification never changes, so it follows from the id; the rest does."""
    job = builders.job(id, user="abc"[id % 3], name="abc"[id // 4 % 3], script=f"é {id}")
    job = replace(job, state=state, ended_us=ended_us, history=tuple(history))
    return replace(job, tasks=(Task(0, "h1"),)) if job.occupies else job  # without, its row counts as damaged


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=4).map(tuple)


states = st.sampled_from([*JobState])
jobs = st.builds(a_job, small, states, st.none() | small, st.lists(st.tuples(ints, words), max_size=2))
batches = st.builds(
    Batch,
    events=st.lists(st.builds(Entry, small, words | st.just(START), bodies), max_size=3).map(tuple),
    jobs=some(jobs),
    hosts=some(st.builds(builders.host, few, few, cpus=small)),
    removed_hosts=some(few),
    zones=some(st.builds(Zone, few, ints)),
    removed_zones=some(few),
    actions=some(st.builds(StoredAction, small, words, st.none() | small, small, st.none() | words, bodies)),
    finished_actions=some(small),
    measurements=some(st.builds(Measured, few, few, stats)),
    documents=some(st.tuples(few, st.none() | bodies)),
    choices=some(st.tuples(small, st.builds(Choice, small, words, st.just(()), small))),
    job_steps=some(st.builds(JobStep, st.builds(StepName, small, small, small), words, words, small)),
    logs=some(st.builds(KeptLog, st.builds(LogName, small, small, small, words), small, small, words)),
)
queries = st.fixed_dictionaries(
    {},
    optional={
        "states": st.lists(st.sampled_from([*JobState]), max_size=8),
        "user": few,
        "name": few,
        "ended_after_us": small,
        "limit": st.integers(0, 4),
        "before_id": small,
    },
)
prunes = st.tuples(st.sampled_from(["prune", "prune_journal"]), small)
steps = st.lists(batches | prunes | st.just("reopen") | queries, max_size=8)


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps, since=st.none() | small)
def test_any_history_ends_as_in_memory(
    make_durable: Callable[[], Any], steps: list[Any], since: int | None
) -> None:
    database = make_durable()
    store, version = database.open(), 0
    model = MemoryStore(MemoryDatabase(cluster=store.load().cluster))
    try:
        for s in (store, model):
            s.acquire_lease("me", 0, 1)
        for step in steps:
            if step == "reopen":
                store.close()
                store = database.open()
                store.acquire_lease("me", 0, 1)
            elif isinstance(step, dict):
                assert store.jobs(**step) == model.jobs(**step)
            elif isinstance(step, tuple):
                assert getattr(store, step[0])(step[1]) == getattr(model, step[0])(step[1])
            else:
                outcomes = []
                for s in (store, model):
                    try:
                        outcomes.append(s.commit(step, version))
                    except StoreError as e:
                        outcomes.append(e.what)
                assert outcomes[0] == outcomes[1]
                if isinstance(outcomes[0], int):
                    version = outcomes[0]
            assert store.load(since) == model.load(since)
        assert [store.logs(job) for job in range(4)] == [model.logs(job) for job in range(4)]
        for after in (None, StepName(1, 1, 1)):
            assert store.job_steps(range(4), after, 3) == model.job_steps(range(4), after, 3)
        assert [store.choice(job) for job in range(4)] == [model.choice(job) for job in range(4)]
        assert [e for _, e in store.journal(limit=100)] == [e for _, e in model.journal(limit=100)]
        assert [at_us for _, at_us in store.journal_starts()] == [
            at_us for _, at_us in model.journal_starts()
        ]
    finally:
        store.close()


def test_what_became_of_logs_comes_back_and_leaves_with_its_job(database: Any, store: Any) -> None:
    ended = replace(builders.job(1), state=JobState.COMPLETED, ended_us=5)
    name = LogName(1, 2, 3, "err")
    logs = (KeptLog(name, 10, 4, "cut"), KeptLog(LogName(1, 1, 0, "out"), why="lost"))
    store.commit(
        Batch(jobs=(ended, builders.job(2)), logs=(*logs, KeptLog(LogName(2, 1, 0, "out"), 1, 1))), 0
    )
    again = database.open()
    assert again.logs(1) == [logs[1], logs[0]]
    store.commit(Batch(logs=(KeptLog(name, 10, 10),)), 1)
    assert again.logs(1)[1] == KeptLog(name, 10, 10)
    assert store.prune(6) == 1
    assert again.logs(1) == []
    assert len(again.logs(2)) == 1
    again.close()


def test_steps_come_back_in_pages_and_leave_with_their_job(database: Any, store: Any) -> None:
    ended = replace(builders.job(1), state=JobState.COMPLETED, ended_us=5)
    runs = JobStep(StepName(1, 1, 0), "train.py", "h[1-2]", 2, 4, 8, 3)
    others = [JobStep(StepName(*name), "x") for name in ((1, 2, 10), (1, 2, 9), (2, 1, 0), (3, 1, 0))]
    store.commit(Batch(jobs=(ended, builders.job(2)), job_steps=(runs, *others)), 0)
    over = replace(runs, ended_us=4, code=3, signal=9, why="timeout", submit_line="srun train.py")
    store.commit(Batch(job_steps=(over,)), 1)
    again = database.open()
    found = again.job_steps([2, 1])
    assert found[0] == over
    assert [step.name for step in found[1:]] == [StepName(1, 2, 9), StepName(1, 2, 10), StepName(2, 1, 0)]
    assert again.job_steps([1, 2], StepName(1, 1, 0), 2) == found[1:3]
    assert again.job_steps([]) == []
    assert store.prune(6) == 1
    assert [step.name.job for step in again.job_steps([1, 2, 3])] == [2]
    again.close()


def test_how_a_job_was_placed_comes_back_and_leaves_with_it(database: Any, store: Any) -> None:
    choice = builders.filled(Choice)
    ended = replace(builders.job(1), state=JobState.COMPLETED, ended_us=5)
    store.commit(Batch(jobs=(ended, builders.job(2)), choices=((1, choice), (2, choice))), 0)
    again = database.open()
    assert again.choice(1) == choice
    store.commit(Batch(choices=((2, replace(choice, at_us=9)),)), 1)
    assert again.choice(2).at_us == 9
    assert again.choice(3) is None
    assert store.prune(6) == 1
    assert again.choice(1) is None
    assert again.choice(2) is not None
    again.close()


def test_tokens_and_acts_come_back_and_leave(database: Any, store: Any) -> None:
    token, act = builders.filled(Token), builders.filled(Act)
    store.commit(Batch(tokens=(replace(token, id="b"), replace(token, id="a")), acts=(act,)), 0)
    store.commit(Batch(tokens=(replace(token, id="a", revoked_us=9),), removed_tokens=("b", "none")), 1)
    again = database.open()
    assert again.load().tokens == (replace(token, id="a", revoked_us=9),)
    assert again.acts() == [(1, act)]
    again.close()


def test_the_audit_log_is_read_in_parts_and_its_numbers_are_not_used_again(database: Any, store: Any) -> None:
    acts = [replace(builders.filled(Act), at_us=i, user="ann" if i % 2 else "bob") for i in range(1, 9)]
    store.commit(Batch(acts=tuple(acts)), 0)
    assert [seq for seq, _ in store.acts(after=2, limit=3)] == [3, 4, 5]
    assert [act.at_us for _, act in store.acts(since_us=4, user="bob")] == [4, 6, 8]
    assert store.prune_acts(9) == 8
    assert store.prune_acts(9) == 0
    store.commit(Batch(acts=(acts[0],)), 1)
    assert [seq for seq, _ in database.open().acts()] == [9]


DAY_US, HOUR_US = 86_400_000_000, 3_600_000_000


def ended(at_us: int, user: str = "ann", host: str = "h1", **sums: int) -> Ended:
    return Ended(at_us, "physics", user, "", "main", host, Sums(jobs=1), Sums(**sums))


def test_what_ended_is_added_up_by_hour_and_by_day_for_ever_growing(database: Any, store: Any) -> None:
    store.commit(Batch(ended=(ended(5, cpu_us=7), ended(6, "bob", cpu_us=1))), 0)
    store.commit(Batch(ended=(ended(DAY_US + HOUR_US, host="h2", cpu_us=10, read_bytes=3),)), 1)
    every = Asked(("user",), 0, 2 * DAY_US)
    expected = [
        (Heap(0, 0, user="ann"), Sums(jobs=2, cpu_us=17, read_bytes=3)),
        (Heap(0, 0, user="bob"), Sums(jobs=1, cpu_us=1)),
    ]
    assert store.usage(every) == expected
    assert database.open().usage(every) == expected
    assert store.usage(replace(every, by=("account", "partition"))) == [
        (Heap(0, 0, "physics", partition="main"), Sums(jobs=3, cpu_us=18, read_bytes=3))
    ]
    assert store.usage(replace(every, by=("host",))) == [
        (Heap(0, 0, host="h1"), Sums(jobs=2, cpu_us=8)),
        (Heap(0, 0, host="h2"), Sums(jobs=1, cpu_us=10, read_bytes=3)),
    ]
    assert store.usage(replace(every, by=("day", "user"), only=(("user", "ann"),))) == [
        (Heap(0, 0, user="ann"), Sums(jobs=1, cpu_us=7)),
        (Heap(0, DAY_US, user="ann"), Sums(jobs=1, cpu_us=10, read_bytes=3)),
    ]
    # one hour of a day, and nothing
    assert store.usage(Asked(("user",), DAY_US + HOUR_US, DAY_US + 2 * HOUR_US))[0][1].cpu_us == 10
    assert store.usage(Asked(("user",), DAY_US, DAY_US + HOUR_US)) == []
    # all in one line
    assert [sums.jobs for _, sums in store.usage(replace(every, by=("day",)))] == [2, 1]


def test_old_sums_of_hours_go_before_those_of_days(store: Any) -> None:
    store.commit(Batch(ended=(ended(5), ended(3 * DAY_US + 5))), 0)
    assert store.prune_usage(2 * DAY_US, 0) == 2  # of the user's and of the host's first hour
    assert store.usage(Asked(("user",), 0, 2 * HOUR_US)) == []
    assert [sums.jobs for _, sums in store.usage(Asked(("user",), 0, 4 * DAY_US))] == [2]
    assert store.prune_usage(2 * DAY_US, DAY_US) == 2
    assert [sums.jobs for _, sums in store.usage(Asked(("user",), 0, 4 * DAY_US))] == [1]


def test_no_number_that_a_host_tells_keeps_others_from_being_added_up(store: Any) -> None:
    most = 1 << 53
    lies = tuple(ended(5, read_bytes=most, cpu_busy_us=most) for _ in range(1_500))
    for version in range(3):
        store.commit(Batch(ended=(*lies, ended(DAY_US + 5, "bob", read_bytes=most))), version)
    (_, ann), (_, bob) = store.usage(Asked(("user",), 0, 2 * DAY_US))
    assert ann.jobs == 4_500
    assert ann.read_bytes >= 1 << 61
    assert bob.read_bytes == 3 * most
