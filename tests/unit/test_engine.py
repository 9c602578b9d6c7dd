"""One pass: which jobs start, where, and the reason for every one that does not."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState, Placement
from rm.core.model.network.alignment import Alignment, LinkAlignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import Link
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free, PlacedJob, Snapshot, TrackedDict
from rm.core.ports import Candidate, Proposal
from rm.core.registry import load
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide, tries_of
from rm.core.scheduling.explaining import explain, never_fits
from rm.core.scheduling.neighbours import Neighbourhood
from rm.units import MINUTE_US, SECOND_US
from tests import builders

TRAFFIC = builders.profile(100, (0, 40, 500))


class Fixed:
    """Offers these placements, best first, and counts how many were looked at."""

    name = "fixed"

    def __init__(self, *placements: Placement) -> None:
        self.placements, self.taken, self.calls = placements, 0, 0

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        self.calls += 1

        def each() -> Iterator[Candidate]:
            for placement in self.placements:
                if not set(placement.hosts) & set(request.demand.shape.hosts_excluded):
                    self.taken += 1
                    yield Candidate(placement)

        refusal = Reason(ReasonCode.RESOURCES, "no host can take a task")
        return Proposal(each(), [] if self.placements else [refusal])


class ByHost:
    """The score of an alignment is that of the worst host on which jobs meet."""

    name = "by-host"

    def __init__(self, **scores: float) -> None:
        self.scores, self.calls = scores, 0

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        self.calls += 1
        newest = max(placed, key=lambda p: p.sequence)
        links = tuple(
            LinkAlignment(h, self.scores.get(h, 100.0), 100_000, tuple(p.job for p in placed))
            for h in newest.placement.hosts
        )
        return Alignment(min(link.score for link in links), links)


class Rejecting(ByHost):
    """Rejects every placement on one of these hosts."""

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self.hosts = set(hosts)

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        answer = super().align(placed, snapshot, offline)
        bad = sorted(self.hosts & {link.link for link in answer.links})
        if not bad:
            return answer
        reason = Reason(ReasonCode.DEPENDENCY_LOOP, f"closes a loop at {bad[0]}", (("jobs", 3),))
        return replace(answer, rejected=reason)


def cluster(*names: str) -> Snapshot:
    """Hosts with one communicating job over all of them."""
    hosts = [builders.host(n) for n in names]
    return builders.snapshot(*hosts, placed=[builders.placed(9, *names, traffic=TRAFFIC)])


def policies(placement: Fixed, comm: ByHost) -> Policies:
    return Policies(load("queue", "fifo"), placement, comm)


def talker(id: int = 1, **fields: object) -> Job:
    return builders.job(id, ntasks=2, traffic=TRAFFIC, **fields)


PAIRS = [builders.placement("a", "b"), builders.placement("c", "d"), builders.placement("e", "f")]
ABCDEF = cluster(*"abcdef")


def test_the_best_aligned_of_the_first_candidates_is_taken() -> None:
    offered = Fixed(*PAIRS)
    chosen = policies(offered, ByHost(a=50, c=80, e=90))
    for top_k, best in ((1, PAIRS[0]), (2, PAIRS[1]), (3, PAIRS[2])):
        result = decide([talker()], cluster(*"abcdef"), chosen, Tuning(top_k), Blocked())
        assert [d.placement for d in result.decisions] == [best]


def test_a_perfect_candidate_ends_the_search_and_equals_keep_their_order() -> None:
    offered = Fixed(*PAIRS)
    result = decide([talker()], ABCDEF, policies(offered, ByHost(a=50)), Tuning(top_k=3), Blocked())
    assert (result.decisions[0].placement, offered.taken) == (PAIRS[1], 2)
    alike = policies(Fixed(*PAIRS), ByHost(a=50, c=50, e=50))
    result = decide([talker()], cluster(*"abcdef"), alike, Tuning(), Blocked())
    assert result.decisions[0].placement == PAIRS[0]


def test_a_score_below_the_least_keeps_the_job_waiting_with_the_link_and_its_number() -> None:
    blocked = Blocked()
    chosen = policies(Fixed(PAIRS[0]), ByHost(a=90, b=60))
    result = decide([talker()], cluster("a", "b"), chosen, Tuning(min_score=70), blocked)
    assert result.decisions == []
    reason = blocked.reason_of(talker())
    assert reason is not None
    assert (reason.code, dict(reason.numbers)) == (ReasonCode.CONTENTION, {"score": 60, "min_score": 70})
    assert "link b" in reason.message


def test_a_patient_job_keeps_no_like_one_from_starting_that_does_not_wait() -> None:
    there = replace(builders.job(9, traffic=TRAFFIC, expected_us=20 * MINUTE_US), started_us=0)
    snapshot = replace(cluster("a", "b"), jobs={9: there}, now_us=0)
    blocked, chosen = Blocked(), policies(Fixed(PAIRS[0]), ByHost(a=80.0))
    waits, starts = talker(expected_us=100 * MINUTE_US), talker(2)
    assert waits.demand == starts.demand
    result = decide([waits, starts], snapshot, chosen, Tuning(patience=1.0), blocked)
    assert [decision.job for decision in result.decisions] == [2]
    assert (blocked.reason_of(waits) is None, blocked.reason_of(starts)) == (False, None)


def test_a_patient_job_is_looked_at_again_though_another_of_its_partitions_is_full() -> None:
    class Full(Fixed):
        """No host of the first partition takes a task."""

        def candidates(
            self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False
        ) -> Proposal:
            of = self if request.demand.shape.partitions == ("free",) else Fixed()
            return Fixed.candidates(of, request, snapshot, explain)

    there = replace(builders.job(9, traffic=TRAFFIC, expected_us=20 * MINUTE_US), started_us=0)
    snapshot = replace(cluster("a", "b"), jobs={9: there}, now_us=0)
    blocked, waits = Blocked(), talker(partition="full,free", expected_us=100 * MINUTE_US)
    decide([waits], snapshot, policies(Full(PAIRS[0]), ByHost(a=80.0)), Tuning(patience=1.0), blocked)
    assert blocked.again_us() == {waits.id: 20 * MINUTE_US}


def test_a_job_that_is_overdue_is_not_looked_at_all_the_time() -> None:
    waits = meeting(score=80, runs_us=100 * MINUTE_US, other_us=1)
    assert waits is not None
    assert dict(waits.numbers)["until_us"] == SECOND_US


def test_where_a_patient_job_could_be_placed_does_not_depend_on_whom_it_waits_for() -> None:
    there = replace(builders.job(9, traffic=TRAFFIC, expected_us=MINUTE_US), started_us=0)
    snapshot = replace(cluster("a", "b"), jobs={9: there}, now_us=0)
    tries = tries_of(policies(Fixed(PAIRS[0]), ByHost(a=80.0)), Tuning(patience=1.0))
    assert tries(talker(expected_us=100 * MINUTE_US), snapshot) is not None


def meeting(score: float, runs_us: int | None, other_us: int | None, **other: object) -> Reason | None:
    """Why a job waits that would meet another one on a link of this score; how long they are to run."""
    there = replace(builders.job(9, traffic=TRAFFIC, expected_us=other_us, **other), started_us=0)
    snapshot = replace(cluster("a", "b"), jobs={9: there}, now_us=0)
    blocked, chosen = Blocked(), policies(Fixed(PAIRS[0]), ByHost(a=score))
    one = talker(expected_us=runs_us)
    result = decide([one], snapshot, chosen, Tuning(patience=1.0), blocked)
    reason = blocked.reason_of(one)
    assert (reason is None) == bool(result.decisions)
    return reason


def test_a_patient_job_waits_for_one_that_ends_before_meeting_it_costs_as_much() -> None:
    waits = meeting(score=80, runs_us=100 * MINUTE_US, other_us=20 * MINUTE_US)
    assert waits is not None, "20 % of 100 and of 20 minutes are more than 20"
    assert waits.code is ReasonCode.CONTENTION
    assert dict(waits.numbers) == {"score": 80, "until_us": 20 * MINUTE_US}
    assert "on link a it would meet 1 job at compatibility score 80.0" in waits.message
    assert "some 24 min; job 9 is expected to end in 20 min" in waits.message
    assert meeting(score=80, runs_us=100 * MINUTE_US, other_us=30 * MINUTE_US) is None
    assert meeting(score=100, runs_us=100 * MINUTE_US, other_us=1 * MINUTE_US) is None


def test_nobody_is_patient_by_a_time_limit_or_where_nobody_knows_how_long_others_run() -> None:
    assert meeting(score=80, runs_us=None, other_us=MINUTE_US) is None
    assert meeting(score=80, runs_us=100 * MINUTE_US, other_us=None) is None
    minute = {"time_limit_us": MINUTE_US}
    assert meeting(score=80, runs_us=100 * MINUTE_US, other_us=None, **minute) is not None, "it bounds others"
    stands = {"state": JobState.SUSPENDED}
    assert meeting(score=80, runs_us=100 * MINUTE_US, other_us=MINUTE_US, **stands) is None


def test_a_rejected_candidate_is_never_taken_and_costs_none_of_those_compared() -> None:
    chosen = policies(Fixed(*PAIRS), Rejecting("a", "c"))
    result = decide([talker()], cluster(*"abcdef"), chosen, Tuning(top_k=1), Blocked())
    assert [d.placement for d in result.decisions] == [PAIRS[2]]


def test_a_job_of_which_every_candidate_is_rejected_waits_and_says_why() -> None:
    blocked = Blocked()
    chosen = policies(Fixed(*PAIRS), Rejecting(*"ace"))
    result = decide([talker()], cluster(*"abcdef"), chosen, Tuning(), blocked)
    assert result.decisions == []
    reason = blocked.reason_of(talker())
    assert reason is not None
    assert (reason.code, reason.message) == (ReasonCode.DEPENDENCY_LOOP, "closes a loop at a")


def test_jobs_that_share_only_an_uplink_are_aligned_together() -> None:
    """Hosts a, b hang below leaf L1, c, d below L2: job 1 on a-c and job 2 on b-d share no host."""
    fabric = Fabric({"a": "L1", "b": "L1", "c": "L2", "d": "L2"}, spines=2, uplink_bps=10**9)
    there = [
        builders.placed(2, "b", "d", traffic=TRAFFIC),
        builders.placed(3, "b", "e", traffic=TRAFFIC),  # e hangs on no known leaf
        builders.placed(4, "f", "e", traffic=TRAFFIC, low_comm=True),
    ]
    flat = builders.snapshot(*map(builders.host, "abcdef"), placed=there)
    tall = Neighbourhood().under(replace(flat, fabric=fabric))
    new = builders.placed(1, "a", "c", traffic=TRAFFIC)
    assert [p.job for p in tall.of(new)] == [1, 2, 3]
    assert [p.job for p in Neighbourhood().under(flat).of(new)] == [1]
    inside = builders.placed(1, "a", "a", traffic=TRAFFIC)
    assert [p.job for p in tall.of(inside)] == [1]
    snap = replace(builders.snapshot(*map(builders.host, "abcd"), placed=there[:1]), fabric=fabric)
    comm = ByHost()
    decide([talker()], snap, policies(Fixed(builders.placement("a", "c")), comm), Tuning(top_k=1), Blocked())
    assert comm.calls == 1


def test_a_ring_leaves_a_leaf_once_for_every_time_that_it_comes_back() -> None:
    fabric = Fabric({"a": "L1", "b": "L1", "c": "L2", "d": "L2"}, spines=1, uplink_bps=1)
    assert fabric.crossings(("a", "b")) == {}
    assert fabric.crossings(("a", "b", "c", "d")) == {"L1": 1, "L2": 1}
    assert fabric.crossings(("a", "c", "b", "d")) == {"L1": 2, "L2": 2}
    assert fabric.crossings(("a", "elsewhere", "nowhere")) == {"L1": 1}


@pytest.mark.parametrize(("low_comm", "traffic"), [(True, TRAFFIC), (False, None)])
def test_a_job_that_loads_no_link_is_aligned_with_nobody(
    low_comm: bool, traffic: TrafficProfile | None
) -> None:
    comm = ByHost(a=0)
    quiet = replace(builders.job(1, ntasks=2, low_comm=low_comm), traffic=traffic)
    result = decide([quiet], cluster("a", "b"), policies(Fixed(PAIRS[0]), comm), Tuning(), Blocked())
    assert (result.decisions[0].alignment.score, comm.calls) == (100.0, 0)


def test_equal_jobs_cost_one_look() -> None:
    blocked, offered = Blocked(), Fixed()
    jobs = [builders.job(n, ntasks=2) for n in range(1, 50)]
    decide(jobs, cluster("a"), policies(offered, ByHost()), Tuning(), blocked)
    assert offered.calls == 1
    assert all(blocked.reason_of(j) is not None for j in jobs)
    decide([builders.job(60, ntasks=2)], cluster("a"), policies(offered, ByHost()), Tuning(), blocked)
    assert offered.calls == 1
    decide([builders.job(61, ntasks=3)], cluster("a"), policies(offered, ByHost()), Tuning(), blocked)
    assert offered.calls == 2


def test_hosts_that_failed_to_launch_a_job_are_its_last_resort() -> None:
    burnt = replace(talker(), avoid=("a",))
    for offered, wanted in ((PAIRS, PAIRS[1]), (PAIRS[:1], PAIRS[0])):
        chosen = policies(Fixed(*offered), ByHost())
        result = decide([burnt], cluster(*"abcdef"), chosen, Tuning(), Blocked())
        assert result.decisions[0].placement == wanted


def test_held_and_early_jobs_are_not_tried_and_say_why() -> None:
    offered = Fixed(PAIRS[0])
    held = replace(builders.job(1), held=True)
    early = builders.job(2, begin_us=10_000_000)
    result = decide([held, early], cluster("a", "b"), policies(offered, ByHost()), Tuning(), Blocked())
    codes = {j: r.code for j, r in result.reasons.items()}
    assert codes == {1: ReasonCode.HELD_USER, 2: ReasonCode.BEGIN_TIME}
    assert result.reasons[2].numbers == (("wait_s", 10),)
    assert offered.calls == 0


def first_fit() -> Policies:
    return Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))


def test_jobs_of_one_pass_see_each_other() -> None:
    two = builders.snapshot(builders.host("a", cpus=2), builders.host("b", cpus=1))
    blocked = Blocked()
    jobs = [builders.job(n) for n in range(1, 5)]
    result = decide(jobs, two, first_fit(), Tuning(), blocked)
    assert [d.placement.hosts for d in result.decisions] == [("a",), ("a",), ("b",)]
    assert list(blocked.waiting.values()) == [{4: None}]


def test_an_exclusive_job_takes_a_whole_host_and_no_less() -> None:
    one = builders.snapshot(builders.host("a", cpus=4))
    whole = builders.job(1, exclusive=True)
    result = decide([whole, builders.job(2)], one, first_fit(), Tuning(), Blocked())
    assert [d.job for d in result.decisions] == [1]
    one = builders.snapshot(builders.host("a", cpus=4))
    result = decide([builders.job(1), builders.job(2, exclusive=True)], one, first_fit(), Tuning(), Blocked())
    assert [d.job for d in result.decisions] == [1]


def test_impossible_is_only_what_no_state_of_the_cluster_could_take() -> None:
    busy = builders.host("a", cpus=4, state=HostState.DOWN, drained_by="root")
    snapshot = builders.snapshot(busy, free={"a": builders.whole(builders.host("a", cpus=0))})
    assert never_fits(builders.job(1, cpus_per_task=4), snapshot, first_fit()) == []
    assert never_fits(builders.job(1, cpus_per_task=5), snapshot, first_fit()) != []
    unseen = builders.snapshot(busy, builders.host("b", cpus=0))
    assert never_fits(builders.job(1, cpus_per_task=5), unseen, first_fit()) == []


def test_an_explanation_is_complete_and_changes_nothing() -> None:
    snapshot = builders.snapshot(builders.host("a", cpus=1))
    decision, reasons, _ = explain(builders.job(1, begin_us=5), snapshot, first_fit(), Tuning())
    assert decision is None, "it would not start now"
    assert [r.code for r in reasons] == [ReasonCode.BEGIN_TIME]
    decision, reasons, verdicts = explain(builders.job(1, cpus_per_task=2), snapshot, first_fit(), Tuning())
    assert decision is None
    assert reasons
    assert [v.host for v in verdicts if v.refused] == ["a"]
    assert snapshot.placed == {}
    assert snapshot.links == {"a": Link("a", 1_000_000_000)}


@pytest.mark.parametrize("placement", ["first-fit", "metronome"])
def test_a_job_of_several_partitions_runs_in_the_first_that_has_room_and_never_in_two(placement: str) -> None:
    hosts = [builders.host(f"h{i}", cpus=2, partitions=(p,)) for i, p in enumerate(("a", "b", "b", "a"))]
    policies = Policies(load("queue", "fifo"), load("placement", placement), load("comm", "none"))

    def chosen(one: Job, **free: Free) -> tuple[str, ...] | None:
        snapshot = builders.snapshot(*hosts, free=free)
        found, reasons, _ = explain(one, snapshot, policies, Tuning())
        assert (found is None) == bool(reasons)
        return None if found is None else tuple(sorted(found.placement.hosts))

    full = Free(0, 0, ())
    wide = builders.job(1, ntasks=4, partition="b,a")
    assert chosen(wide) == ("h1", "h2")
    assert chosen(wide, h1=full) == ("h0", "h3")
    assert chosen(wide, h1=full, h0=full) is None  # a host of each is left
    assert never_fits(wide, builders.snapshot(*hosts), policies) == []
    wider = builders.job(2, ntasks=5, partition="a,b")
    assert never_fits(wider, builders.snapshot(*hosts), policies)
    assert not never_fits(builders.job(3, ntasks=8), builders.snapshot(*hosts), policies)


def test_a_host_whose_memory_one_job_has_takes_no_other_that_needs_some() -> None:
    waiting = [
        builders.job(1, mem_all=True),
        builders.job(2, mem_gib=1),
        builders.job(3),
        builders.job(4, mem_bytes_per_host=32 << 30),
    ]
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
    snapshot = builders.snapshot(
        builders.host("h0", mem_gib=32), builders.host("h1", mem_gib=32), jobs=waiting
    )
    result = decide(
        waiting, replace(snapshot, free=TrackedDict(snapshot.free)), policies, Tuning(), Blocked()
    )
    assert {d.job: d.placement.hosts for d in result.decisions} == {1: ("h0",), 2: ("h1",), 3: ("h0",)}


def test_the_tasks_of_an_explanation_are_of_the_placement_that_would_be_taken() -> None:
    hosts = [builders.host(name, cpus=1) for name in "abcd"]
    there = [builders.placed(9, "a", "b", traffic=TRAFFIC)]
    snapshot = builders.snapshot(*hosts, placed=there)
    snapshot = replace(snapshot, free={h.name: Free(1, h.mem_bytes, ()) for h in hosts})
    chosen = Policies(load("queue", "fifo"), load("placement", "first-fit"), ByHost(a=20, b=20))
    decision, _, verdicts = explain(talker(), snapshot, chosen, Tuning())
    assert decision is not None
    assert set(decision.placement.hosts) != {"a", "b"}  # which is the policy's first candidate
    tasks = {v.host: dict(v.scores)["tasks"] for v in verdicts}
    assert {host for host, count in tasks.items() if count} == set(decision.placement.hosts)
