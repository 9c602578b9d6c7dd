"""No request holds the leader for long: it makes many changes in parts, and thinks beside it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import turns
from rm.adapters.store.memory import MemoryStore
from rm.core.jobs import events as ev
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec, JobState
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Tuning
from rm.core.store import Batch
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import TURN_WEIGHT, Leader
from rm.daemon.services import job_submissions
from rm.daemon.services.backlog import Backlog, Load, loads_of
from rm.daemon.services.host_service import HOSTS_AT_ONCE
from rm.daemon.services.job_reading import SLICE
from rm.errors import Conflict
from tests import builders
from tests.fakes import PATIENCE_S, ManualClock
from tests.unit.test_service import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.leader.stop()


def commits(house: House, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """What is committed from now on."""
    made: list[Batch] = []
    commit = house.store.commit

    def noted(batch: Batch, version: int) -> int:
        made.append(batch)
        return commit(batch, version)

    monkeypatch.setattr(house.store, "commit", noted)
    return made


def submit(house: House, specs: Sequence[JobSpec], key: str = "") -> list[int]:
    return list(asyncio.run(house.service.submissions.submit(specs, key)))


def test_many_jobs_are_submitted_in_parts_and_acknowledged_when_all_are_durable(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commits(house, monkeypatch)
    ids = submit(house, [builders.spec(name=f"j{i}", hold=True) for i in range(1_234)])
    assert ids == list(range(1, 1_235))
    assert [len(batch.jobs) for batch in made if batch.jobs] == [SLICE] * 6 + [34]
    assert len(house.store.jobs()) == 1_234


@pytest.mark.parametrize(
    ("spec", "at_once"),
    [
        ({"array": ",".join(map(str, range(0, 30_000, 3)))}, 1),
        ({"array": "0-99999"}, SLICE),
        ({"script": "#!/bin/sh\n" + "#" * 1_000_000}, 3),
        ({"dependency": "afterany:" + ":".join(map(str, range(1, 201)))}, 15),
    ],
)
def test_fewer_jobs_of_long_lists_or_scripts_make_a_part(
    house: House, monkeypatch: pytest.MonkeyPatch, spec: dict[str, str], at_once: int
) -> None:
    submit(house, [builders.spec(hold=True)] * SLICE)
    made = commits(house, monkeypatch)
    submit(house, [builders.spec(hold=True, **spec)] * 20)
    assert max(len(batch.jobs) for batch in made) == min(20, at_once)
    assert sum(len(batch.jobs) for batch in made) == 20


def test_others_have_their_turn_between_the_parts(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is held in its first part while somebody else asks; who is then served before the third."""
    made = commits(house, monkeypatch)
    asked = threading.Event()
    apply = house.cycle.step

    def step(events: Any, now_us: int) -> Any:
        if len(events) > 1:
            assert asked.wait(PATIENCE_S)
        return apply(events, now_us)

    monkeypatch.setattr(Cycle, "step", lambda self, events, now_us: step(events, now_us))
    big = threading.Thread(target=submit, args=(house, [builders.spec(hold=True)] * 2_000))
    big.start()
    small = house.leader.request(lambda state: [ev.JobSubmitted(10_000, builders.spec(name="small"))])
    asked.set()
    small.result(PATIENCE_S)
    big.join(PATIENCE_S)
    names = [{job.spec.name for job in batch.jobs} for batch in made]
    assert {"small"} & set().union(*names[:3])
    assert all(len(batch.jobs) <= 2 * TURN_WEIGHT for batch in made)


def test_a_turn_takes_no_more_than_it_should(house: House) -> None:
    cycle, clock = house.cycle, ManualClock()
    nobody: Any = None  # takes anything out
    inbox = Leader(inbox=Inbox(), cycle=cycle, store=MemoryStore(), version=0, clock=clock, executor=nobody)
    for _ in range(3):
        inbox.request(lambda state: [], weight=TURN_WEIGHT)
    for _ in range(2 * TURN_WEIGHT):
        inbox.post(ev.Tick())
    sizes = []
    while inbox.is_busy():
        clock.us += 1_000_000
        sizes.append(len(inbox._gather()))
    assert sizes[:3] == [1, 1, 1]
    assert max(sizes) <= TURN_WEIGHT


def test_a_part_that_is_there_already_is_not_submitted_again(house: House) -> None:
    """A daemon that ended between two parts; the client sends the same with the same key."""
    specs = [builders.spec(name=f"j{i}", hold=True) for i in range(1_100)]
    first = submit(house, specs[:600], "k")
    assert submit(house, specs, "k") == [*first, *range(601, 1_101)]
    assert submit(house, specs, "k") == list(range(1, 1_101))
    with pytest.raises(Conflict, match="idempotency key"):
        submit(house, specs[:5], "k")
    assert len(house.store.jobs()) == 1_100


def test_a_part_that_failed_by_somebody_elses_fault_is_made_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is taken apart and made again from the last commit: no job is lost or doubled."""
    step, failed = Cycle.step, []

    def once(self: Cycle, events: Any, now_us: int) -> Any:
        if len(events) > 1 and not failed:
            failed.append(1)
            step(self, events, now_us)
            raise RuntimeError("somebody else's defect")
        return step(self, events, now_us)

    monkeypatch.setattr(Cycle, "step", once)
    specs = [builders.spec(name=f"j{i}", hold=True) for i in range(700)]
    ids = submit(house, specs, "k")
    assert [job.spec.name for job in house.store.jobs()] == [spec.name for spec in specs]
    assert ids == [job.id for job in house.store.jobs()]
    assert submit(house, specs, "k") == ids


def test_a_user_has_a_bounded_number_of_jobs_waiting(tmp_path: Path) -> None:
    house = House(tmp_path, pending_jobs=1_000)
    mine = [builders.spec(hold=True)] * 600
    submit(house, mine)
    for specs in (mine, [builders.spec(hold=True)] * 401):
        with pytest.raises(Conflict, match=r"alice has 600 jobs waiting.*over 1000"):
            submit(house, specs)
    submit(house, [builders.spec(user="bob", hold=True)] * 1_000)
    submit(house, mine[:400])
    asyncio.run(house.service.changes.cancel_all(range(1, 101), "alice"))
    submit(house, mine[:100])
    with pytest.raises(Conflict):
        submit(house, mine[:1])
    house.leader.stop()


def test_a_change_makes_no_more_wait_than_a_submission_may(tmp_path: Path) -> None:
    house = House(tmp_path, pending_jobs=5, pending_bytes=20_000)
    (array,) = submit(house, [builders.spec(hold=True, array="0-9")])
    (job,) = submit(house, [builders.spec(hold=True)])

    def change(job: int, tasks: str = "", **fields: Any) -> None:
        update = JobUpdate(**fields)
        asyncio.run(house.service.changes.update(job, "alice", update, lambda user: True, False, tasks))

    change(array, "0-2", name="own")  # they are jobs of their own from here on
    with pytest.raises(Conflict, match=r"alice has 5 jobs waiting, and with 2 more would have over 5"):
        change(array, "3-4", name="own")
    change(array, "0-2", name="again")
    for _ in range(2):
        change(job, comment="x" * 4_000)  # the second is no growth
    change(array, "0", comment="x" * 4_000)
    change(array, "1", comment="x" * 4_000)
    with pytest.raises(Conflict, match=r"alice would have over 20000 bytes"):
        change(array, comment="x" * 4_000)
    assert all(job.spec.comment == "" for job in house.store.jobs() if job.id == array)
    change(job, comment="")
    house.leader.stop()


def test_what_waits_of_a_user_asks_for_a_bounded_number_of_things(tmp_path: Path) -> None:
    """The leader looks at each of them again whenever something comes free."""
    house = House(tmp_path, pending_demands=3)
    different = [builders.spec(hold=True, mem_bytes_per_task=1 + i) for i in range(5)]

    def change(job: int, memory: int) -> None:
        update = JobUpdate(mem_bytes_per_task=memory)
        asyncio.run(house.service.changes.update(job, "alice", update, lambda user: True, False))

    with pytest.raises(Conflict, match=r"alice would ask for more than 3 different things"):
        submit(house, different)  # nor all at once, while nothing waits
    submit(house, different[:3] * 2)
    for refused in (lambda: submit(house, different[3:]), lambda: change(1, 4)):
        with pytest.raises(Conflict, match=r"alice would ask for more than 3 different things"):
            refused()
    submit(house, different[:1])
    submit(house, [builders.spec(user="bob", hold=True, mem_bytes_per_task=7)])
    asyncio.run(house.service.changes.cancel_all([3], "alice"))
    change(6, 1)  # nobody asks for 3 bytes any more
    change(1, 4)
    with pytest.raises(Conflict):
        change(2, 5)
    house.leader.stop()


def test_a_change_counts_each_thing_that_is_asked_for_before_and_after_it(tmp_path: Path) -> None:
    """Elements of an array may ask for different things. One for which nobody asks any more leaves room."""
    house = House(tmp_path, pending_demands=4)

    def change(job: int, tasks: str = "", **fields: Any) -> None:
        update = JobUpdate(**fields)
        asyncio.run(house.service.changes.update(job, "alice", update, lambda user: True, False, tasks))

    array, first, _ = submit(
        house,
        [
            builders.spec(hold=True, array="0-2", mem_bytes_per_task=1),
            *(builders.spec(hold=True, mem_bytes_per_task=m) for m in (2, 3)),
        ],
    )
    change(array, "1", mem_bytes_per_task=2)
    change(array, "2", mem_bytes_per_task=3)
    with pytest.raises(Conflict, match=r"alice would ask for more than 4 different things"):
        change(array, cpus_per_task=2)  # three things more, and one less
    change(array, cpus_per_task=2, mem_bytes_per_task=4)  # one more, and one less
    (last,) = submit(house, [builders.spec(hold=True, mem_bytes_per_task=5)])
    change(last, mem_bytes_per_task=6)
    with pytest.raises(Conflict):
        submit(house, [builders.spec(hold=True, mem_bytes_per_task=5)])
    change(first, mem_bytes_per_task=7)
    house.leader.stop()


def test_what_is_measured_of_a_job_is_among_what_it_asks_for() -> None:
    """So are hosts that it avoids. A pass looks for hosts for each of such jobs that were requeued."""
    other = [builders.spec(mem_bytes_per_task=1)]
    backlog = Backlog(10, 1_000_000, 2)
    plain, known = builders.job(1), builders.job(2)
    backlog.changed([plain, known])
    backlog.release(backlog.admit(other))
    known = replace(known, traffic=builders.profile(90, (0, 40, 500)))
    for again in (known, replace(known, avoid=("h1",))):
        backlog.changed([again])
        with pytest.raises(Conflict, match=r"more than 2 different things .* traffic"):
            backlog.admit(other)
    backlog.changed([replace(again, state=JobState.CANCELLED)])
    backlog.admit(other)


def test_a_requeue_makes_no_more_wait_than_a_submission_may(tmp_path: Path) -> None:
    """What has ended counts no more, and could else be let wait again beside as much as may."""
    house = House(tmp_path, pending_jobs=3, pending_demands=2)
    changes = house.service.changes

    def requeue(job: int) -> None:
        asyncio.run(changes.requeue(job, "alice"))

    def ended(*specs: JobSpec) -> list[int]:
        ids = submit(house, specs)
        asyncio.run(changes.cancel_all(ids, "alice"))
        return ids

    first, second = ended(*(builders.spec(hold=True, mem_bytes_per_task=1 + i) for i in range(2)))
    third, like_it = ended(*[builders.spec(hold=True, mem_bytes_per_task=3)] * 2)
    (array,) = submit(house, [builders.spec(hold=True, array="0-1", mem_bytes_per_task=3)])
    update = JobUpdate(name="own")
    asyncio.run(changes.update(array, "alice", update, lambda user: True, False, "0-1"))
    asyncio.run(changes.cancel_all([array], "alice"))
    requeue(first)
    requeue(third)
    with pytest.raises(Conflict, match=r"alice would ask for more than 2 different things"):
        requeue(second)
    with pytest.raises(Conflict, match=r"alice has 2 jobs waiting, and with 3 more would have over 3"):
        requeue(array)  # its elements have jobs of their own
    requeue(like_it)
    with pytest.raises(Conflict, match=r"alice has 3 jobs waiting, and with 1 more would have over 3"):
        submit(house, [builders.spec(hold=True)])
    house.leader.stop()


def in_one_turn(house: House, monkeypatch: pytest.MonkeyPatch, *asked: Any) -> list[Any]:
    """The requests' outcomes, which the leader finds in its inbox together."""
    request, stands, gate = house.leader.request, threading.Event(), threading.Event()
    waiting: list[tuple[Future[Any], Any]] = []

    def stand(cycle: Cycle, now_us: int) -> None:
        stands.set()
        gate.wait(PATIENCE_S)

    def answer(to: Future[Any], done: Future[Any]) -> None:
        failed = done.exception()
        to.set_result(done.result()) if failed is None else to.set_exception(failed)

    def held(*given: Any, **named: Any) -> Future[Any]:
        waiting.append((Future(), partial(request, *given, **named)))
        if len(waiting) == len(asked):  # what they asked before is answered
            house.leader.ask(stand)
            stands.wait(PATIENCE_S)
            for to, enter in waiting:
                enter().add_done_callback(partial(answer, to))
            gate.set()
        return waiting[-1][0]

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*asked, return_exceptions=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.leader, "request", held)
        return asyncio.run(all_of_them())


def test_what_waits_in_one_turn_to_be_more_is_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of it has taken effect when the next request is looked at."""
    house = House(tmp_path, pending_jobs=2)
    changes = house.service.changes
    ids = submit(house, [builders.spec(hold=True)] * 2)
    asyncio.run(changes.cancel_all(ids, "alice"))
    (third,) = submit(house, [builders.spec(hold=True)])
    outcomes = in_one_turn(house, monkeypatch, *(changes.requeue(job, "alice") for job in ids))
    refused = [one.what for one in outcomes if isinstance(one, Conflict)]
    assert refused == ["alice has 2 jobs waiting, and with 1 more would have over 2."]
    asyncio.run(changes.cancel_all([third], "alice"))  # what was granted counts once
    assert len(submit(house, [builders.spec(hold=True)])) == 1
    house.leader.stop()


def test_a_change_after_which_no_more_waits_stops_no_later_submission(house: House) -> None:
    """The last job of its user has gone when the next turn looks at what the change was granted."""
    changes = house.service.changes
    for nice in (1, 2):
        (job,) = submit(house, [builders.spec(hold=True)])
        update = JobUpdate(nice=nice)
        asyncio.run(changes.update(job, "alice", update, lambda user: True, False))
        asyncio.run(changes.cancel_all([job], "alice"))
    (his,) = submit(house, [builders.spec(user="bob", hold=True)])
    asyncio.run(changes.update(his, "bob", update, lambda user: True, False))
    assert house.store.jobs()[-1].spec.nice == 2


def test_what_a_turn_grants_counts_no_more_when_it_is_over() -> None:
    backlog, specs = Backlog(2, 1_000_000, 10), [builders.spec(), builders.spec(mem_bytes_per_task=2)]
    for turn in ("one", "another"):
        backlog.during(turn).grow(loads_of(specs))
        with pytest.raises(Conflict):
            backlog.during(turn).grow(loads_of(specs[:1]))
    more = Load(0, 500, Counter([specs[0].demand]))
    backlog.during("a third").grow({"alice": more})  # a change; its job ends in the same turn
    backlog.changed([builders.job(1)])
    backlog.changed([builders.job(1, state=JobState.CANCELLED)])
    room = backlog.during("a fourth").admit(specs)
    backlog.release(room)
    assert not backlog.during("a fifth")._loads


def test_a_submission_reads_nothing_of_what_waits_already() -> None:
    """A user's waiting jobs may name millions of hosts together."""
    read = 0

    class Name(str):
        def __hash__(self) -> int:
            nonlocal read
            read += 1
            return super().__hash__()

    backlog = Backlog(10, 1_000, 10)
    backlog.admit([builders.spec(hosts_excluded=(Name("h1"),))])
    read = 0
    backlog.admit([builders.spec()])
    assert read == 0


def test_what_waits_of_a_user_has_a_bounded_size() -> None:
    backlog = Backlog(10, 1_000, 10)
    large = builders.spec(script="#!/bin/sh\n" + "x" * 590)
    room = backlog.admit([large])
    with pytest.raises(Conflict, match="over 1000 bytes"):
        backlog.admit([large])
    backlog.release(room)
    room = backlog.admit([large])
    backlog.changed([builders.job(1, script=large.script)])
    backlog.release(room)
    with pytest.raises(Conflict):
        backlog.admit([large])
    for state in (JobState.PENDING, JobState.CONFIGURING, JobState.COMPLETED):
        backlog.changed([builders.job(1, state=state, script=large.script)])
    backlog.admit([large])
    backlog.admit([builders.spec(user="bob", script=large.script)])


@pytest.mark.parametrize(
    "listed",
    [
        {"hosts_only": ("a",) * 20},
        {"hosts_excluded": ("a",) * 20},
        {"dependency": "afterany" + ":7" * 5},
        {"traffic": TrafficProfile(1_000, (Phase(0, 1, 1),) * 10)},
        {"chdir": "/" + "a" * 1_200},
        {"output": "/" + "a" * 1_200},
        {"comment": "a" * 1_200},
        {"array": "1,3,5,7,9,11,13,15,17"},
    ],
    ids=lambda listed: str(next(iter(listed))),
)
def test_whatever_a_waiting_job_lists_weighs(listed: dict[str, Any]) -> None:
    """A user could have filled the daemon's memory by long lists of hosts or of dependencies."""
    backlog = Backlog(10, 2_000, 10)
    backlog.admit([builders.spec(**listed)])
    with pytest.raises(Conflict, match="over 2000 bytes"):
        backlog.admit([builders.spec(**listed)])


def test_many_jobs_are_cancelled_by_one_request(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = submit(house, [builders.spec(hold=True)] * 6 * SLICE)
    made = commits(house, monkeypatch)
    done = asyncio.run(house.service.changes.cancel_all(ids, "alice"))
    assert {job.state for job in done} == {JobState.CANCELLED}
    assert [len(batch.jobs) for batch in made if batch.jobs] == [SLICE] * 6
    assert asyncio.run(house.service.changes.cancel_all(ids, "alice"))[0].state is JobState.CANCELLED


def test_a_long_cancellation_answers_for_jobs_that_left_the_memory(house: House) -> None:
    """5,998 jobs were cancelled, and "2001 jobs are CANCELLED" was answered."""
    ids = submit(house, [builders.spec(hold=True)] * 6_000)
    done = asyncio.run(house.service.changes.cancel_all(ids, "alice"))
    assert [job.id for job in done] == ids
    assert {job.state for job in done} == {JobState.CANCELLED}


def test_the_leader_goes_on_while_a_question_is_thought_about(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.do(ev.HostAdded(builders.host("h1")))
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return None, [], []

    monkeypatch.setattr(job_submissions, "explain", slow)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(asyncio.run(house.service.submissions.plan(builders.spec())))
    )
    asking.start()
    assert begun.wait(PATIENCE_S)
    house.do(ev.JobSubmitted(1, builders.spec()))  # it is done while the question is open
    go_on.set()
    asking.join(PATIENCE_S)
    assert answers[0]["placement"] is None


def test_jobs_that_can_all_start_are_placed_a_few_in_each_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=8)))
    house.cycle.tuning = Tuning(placements=2)
    made = commits(house, monkeypatch)
    ids = submit(house, [builders.spec()] * 7)
    for _ in range(4):  # nothing but the clock asks for the turns to come; here each question is one, too
        left = house.leader.ask(lambda cycle, now_us: len(cycle.state.pending)).result(PATIENCE_S)
    assert left == 0
    launched = [[a.job for a in batch.actions if a.kind == "launch"] for batch in made]
    assert [jobs for jobs in launched if jobs] == [ids[:2], ids[2:4], ids[4:6], ids[6:]]


def test_an_inventory_is_taken_in_parts(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made = commits(house, monkeypatch)
    hosts = [builders.host(f"h{i}") for i in range(HOSTS_AT_ONCE + 1)]
    assert len(asyncio.run(house.service.host_service.add_hosts(hosts, "root"))) == len(hosts)
    assert [len(batch.hosts) for batch in made if batch.hosts] == [HOSTS_AT_ONCE, 1]


def test_hosts_are_listed_by_name_also_one_that_was_added_again(house: House) -> None:
    for name in ("h10", "h9", "h1"):
        house.do(ev.HostAdded(builders.host(name)))
    house.do(ev.HostRemoved("h9", "root"))
    house.do(ev.HostAdded(builders.host("h9")))
    listed = asyncio.run(house.service.host_service.hosts())
    assert [host.name for host, _, _ in listed] == ["h1", "h9", "h10"]


def test_the_benchmark_of_turns_measures_the_leader(tmp_path: Path) -> None:
    """It puts the daemon's parts together by itself, which nothing else checks."""
    made = turns.House(tmp_path)
    try:
        work = made.service.submissions.submit(turns.specs(3, hold=True))
        assert asyncio.run(made.longest_ms(work)) > 0
        assert len(made.store.load().jobs) == 3
    finally:
        made.close()
