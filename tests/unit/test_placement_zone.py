"""Zone-first placement: the golden numbers, and what the policy makes of a cluster."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rm.core.model.host import HostState
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Free, TrackedDict
from rm.policies.placement.first_fit import FirstFitPolicy
from rm.policies.placement.metronome import MetronomePolicy
from rm.policies.placement.steps.network_score import NetworkWeights, select
from rm.policies.placement.steps.network_table import NetworkTable
from rm.policies.placement.zone import ZonePolicy
from tests.builders import asked, full_mesh, host, job, linkstats, snapshot

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "zone_first.json").read_text())


def weights(case: dict) -> NetworkWeights:
    return NetworkWeights(
        w_loss=case["w_loss"], w_delay=case["w_delay"], ref_bandwidth_bps=case["ref_mbps"] * 1_000_000
    )


def table(case: dict, names: list[str], links: list[list]) -> NetworkTable:
    measured = {(a, b): linkstats(loss, delay, mbps) for a, b, loss, delay, mbps in links}
    return NetworkTable(snapshot(*(host(n) for n in names), net=measured), weights(case))


@pytest.mark.parametrize("case", GOLDEN["pair_scores"], ids=lambda c: f"{c['forth']}-{c['back']}")
def test_pair_score(case):
    links = [["a", "b", *case["forth"]], ["b", "a", *case["back"]]]
    assert table(case, ["a", "b"], links).scores("z1", "z1")[0, 1] == pytest.approx(case["score"])


@pytest.mark.parametrize("case", GOLDEN["selections"], ids=lambda c: f"{len(c['hosts'])}-hosts")
def test_accumulating_selection(case):
    names = case["hosts"] + ([case["anchor"]] if case["anchor"] else [])
    pair = table(case, names, case["links"]).scores("z1", "z1")
    anchor = pair[-1] if case["anchor"] else None
    eligible = np.array([n in case["hosts"] for n in names])
    chosen = select(pair, case["need"], eligible, anchor)
    assert [names[n] for n, _ in chosen] == case["order"]
    assert [total for _, total in chosen] == pytest.approx(case["totals"])


@pytest.mark.parametrize("case", GOLDEN["zone_choices"], ids=lambda c: f"{c['tasks']}-tasks")
def test_zone_choice(case):
    hosts = [host(f"{zone}{n}", zone, cpus=1) for zone, room in case["room"].items() for n in range(room)]
    net = {(f"{a}0", f"{b}0"): linkstats(0, delay) for a, b, delay in case["zone_delay_ms"]}
    snap = snapshot(*hosts, zones=case["user_delay_ms"], net=net)
    found = first(ZonePolicy().candidates(asked(job(ntasks=case["tasks"])), snap))
    shares = Counter(name[0] for name in found.hosts)  # in the order in which zones are filled
    assert [list(share) for share in shares.items()] == case["shares"]


def first(proposal):
    return next(proposal.candidates).placement


def test_badly_connected_host_is_avoided_and_the_verdict_says_why():
    names = [f"g{i}" for i in range(1, 5)]
    net = full_mesh(names, linkstats(0, 0.2, 970), g2=linkstats(0.1, 0.3, 80))
    snap = snapshot(*(host(n, gpus=2) for n in names), net=net)
    proposal = ZonePolicy().candidates(asked(job(ntasks=6, gpus_per_task=1)), snap, explain=True)
    assert first(proposal).hosts == ("g1", "g3", "g4")
    (bad,) = [v for v in proposal.verdicts if v.refused]
    assert bad.host == "g2"
    assert bad.refused.code is ReasonCode.BAD_NETWORK
    assert dict(bad.refused.numbers)["bandwidth_bps"] == 80_000_000
    assert "80 Mbit/s (peers" in bad.refused.message


def test_bad_host_is_compared_with_pairs_that_it_is_no_part_of():
    names = ["g1", "g2", "g3"]
    net = full_mesh(names, linkstats(0, 0.2, 970), g3=linkstats(5, 20, 10))
    snap = snapshot(*(host(n, cpus=1) for n in names), net=net)
    proposal = ZonePolicy().candidates(asked(job(ntasks=2)), snap, explain=True)
    (said,) = [v.refused.message for v in proposal.verdicts if v.refused]
    assert "loss 5.0 % (peers 0.0 %)" in said
    assert "10 Mbit/s (peers 970 Mbit/s)" in said


def test_badly_connected_host_is_used_when_nothing_else_fits():
    names = ["g1", "g2", "g3", "g4"]
    net = full_mesh(names, g2=linkstats(30, 0.2, 900))
    snap = snapshot(*(host(n, gpus=2) for n in names), net=net)
    assert set(first(ZonePolicy().candidates(asked(job(ntasks=8, gpus_per_task=1)), snap)).hosts) == set(
        names
    )


def test_far_zone_without_bad_hosts_comes_before_near_zone_with_them():
    near, far = ["a1", "a2", "a3"], ["b1", "b2"]
    net = full_mesh(near, a2=linkstats(30), a3=linkstats(0, 0.2, 990)) | full_mesh(far)
    hosts = [host(n, "near", gpus=1) for n in near] + [host(n, "far", gpus=1) for n in far]
    busy = {"a3": Free(8, 1 << 35, ())}
    snap = snapshot(*hosts, zones={"near": 1, "far": 9}, net=net, free=busy)
    assert first(ZonePolicy().candidates(asked(job(ntasks=2, gpus_per_task=1)), snap)).hosts == ("b1", "b2")


@pytest.mark.parametrize("policy", [ZonePolicy, MetronomePolicy])
def test_two_hosts_with_a_bad_link_between_them_come_after_another_zone(policy):
    """Both share that one pair: only beside other zones is it seen to be bad."""
    bad, good = ["a1", "a2"], ["b1", "b2"]
    hosts = [host(n, "a", cpus=2) for n in bad] + [host(n, "b", cpus=2) for n in good]
    net = full_mesh(bad, linkstats(5, 20, 10)) | full_mesh(good)

    def chosen(**free):
        return first(policy().candidates(asked(job(ntasks=4)), snapshot(*hosts, net=net, free=free))).hosts

    assert set(chosen()) == set(good)
    assert set(chosen(b1=Free(0, 1 << 35, ()))) == set(bad)  # rather than none


def test_the_verdict_on_a_zone_of_two_measured_hosts_compares_with_all_zones():
    hosts = [host(n, "a", cpus=c) for n, c in (("a1", 1), ("a2", 1), ("a3", 2))]
    hosts += [host(n, "b", cpus=2) for n in ("b1", "b2")]
    net = full_mesh(["a1", "a2"], linkstats(5, 20, 10)) | full_mesh(["b1", "b2"])
    proposal = ZonePolicy().candidates(asked(job(ntasks=6)), snapshot(*hosts, net=net), explain=True)
    assert set(first(proposal).hosts) == {"a3", "b1", "b2"}
    said = {v.host: v.refused.message for v in proposal.verdicts if v.refused}
    assert set(said) == {"a1", "a2"}
    assert all("far worse than its peers' in all zones" in why for why in said.values())


def test_never_measured_hosts_rank_below_ordinary_ones_but_are_not_bad():
    names = ["u1", "m1", "m2"]
    snap = snapshot(*(host(n, cpus=1) for n in names), net=full_mesh(["m1", "m2"]))
    proposal = ZonePolicy().candidates(asked(job(ntasks=2)), snap, explain=True)
    assert set(first(proposal).hosts) == {"m1", "m2"}
    assert all(v.refused is None for v in proposal.verdicts)
    assert set(first(ZonePolicy().candidates(asked(job(ntasks=3)), snap)).hosts) == set(names)


def test_nothing_measured_falls_back_to_inventory_order():
    snap = snapshot(*(host(n, cpus=1) for n in ("h3", "h1", "h2")))
    assert first(ZonePolicy().candidates(asked(job(ntasks=2)), snap)).hosts == ("h3", "h1")


def test_link_that_stopped_answering_counts_as_bad():
    names = ["g1", "g2", "g3", "g4"]
    net = full_mesh(names, g1=linkstats(0, 0.2, 990, failures=5))
    snap = snapshot(*(host(n, cpus=1) for n in names), net=net)
    proposal = ZonePolicy().candidates(asked(job(ntasks=2)), snap, explain=True)
    assert "g1" not in first(proposal).hosts
    assert "last 5 measurements failed" in proposal.verdicts[0].refused.message


def test_spills_over_only_when_no_zone_fits():
    hosts = [host(f"{z}{i}", z, cpus=2) for z in ("a", "b", "c") for i in (1, 2)]
    net = {("a1", "b1"): linkstats(0, 40), ("a1", "c1"): linkstats(0, 3), ("b1", "c1"): linkstats(0, 30)}
    snap = snapshot(*hosts, zones={"a": 1, "b": 2, "c": 3}, net=net)
    inside = first(ZonePolicy().candidates(asked(job(ntasks=4)), snap))
    assert set(inside.hosts) == {"a1", "a2"}
    across = first(ZonePolicy().candidates(asked(job(ntasks=6)), snap))
    assert set(across.hosts) == {"a1", "a2", "c1"}  # c is farther from the user, but nearer to a


def test_one_host_job_takes_the_tightest_fit_and_concrete_gpus():
    tight = Free(4, 1 << 34, (3, 5))
    snap = snapshot(host("big", gpus=8), host("tight", gpus=8), free={"tight": tight})
    got = first(ZonePolicy().candidates(asked(job(ntasks=2, gpus_per_task=1)), snap))
    assert [(t.host, t.gpus) for t in got.tasks] == [("tight", (3,)), ("tight", (5,))]


def test_asked_number_of_hosts_is_shared_evenly():
    snap = snapshot(*(host(n, cpus=16) for n in "abc"))
    got = first(ZonePolicy().candidates(asked(job(ntasks=4, hosts_min=2, hosts_max=2)), snap))
    assert [t.host for t in got.tasks] == ["a", "a", "b", "b"]


def test_further_candidates_begin_with_hosts_not_used_before():
    snap = snapshot(*(host(n, cpus=1) for n in "abcd"))
    found = list(ZonePolicy().candidates(asked(job(ntasks=2)), snap).candidates)
    assert [c.placement.hosts for c in found[:2]] == [("a", "b"), ("c", "d")]
    assert len({c.placement.hosts for c in found}) == len(found)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"gpus_per_task": 4}, ReasonCode.RESOURCES, "needs 4 GPUs, 2 free of 3"),
        ({"gpus_per_task": 1, "gpu_type": "H100"}, ReasonCode.RESOURCES, "1 H100 GPU, 0 free of 0"),
        ({"cpus_per_task": 9}, ReasonCode.RESOURCES, "9 CPUs, 8 free of 8"),
        ({"mem_gib": 64}, ReasonCode.RESOURCES, "64.0 GiB of memory, 32.0 GiB free"),
        ({"partition": "big"}, ReasonCode.HOST_NOT_AVAILABLE, "not in partition big"),
        ({"hosts_only": ("x",)}, ReasonCode.HOST_NOT_AVAILABLE, "not among the 1 host that"),
        ({"zone": "mars"}, ReasonCode.ZONE, "asks for zone mars"),
        ({"ntasks": 20}, ReasonCode.RESOURCES, "room for 20 tasks at once, 1 of 2 hosts have room for 8"),
        ({"ntasks": 4, "hosts_min": 2}, ReasonCode.RESOURCES, "needs 2 hosts, 1 have room"),
    ],
)
@pytest.mark.parametrize("policy", [ZonePolicy, FirstFitPolicy])
def test_every_no_says_its_numbers(policy, fields, code, words):
    down = host("down", gpus=8, cpus=64, state=HostState.DOWN, reason="no answer for 30 s")
    snap = snapshot(host("a", gpus=3), down, free={"a": Free(8, 32 << 30, (0, 2))})
    proposal = policy().candidates(asked(job(**fields)), snap, explain=True)
    assert list(proposal.candidates) == []
    assert proposal.reasons[0].code is code
    assert words in proposal.reasons[0].message
    if proposal.reasons[1:]:
        assert any("is DOWN: no answer for 30 s" in r.message for r in proposal.reasons)
    refused = {v.host: v.refused for v in proposal.verdicts}
    assert refused["down"].code is ReasonCode.HOST_NOT_AVAILABLE


def test_a_job_that_no_host_could_ever_suit_is_refused_by_its_own_numbers():
    """No daemon takes it; an old database may hold it."""
    one = job()
    request = asked(replace(one, spec=replace(one.spec, hosts_min=2)))
    proposal = ZonePolicy().candidates(request, snapshot(host("a"), host("b")))
    assert list(proposal.candidates) == []
    assert "at least 2 hosts but has only 1 tasks" in proposal.reasons[0].message


def test_exclusive_jobs_get_untouched_hosts_only():
    snap = snapshot(host("used"), host("idle"), free={"used": Free(7, 32 << 30, ())})
    assert first(ZonePolicy().candidates(asked(job(exclusive=True)), snap)).hosts == ("idle",)


def test_an_exclusive_job_has_all_gpus_of_its_hosts_unless_it_says_how_many():
    def gpus_of(**asked_for):
        snap = snapshot(host("a", gpus=2), host("b", gpus=4))
        one = job(ntasks=3, hosts_min=2, exclusive=True, **asked_for)
        return {task.host: task.gpus for task in first(ZonePolicy().candidates(asked(one), snap)).tasks}

    assert gpus_of() == {"a": (0, 1), "b": (0, 1, 2, 3)}
    assert gpus_of(gpus_per_host=1) == {"a": (0,), "b": (0,)}


def test_a_pass_that_reserves_sees_its_own_reservations():
    """The capacity cache follows TrackedDict: answers equal those of a policy without a past."""
    snap = snapshot(*(host(n, cpus=4) for n in "abc"))
    tracked = TrackedDict(snap.free)
    passing = type(snap)(0, snap.hosts, snap.zones, snap.links, snap.network, tracked, {})
    policy = ZonePolicy()
    for step in range(6):
        mine = first(policy.candidates(asked(job(cpus_per_task=2)), passing))
        assert mine == first(ZonePolicy().candidates(asked(job(cpus_per_task=2)), passing))
        left = tracked[mine.hosts[0]]
        tracked[mine.hosts[0]] = Free(left.cpus - 2, left.mem_bytes, left.gpus)
        assert sum(f.cpus for f in tracked.values()) == 12 - 2 * (step + 1)
    assert list(policy.candidates(asked(job(cpus_per_task=2)), passing).candidates) == []


def test_new_measurements_in_the_same_mapping_are_seen():
    names = ["g1", "g2", "g3", "g4"]
    net = full_mesh(names)
    hosts = [host(n, cpus=1) for n in names]
    policy = ZonePolicy()
    assert first(policy.candidates(asked(job(ntasks=2)), snapshot(*hosts, net=net))).hosts == ("g1", "g2")
    net.update(full_mesh(names, g1=linkstats(40)))
    assert first(policy.candidates(asked(job(ntasks=2)), snapshot(*hosts, net=net))).hosts == ("g2", "g3")
