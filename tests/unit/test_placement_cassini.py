"""CASSINI's augmentation of a host scheduler: which placements it lets the comm policy compare."""

from dataclasses import replace

import pytest

from rm.core.model.job import Job
from rm.core.model.network.fabric import Fabric
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.registry import load, names
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide
from rm.errors import ConfigError
from rm.policies.placement.cassini import CassiniOptions, CassiniPlacement
from tests.builders import asked, host, job, placed, profile, snapshot

LOUD = profile(200, (0, 90, 1_000))  # two of these fit beside each other
FULL = profile(200, (0, 150, 1_000))  # nothing fits beside it


def talker(id: int = 1, **fields: object) -> Job:
    fields.setdefault("traffic", LOUD)
    return job(id, ntasks=2, cpus_per_task=4, tasks_per_host=1, **fields)  # type: ignore[arg-type]


def busy(*running: object, hosts: str = "abcdef") -> Snapshot:
    """Hosts with room for two tasks each."""
    return snapshot(*(host(n, cpus=8) for n in hosts), placed=running)  # type: ignore[arg-type]


def offered(snap: Snapshot, one: Job, **options: object) -> list[tuple[str, ...]]:
    policy = CassiniPlacement(CassiniOptions(**{"base": "first-fit", **options}))  # type: ignore[arg-type]
    return [c.placement.hosts for c in policy.candidates(asked(one), snap).candidates]


def test_the_first_candidate_is_the_bases_own_choice() -> None:
    snap = busy(placed(8, "a", "b", traffic=FULL), placed(9, "c", "d", traffic=LOUD))
    for base in names("placement"):
        if base == "cassini":
            continue
        own = next(load("placement", base).candidates(asked(talker()), snap).candidates)
        assert offered(snap, talker(), base=base)[0] == own.placement.hosts


def test_candidates_differ_in_whom_the_job_would_meet() -> None:
    snap = busy(placed(8, "a", "b", traffic=FULL), placed(9, "c", "d", traffic=LOUD))
    found = offered(snap, talker())
    assert found[0] == ("a", "b")
    assert ("c", "d") in found
    assert ("e", "f") in found
    assert len([hosts for hosts in found if not set(hosts) & set("abcd")]) == 1, "both meet nobody"


def test_hosts_on_which_others_are_met_are_done_without() -> None:
    """first-fit itself never skips b, the second host; the variant without b does."""
    snap = busy(placed(8, "b", "f", traffic=FULL), hosts="abcf")
    assert offered(snap, talker())[0] == ("a", "b")
    assert ("a", "c") in offered(snap, talker())


def test_no_more_than_asked_for_and_one_for_jobs_that_meet_nobody() -> None:
    running = [placed(i, a, b, traffic=LOUD) for i, (a, b) in enumerate(["ab", "cd", "ef", "gh"], 10)]
    snap = busy(*running, hosts="abcdefgh")
    assert len(offered(snap, talker(), candidates=3)) == 3
    assert len(offered(snap, talker(low_comm=True, traffic=None))) == 1


def decide_with(
    snap: Snapshot, placement: str, loops: str = "discard", top_k: int = 10, **options: object
) -> object:
    chosen = Policies(
        load("queue", "fifo"),
        load("placement", placement, options),
        load("comm", "cassini", {"loops": loops}),
    )
    blocked = Blocked()
    result = decide([talker()], snap, chosen, Tuning(top_k), blocked)
    if result.decisions:
        return result.decisions[0].placement.hosts
    return blocked.reason_of(talker())


def test_the_engine_takes_the_most_compatible_candidate() -> None:
    """On a it meets a job that leaves no room, on c one that does; the host scheduler takes a."""
    snap = busy(placed(8, "a", "e", traffic=FULL), placed(9, "c", "f", traffic=LOUD), hosts="abcdef")
    taken = snap.free | {n: replace(snap.free[n], cpus=0) for n in "ef"}
    snap = replace(snap, free=dict(taken))
    assert decide_with(snap, "first-fit", top_k=1) == ("a", "b")
    assert decide_with(snap, "cassini", base="first-fit") == ("b", "c")


def test_placements_that_would_close_a_loop_are_discarded() -> None:
    """On a and b it meets one job twice; on b and c two jobs that meet each other nowhere else."""
    snap = busy(placed(8, "a", "b", traffic=LOUD), placed(9, "c", "d", traffic=LOUD), hosts="abcd")
    assert decide_with(snap, "cassini", base="first-fit") == ("b", "c")
    assert decide_with(snap, "cassini", base="first-fit", loops="joint") == ("a", "b")


def test_a_job_waits_when_every_placement_closes_a_loop() -> None:
    snap = busy(placed(8, "a", "b", traffic=LOUD), hosts="ab")
    reason = decide_with(snap, "cassini", base="first-fit")
    assert reason.code is ReasonCode.DEPENDENCY_LOOP  # type: ignore[attr-defined]
    assert decide_with(snap, "cassini", loops="joint", base="first-fit") == ("a", "b")


def test_meeting_on_an_uplink_is_meeting() -> None:
    """Each leaf has two hosts; job 9 crosses L1 and L2, the new job could stay below L3."""
    leaves = {n: f"L{i // 2 + 1}" for i, n in enumerate("abcdef")}
    snap = busy(placed(9, "a", "c", traffic=FULL))
    snap = replace(snap, fabric=Fabric(leaves, spines=1, uplink_bps=10**9))
    taken = {n: replace(snap.free[n], cpus=0) for n in "ac"}
    snap = replace(snap, free={**snap.free, **taken})
    found = offered(snap, talker())
    assert found[0] == ("b", "d")  # first-fit: over both uplinks
    assert any(hosts == ("e", "f") for hosts in found)
    assert decide_with(snap, "cassini", base="first-fit") == ("e", "f")


def test_the_bases_reasons_and_verdicts_are_passed_on() -> None:
    snap = busy(hosts="a")
    mine = CassiniPlacement(CassiniOptions(base="zone")).candidates(asked(talker()), snap, explain=True)
    assert list(mine.candidates) == []
    assert mine.reasons
    assert [v.host for v in mine.verdicts] == ["a"]


def test_options() -> None:
    with pytest.raises(ConfigError, match="cannot augment itself"):
        load("placement", "cassini", {"base": "cassini"})
    with pytest.raises(ConfigError, match="There is no placement policy"):
        load("placement", "cassini", {"base": "nothing"})
    with pytest.raises(ConfigError):
        load("placement", "cassini", {"candidates": 0})
    load("placement", "cassini", {"base": "zone", "base_options": {"w_loss": 3.0}})
    with pytest.raises(ConfigError, match="has no option 'w_los'"):
        load("placement", "cassini", {"base": "zone", "base_options": {"w_los": 3.0}})
