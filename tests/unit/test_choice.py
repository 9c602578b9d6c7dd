"""How a placement came about: what is recorded when it is decided, and read for `rmx why` later."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from rm.core.model.choice import Choice
from rm.core.model.job import Job
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Snapshot, TrackedDict
from rm.core.ports import Candidate, Proposal
from rm.core.registry import load
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide
from tests import builders
from tests.unit.test_engine import PAIRS, ByHost, Fixed, Rejecting, cluster, policies, talker


def test_a_decision_is_recorded_as_it_was_taken() -> None:
    """The hosts of the candidate that alignment chose, not of the policy's first, and what was compared."""
    snapshot = cluster(*"abcdef")
    result = decide([talker()], snapshot, policies(Fixed(*PAIRS), ByHost(a=50, c=80)), Tuning(2), Blocked())
    choice = result.taken[1].choice()
    assert (choice.at_us, choice.placement_policy, choice.chosen_hosts) == (snapshot.now_us, "fixed", 2)
    assert [(v.host, dict(v.scores)["tasks"]) for v in choice.verdicts] == [("c", 1.0), ("d", 1.0)]
    seen = [(one.hosts, one.alignment_score, one.taken) for one in choice.compared]
    assert seen == [(("a", "b"), 50.0, False), (("c", "d"), 80.0, True)]
    assert (choice.compared_candidates, choice.refused_hosts) == (2, None)


def test_a_record_has_the_hosts_that_had_no_room_then_and_counts_the_others() -> None:
    hosts = [builders.host(f"h{n:03}", cpus=4 if n >= 100 else 1) for n in range(200)]
    snapshot = builders.snapshot(*hosts)
    for name in ("zone", "metronome", "first-fit"):
        chosen = Policies(load("queue", "fifo"), load("placement", name), load("comm", "metronome"))
        wide = builders.job(1, ntasks=60, cpus_per_task=4)
        own = replace(snapshot, free=dict(snapshot.free), placed={})
        result = decide([wide, builders.job(2, cpus_per_task=9)], own, chosen, Tuning(), Blocked())
        assert list(result.taken) == [1]  # nothing is recorded of a job that waits
        choice = result.taken[1].choice()
        taken = set(result.decisions[0].placement.hosts)
        assert (choice.chosen_hosts, choice.refused_hosts, choice.passed_over_hosts) == (60, 100, 40)
        told = {v.host: v.refused for v in choice.verdicts}
        assert len(told) == 48 + 8
        refused = {host for host, reason in told.items() if reason is not None}
        assert not refused & taken
        assert {v.host for v in choice.chosen} <= taken
        (group,) = choice.refused
        assert (group.reason.code, group.hosts) == (ReasonCode.RESOURCES, tuple(sorted(refused)))
        assert "4 CPUs, 1 free of 1" in group.reason.message


def test_a_record_says_what_spoke_against_hosts_that_the_engine_had_left_out() -> None:
    hosts = [builders.host(name, cpus=2) for name in "abc"]
    chosen = Policies(load("queue", "fifo"), load("placement", "first-fit"), ByHost())
    burnt = replace(builders.job(1, cpus_per_task=2, hosts_excluded=("b",)), avoid=("a",))
    choice = decide([burnt], builders.snapshot(*hosts), chosen, Tuning(), Blocked()).taken[1].choice()
    told = {v.host: v.refused and v.refused.code for v in choice.verdicts}
    assert told == {"c": None, "a": ReasonCode.LAUNCH_FAILED, "b": ReasonCode.HOST_NOT_AVAILABLE}


def network_of(*zones: str) -> Snapshot:
    """Four hosts of 2 CPUs a zone; the second one of each has a far worse link than its peers."""
    names = {zone: [f"{zone}h{n}" for n in range(1, 5)] for zone in zones}
    pairs = {}
    for zone, some in names.items():
        bad = {f"{zone}h2": builders.linkstats(5, 20, 10)}
        pairs |= builders.full_mesh(some, builders.linkstats(0, 0.2, 970), **bad)
    hosts = [builders.host(name, zone, cpus=2) for zone, some in names.items() for name in some]
    delays = {zone: float(rank) for rank, zone in enumerate(zones)}
    return builders.snapshot(*hosts, zones=delays, net=pairs)


def recorded(job: Job, snapshot: Snapshot, placement: str, comm: str = "none") -> Choice:
    chosen = Policies(load("queue", "fifo"), load("placement", placement), load("comm", comm))
    return decide([job], snapshot, chosen, Tuning(), Blocked()).taken[job.id].choice()


@pytest.mark.parametrize("placement", ["zone", "metronome"])
def test_a_record_names_bad_links_and_zones_that_were_not_needed(placement: str) -> None:
    choice = recorded(builders.job(1, ntasks=2, cpus_per_task=2), network_of("a", "b", "c", "d"), placement)
    told = {v.host: v.refused.code for v in choice.verdicts if v.refused is not None}
    zones = dict.fromkeys(("bh1", "bh2", "ch1", "ch2"), ReasonCode.ZONE)
    assert told == {"ah2": ReasonCode.BAD_NETWORK, **zones}
    assert (choice.refused_hosts, choice.passed_over_hosts) == (1 + 3 * 4, 1)
    assert all({"room_tasks", "network", "tasks"} <= dict(v.scores).keys() for v in choice.chosen)
    (bad,) = [group for group in choice.refused if group.reason.code is ReasonCode.BAD_NETWORK]
    assert dict(bad.reason.numbers)["bandwidth_bps"] == 10_000_000


def test_a_record_tells_nothing_of_links_that_did_not_count() -> None:
    choice = recorded(builders.job(1, cpus_per_task=2), network_of("a"), "zone")
    assert (choice.refused, choice.refused_hosts, choice.passed_over_hosts) == ((), 0, 3)
    (taken,) = choice.chosen
    assert dict(taken.scores) == {"room_tasks": 1.0, "tasks": 1.0}


@pytest.mark.parametrize("placement", ["zone", "metronome", "first-fit"])
def test_a_record_is_of_the_moment_of_its_decision(placement: str) -> None:
    """What the same pass places later does not show in it."""
    hosts = [builders.host(name, cpus=2) for name in "abc"]
    jobs = [builders.job(n, cpus_per_task=2) for n in (1, 2, 3)]
    snapshot = builders.snapshot(*hosts)
    snapshot = replace(snapshot, free=TrackedDict(snapshot.free))
    chosen = Policies(load("queue", "fifo"), load("placement", placement), load("comm", "none"))
    taken = decide(jobs, snapshot, chosen, Tuning(), Blocked()).taken
    counts = [(taken[n].choice().refused_hosts, taken[n].choice().passed_over_hosts) for n in (1, 2, 3)]
    assert counts == [(0, 2), (1, 1), (2, 0)]
    (full,) = taken[3].choice().refused
    assert "2 CPUs, 0 free of 2" in full.reason.message


def test_a_record_can_be_stored_whatever_the_numbers_are() -> None:
    class Endless(Fixed):
        def candidates(
            self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False
        ) -> Proposal:
            def each() -> Iterator[Candidate]:
                for placement in self.placements:
                    yield Candidate(placement, float("inf"))

            return Proposal(each())

    choice = (
        decide(
            [builders.job(1)],
            cluster("a"),
            policies(Endless(builders.placement("a")), ByHost()),
            Tuning(),
            Blocked(),
        )
        .taken[1]
        .choice()
    )
    assert choice.compared[0].score is None
    assert msgspec.json.decode(msgspec.json.encode(choice), type=Choice) == choice


def test_of_many_candidates_the_first_are_kept_and_the_one_taken() -> None:
    names = [f"h{n:02}" for n in range(30)]
    placements = [builders.placement(a, b) for a, b in zip(names[::2], names[1::2], strict=True)]
    there = builders.placed(9, *names, traffic=builders.profile(100, (0, 40, 500)))
    snapshot = replace(cluster(*names), placed={9: there})
    scores = ByHost(**{**dict.fromkeys(names, 40.0), "h28": 90.0, "h29": 90.0})
    choice = (
        decide([talker()], snapshot, policies(Fixed(*placements), scores), Tuning(20), Blocked())
        .taken[1]
        .choice()
    )
    assert (choice.compared_candidates, len(choice.compared)) == (15, 8)
    assert [one.hosts for one in choice.compared[:7]] == [p.hosts for p in placements[:7]]
    assert (choice.compared[7].hosts, choice.compared[7].taken) == (("h28", "h29"), True)


def test_a_candidate_that_was_rejected_says_why() -> None:
    chosen = policies(Fixed(*PAIRS), Rejecting("a"))
    choice = decide([talker()], cluster(*"abcdef"), chosen, Tuning(2), Blocked()).taken[1].choice()
    first = choice.compared[0]
    assert (first.hosts, first.taken) == (("a", "b"), False)
    assert first.rejected is not None
