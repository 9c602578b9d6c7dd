"""Placement reads of a job its demand alone: a refusal stands for jobs of equal demand, and for no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from rm.core.model.asked.demand import Demand, Shape
from rm.core.model.job import Job, JobSpec
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot, TrackedDict
from rm.core.ports import Candidate, Proposal
from rm.core.registry import load
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide
from rm.errors import UsageError
from tests.builders import GIB, full_mesh, host, job, placed, placement, profile, snapshot, spec, whole

# Of a specification placement reads everything but these: whoever adds a field decides where it belongs.
DECIDES_NO_PLACEMENT = {
    "name", "script", "script_args", "launch", "env", "chdir", "chdir_required", "output", "error",
    "open_mode", "warn_signal", "warn_before_us", "warn_batch", "nice",
    "deliver", "submit_host", "submit_line", "script_path", "comment", "time_limit_us",
    "expected_us", "iterations", "begin_us", "deadline_us", "time_min_us", "input", "mail_events",
    "mail_user", "hold", "container_mounts", "container_workdir", "container_name", "switches_wait_us",
    "requeue", "fence_us", "dependency", "kill_on_invalid_dep", "array", "reservation", "account", "qos",
}  # fmt: skip
QUIET, LOUD = profile(200, (0, 40, 500)), profile(200, (0, 120, 900))
VALUES: dict[str, tuple[Any, Any]] = {
    "hosts_min": (0, 2),
    "hosts_max": (0, 1),
    "ntasks": (2, 4),
    "tasks_per_host": (0, 1),
    "cpus_per_task": (1, 3),
    "distribution": ("block", "cyclic"),
    "mem_bytes_per_task": (0, 20 * GIB),
    "mem_bytes_per_host": (0, 20 * GIB),
    "mem_all": (False, True),
    "gpus_per_task": (0, 1),
    "gpus_per_host": (0, 2),
    "gpu_bind": ("per_task", "none"),
    "ntasks_per_gpu": (0, 1),
    "gpu_type": ("", "v100"),
    "gpu_mem_bytes": (0, 4 * GIB),
    "partition": ("", "b"),
    "priority": (0, 50),
    "zone": ("", "far"),
    "constraint": ("", "fast"),
    "prefer": ("", "fast"),
    "container_image": ("", "pytorch"),
    "licenses": ("", "matlab"),
    "hosts_only": ((), ("h1",)),
    "hosts_excluded": ((), ("h0",)),
    "exclusive": (False, True),
    "exclusive_user": (False, True),
    "user": ("alice", "bob"),
    "switches": (0, 1),
    "low_comm": (False, True),
    "traffic": (QUIET, LOUD),
}

# what a job must say beside these to be taken, or for them to matter
BESIDE: dict[str, dict[str, Any]] = {
    "gpu_mem_bytes": {"gpus_per_task": 1},
    "gpu_type": {"gpus_per_task": 1},
    "gpu_bind": {"gpus_per_task": 2},
    "hosts_min": {"ntasks": 2},
    "ntasks_per_gpu": {"gpus_per_host": 2, "tasks_per_host": 2, "hosts_min": 2, "hosts_max": 2, "ntasks": 4},
}


def leaves(demand: Demand) -> dict[str, Any]:
    """The demand's fields and those of its shape."""
    return {**demand.shape._asdict(), **demand._asdict()}


def test_every_field_of_a_specification_is_part_of_the_demand_or_decides_no_placement() -> None:
    names = {f.name for f in fields(JobSpec)}
    assert names >= DECIDES_NO_PLACEMENT
    assert VALUES.keys() == names - DECIDES_NO_PLACEMENT
    kept = (set(Shape._fields) | set(Demand._fields)) - {
        "shape",
        "avoid",
        "declared_bps",
        "foreign",
        "closed",
    }
    assert (
        kept - {"partitions", "features", "kinds", "container"}
        | {
            "partition",
            "constraint",
            "prefer",
            "container_image",
        }
        == VALUES.keys()
    )


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_field_that_placement_reads_makes_another_demand(name: str) -> None:
    beside = BESIDE.get(name, {})
    one, other = (spec(**{**beside, name: value}) for value in VALUES[name])
    assert one.demand != other.demand
    assert one.demand == spec(name="another", comment="of it", **{**beside, name: VALUES[name][0]}).demand


def test_how_many_hosts_of_each_kind_make_another_demand() -> None:
    one, other = (
        spec(ntasks=3, hosts_min=3, constraint=text) for text in ("[fast*1&slow*2]", "[fast*2&slow*1]")
    )
    assert one.demand != other.demand


def test_what_became_known_of_a_job_is_part_of_its_demand() -> None:
    one = job(1, traffic=QUIET)
    measured, failed = replace(one, traffic=LOUD), replace(one, avoid=("h0",))
    assert len({one.demand, measured.demand, failed.demand}) == 3
    assert measured.demand.declared_bps == QUIET.peak_bps, "what the user declared stays known"
    assert measured.demand != job(1, traffic=LOUD).demand


class Picky:
    """Refuses one demand, which differs from others in one place."""

    name = "picky"

    def __init__(self, refused: Demand) -> None:
        self.refused, self.asked = refused, 0

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        self.asked += 1
        if leaves(request.demand) == leaves(self.refused):
            return Proposal(iter(()), [Reason(ReasonCode.RESOURCES, "not this one", (("n", 1),))])
        return Proposal(iter([Candidate(placement("h0"))]))


def decided(jobs: Iterable[Job], snap: Snapshot, policies: Policies, tuning: Tuning, blocked: Blocked) -> Any:
    own = replace(snap, free=TrackedDict(snap.free), placed=TrackedDict(snap.placed))
    result = decide(jobs, own, policies, tuning, blocked)
    return {d.job: (d.placement, d.alignment.score) for d in result.decisions}


# the engine asks the policy without `switches`, of each set of racks (test_switches.py)
@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"switches"}))
def test_a_refusal_stands_for_equal_demands_alone(name: str) -> None:
    like, other = VALUES[name]
    beside = BESIDE.get(name, {})
    refused, same = job(1, **{**beside, name: like}), job(2, **{**beside, name: like})
    policy = Picky(refused.demand)
    policies = Policies(load("queue", "fifo"), policy, load("comm", "none"))
    jobs = [refused, same, job(3, **{**beside, name: other})]
    snap = replace(snapshot(host("h0")), licenses={"matlab": 1})
    assert decided(jobs, snap, policies, Tuning(), Blocked()).keys() == {3}
    assert policy.asked == 2, "the second of equal demand is asked for again"


def world(taken: bool) -> Snapshot:
    """Hosts of two partitions, zones and kinds of GPUs, one with a slow link, one with something on it."""
    hosts = [
        host("h0", "near", cpus=4, gpus=2, gpu_model="A100", nic_mbps=600, partitions=("a",)),
        host("h1", "far", cpus=3, gpus=2, gpu_model="V100", nic_mbps=1_000, partitions=("b",)),
        host("h2", "far", cpus=2, mem_gib=8, nic_mbps=1_000, partitions=("b",)),
    ]
    free = {hosts[1].name: replace(whole(hosts[1]), cpus=2, gpus=(1,))} if taken else {}
    busy = [placed(900, "h1", "h2", traffic=LOUD)] if taken else []
    known = [job(900, ntasks=2, traffic=LOUD)] if taken else []
    net = full_mesh([h.name for h in hosts])
    snap = snapshot(*hosts, zones={"near": 1, "far": 20}, net=net, free=free, placed=busy, jobs=known)
    return replace(snap, licenses={"matlab": 0 if taken else 1})


@st.composite
def differing(draw: st.DrawFn, changed: str) -> tuple[Job, Job]:
    """Two jobs that the daemon would take, whose specifications differ in this field."""
    like = {name: VALUES[name][1] for name in draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=2))}
    like = {"ntasks": 2, "cpus_per_task": 3, **like, **BESIDE.get(changed, {})}
    one, other = draw(st.permutations(VALUES[changed]))
    try:
        first, second = (job(n, **{**like, changed: value}) for n, value in ((1, one), (2, other)))
    except UsageError:
        reject()  # no daemon would take one of them
    measured = draw(st.sampled_from((second.traffic, second.traffic, QUIET, LOUD)))
    return first, replace(second, traffic=measured, avoid=draw(st.sampled_from(((), (), ("h1",)))))


@pytest.mark.parametrize("changed", sorted(VALUES))
@settings(max_examples=8)
@given(data=st.data())
def test_a_job_behind_a_refused_one_is_decided_as_if_alone(changed: str, data: st.DataObject) -> None:
    jobs = data.draw(differing(changed))
    taken = data.draw(st.booleans())
    min_score = data.draw(st.sampled_from((float("-inf"), 99.0)))
    policy = data.draw(st.sampled_from(("zone", "metronome", "consolidate")))
    comm = data.draw(st.sampled_from(("none", "metronome")))
    snap, tuning = world(taken), Tuning(min_score=min_score)
    policies = Policies(load("queue", "fifo"), load("placement", policy), load("comm", comm))
    refused = [one for one in jobs if not decided([one], snap, policies, tuning, Blocked())]
    assume(refused)
    first = refused[0]
    (second,) = (one for one in jobs if one is not first)
    assert first.demand != second.demand
    alone = decided([second], snap, policies, tuning, Blocked())
    assert decided([first, second], snap, policies, tuning, Blocked()) == alone
    earlier = Blocked()
    decided([first], snap, policies, tuning, earlier)
    assert decided([second], snap, policies, tuning, earlier) == alone, "the first was refused a pass before"


def test_a_declared_rate_beyond_the_link_stands_against_no_measured_one() -> None:
    """Equal profiles: the first was declared so, and is refused; of the second it was measured."""
    wide = profile(200, (0, 40, 2_000))
    snap = snapshot(*(host(n, nic_mbps=1_000) for n in ("h0", "h1")))
    policies = Policies(load("queue", "fifo"), load("placement", "metronome"), load("comm", "none"))
    declared = job(1, ntasks=2, tasks_per_host=1, traffic=wide)
    found = replace(job(2, ntasks=2, tasks_per_host=1), traffic=wide)
    assert decided([declared, found], snap, policies, Tuning(), Blocked()).keys() == {2}
