"""Metronome placement: the golden numbers of its stages, and what it makes of a cluster."""

import itertools
import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from rm.core.model.network.fabric import Fabric
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Free
from rm.errors import ConfigError
from rm.policies.placement.metronome import MetronomeOptions, MetronomePolicy
from rm.policies.placement.steps.latency import normalized, raw_latency
from rm.policies.placement.steps.stages import Stages
from tests.builders import GIB, asked, full_mesh, host, job, linkstats, network, placed, profile, snapshot
from tests.examples import seeds

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metronome_placement.json").read_text())
JOB = 900  # id of the job in question; the others are numbered from 1


def traffic(case):
    return None if case is None else profile(case["period_ms"], *case["phases"])


def delays(rows):
    return network({(a, b): linkstats(None, us / 1_000, None) for a, b, us in rows})


def cluster(case):
    """The golden case as a job and a snapshot; its own `assigned` tasks hold nothing yet."""
    others = [
        placed(i, *o["hosts"], traffic=traffic(o["traffic"]), sequence=o["sequence"], name=o["name"])
        for i, o in enumerate(case["others"], 1)
    ]
    hosts = [host(name, gpus=gpus, nic_mbps=mbps) for name, gpus, mbps in case["hosts"]]
    taken = [h for o in case["others"] for h in o["hosts"]]
    free = {h.name: Free(8, 32 * GIB, tuple(range(taken.count(h.name), len(h.gpus)))) for h in hosts}
    snap = snapshot(*hosts, net=delays(case["delays_us"]), free=free, placed=others)
    asked = case["job"]
    one = job(
        JOB,
        name="a",
        ntasks=asked["ntasks"],
        gpus_per_task=1,
        low_comm=asked["low_comm"],
        traffic=traffic(asked["traffic"]),
    )
    return one, snap


@pytest.mark.parametrize("case", GOLDEN["raw_latency"], ids=lambda c: f"{len(c['dependents'])}-dependents")
def test_raw_latency(case):
    one, snap = cluster(
        {
            "hosts": [[h, 1, 1000] for h in case["hosts"]],
            "others": [],
            "delays_us": case["delays_us"],
            "job": {"ntasks": 1, "low_comm": False, "traffic": None},
        }
    )
    stages = MetronomePolicy().stages(asked(one), snap)
    dependents = [case["hosts"].index(h) for h in case["dependents"]]
    assert list(raw_latency(stages.table.delays_us(), dependents)) == pytest.approx(case["raw_us"])


@pytest.mark.parametrize("case", GOLDEN["normalized"])
def test_normalized_latency(case):
    assert list(normalized(np.array([case["delay"]]), case["least"], case["most"])) == [case["value"]]


@pytest.mark.parametrize("case", GOLDEN["stages"], ids=range(len(GOLDEN["stages"])))
def test_stages_for_one_task(case):
    one, snap = cluster(case)
    expect = case["expect"]
    stages = MetronomePolicy().stages(asked(one), snap)
    if expect is None:
        assert stages is None
        return
    names = list(stages.pool.names)
    choice = stages.choose([names.index(h) for h in case["assigned"]])
    candidates = [names[i] for i in np.flatnonzero(choice.candidates)]
    assert names[choice.host] == expect["host"]
    assert candidates == expect["candidates"]
    assert {n: choice.scores[names.index(n)] for n in expect["scores"]} == pytest.approx(expect["scores"])
    assert list(choice.raw_latency_us) == pytest.approx(expect["raw_us"])
    assert {n: choice.final[names.index(n)] for n in candidates} == expect["final"]
    assert choice.link.early == expect["early"]
    assert choice.link.skip_stage_3 == expect["skip_stage_3"]
    if expect["slots"] is None:
        assert choice.link.solution is None
    else:
        ids = {o["name"]: i for i, o in enumerate(case["others"], 1)} | {"a": JOB}
        scheme = choice.link.solution.scheme
        assert {n: scheme.rotation(i) for n, i in ids.items()} == expect["slots"]


@pytest.mark.parametrize("case", GOLDEN["gangs"], ids=range(len(GOLDEN["gangs"])))
def test_gangs_task_by_task(case):
    one, snap = cluster(case)
    policy = MetronomePolicy(MetronomeOptions(compact=False, loop_test=case["loop_test"], joint_jobs=0))
    proposal = policy.candidates(asked(one), snap)
    first = next(proposal.candidates, None)
    if case["expect"] is None:
        assert first is None
        assert {r.code for r in proposal.reasons} == {ReasonCode.DEPENDENCY_LOOP}
    else:
        assert [t.host for t in first.placement.tasks] == case["expect"]


def test_a_small_loop_of_matching_periods_is_solved_jointly_rather_than_refused():
    (case,) = (c for c in GOLDEN["gangs"] if c["expect"] is None)
    one, snap = cluster(case)
    tolerant = MetronomePolicy(MetronomeOptions(loop_test="contended", joint_jobs=2))
    strict = MetronomePolicy(MetronomeOptions(loop_test="contended", joint_jobs=1))
    assert next(tolerant.candidates(asked(one), snap).candidates).placement.hosts == ("n1", "n2")
    assert next(strict.candidates(asked(one), snap).candidates, None) is None


LIGHT = profile(200, (0, 75, 900))  # two of them fit into each other's gaps
HEAVY = profile(200, (0, 120, 900))  # two of them do not, however rotated


def four_hosts(*running, net=None, **fields):
    return snapshot(*(host(n, cpus=2, **fields) for n in "abcd"), net=net, placed=running)


def hosts_of(proposal, count=1):
    return [c.placement.hosts for c in islice(proposal.candidates, count)]


def test_compatible_job_shares_the_links_when_there_is_no_other_room():
    running = placed(1, "a", "b", traffic=LIGHT)
    snap = snapshot(host("a"), host("b"), net=full_mesh("ab"), placed=[running])
    one = job(2, ntasks=2, tasks_per_host=1, traffic=LIGHT)
    (candidate,) = MetronomePolicy().candidates(asked(one), snap).candidates
    assert candidate.score == 100


def test_jobs_without_a_rotation_are_kept_apart_while_other_hosts_are_free():
    running = placed(1, "a", "b", traffic=HEAVY)
    one = job(2, ntasks=2, tasks_per_host=1, traffic=HEAVY)
    assert hosts_of(MetronomePolicy().candidates(asked(one), four_hosts(running))) == [("c", "d")]


def test_when_the_nearest_zone_contends_the_free_zone_is_offered_next():
    hosts = [host(n, z) for n, z in (("a", "near"), ("b", "near"), ("c", "far"), ("d", "far"))]
    running = placed(1, "a", "b", traffic=HEAVY)
    snap = snapshot(*hosts, zones={"near": 1, "far": 9}, placed=[running])
    one = job(2, ntasks=2, tasks_per_host=1, traffic=HEAVY)
    found = list(islice(MetronomePolicy().candidates(asked(one), snap).candidates, 2))
    assert [c.placement.hosts for c in found] == [("a", "b"), ("c", "d")]
    assert found[0].score < 100 == found[1].score


def test_a_gang_takes_one_host_where_it_can_and_may_be_told_not_to():
    net = full_mesh("abcd", linkstats(delay_ms=0.3), a=linkstats(delay_ms=0.1))
    free = {"a": Free(1, 32 * GIB, ())}
    snap = snapshot(*(host(n, cpus=2) for n in "abcd"), net=net, free=free)
    assert hosts_of(MetronomePolicy().candidates(asked(job(ntasks=2)), snap)) == [("b",)]
    spread = MetronomePolicy(MetronomeOptions(compact=False))
    assert hosts_of(spread.candidates(asked(job(ntasks=2)), snap)) == [("a", "b")]


def test_low_comm_jobs_take_the_worst_connected_host():
    net = full_mesh("abcd", c=linkstats(delay_ms=9, mbps=50))
    one = job(low_comm=True)
    assert hosts_of(MetronomePolicy().candidates(asked(one), four_hosts(net=net))) == [("c",)]


def test_badly_connected_host_is_avoided_with_a_verdict():
    net = full_mesh("abcd", c=linkstats(delay_ms=0.1, mbps=50))
    one = job(ntasks=4, traffic=LIGHT)
    proposal = MetronomePolicy().candidates(asked(one), four_hosts(net=net), explain=True)
    assert "c" not in hosts_of(proposal)[0]
    (bad,) = [v for v in proposal.verdicts if v.refused]
    assert (bad.host, bad.refused.code) == ("c", ReasonCode.BAD_NETWORK)
    scored = dict(proposal.verdicts[0].scores)
    assert {"bandwidth", "latency", "latency_us", "network", "tasks"} <= scored.keys()


def test_equal_delays_are_settled_by_the_network_score():
    """Loss below the exclusion still decides, where Metronome alone would take list order."""
    net = full_mesh("abcd", a=linkstats(loss_pct=3), b=linkstats(loss_pct=3))
    one = job(ntasks=2, tasks_per_host=1, traffic=LIGHT)
    assert hosts_of(MetronomePolicy().candidates(asked(one), four_hosts(net=net))) == [("c", "d")]


def test_unknown_traffic_neither_contends_nor_is_reversed():
    running = placed(1, "a", "b", traffic=HEAVY)
    net = full_mesh("abcd", linkstats(delay_ms=0.1), c=linkstats(delay_ms=0.2), d=linkstats(delay_ms=0.2))
    one = job(2, ntasks=2, tasks_per_host=1)
    assert hosts_of(MetronomePolicy().candidates(asked(one), four_hosts(running, net=net))) == [("a", "b")]


def test_declared_rate_beyond_the_link_is_refused_with_numbers():
    one = job(ntasks=2, traffic=profile(200, (0, 50, 2_500)))
    proposal = MetronomePolicy().candidates(asked(one), four_hosts(), explain=True)
    assert list(proposal.candidates) == []
    assert proposal.reasons[0].code is ReasonCode.BANDWIDTH
    assert "2500 Mbit/s" in proposal.reasons[0].message
    assert {v.refused.code for v in proposal.verdicts} == {ReasonCode.BANDWIDTH}


def test_wrong_options_are_a_sentence():
    with pytest.raises(ConfigError, match="loop_test"):
        MetronomeOptions(loop_test="sometimes")


def test_a_profile_learnt_later_changes_the_choice():
    """The cache of link loads follows each new view of a placed job, and its end."""
    policy = MetronomePolicy()
    one = job(2, ntasks=2, tasks_per_host=1, traffic=HEAVY)
    unknown, known = placed(1, "a", "b"), placed(1, "a", "b", traffic=HEAVY)
    assert hosts_of(policy.candidates(asked(one), four_hosts(unknown))) == [("a", "b")]
    assert hosts_of(policy.candidates(asked(one), four_hosts(known))) == [("c", "d")]
    assert hosts_of(policy.candidates(asked(one), four_hosts())) == [("a", "b")]


@pytest.mark.parametrize("seed", seeds(40))
def test_a_run_of_tasks_goes_where_each_would_by_itself(seed, monkeypatch):
    chance = random.Random(seed)
    names = [f"h{i}" for i in range(8)]
    hosts = [host(name, gpus=chance.choice((1, 2, 4, 8))) for name in names]
    pairs = {
        (a, b): linkstats(0, chance.choice((0.001, 0.05, 0.05, chance.uniform(0.003, 1))), 900)
        for a, b in itertools.combinations(names, 2)
    }
    others = [
        placed(i, *chance.sample(names, 2), traffic=profile(100, (0, chance.choice((20, 60)), 800)))
        for i in range(1, 4)
    ]
    one = job(
        JOB,
        ntasks=chance.randint(2, 12),
        gpus_per_task=1,
        hosts_min=chance.choice((0, 0, 2)),
        **chance.choice(({}, {"low_comm": True}, {"traffic": profile(100, (0, 30, 500))})),
    )
    snap = snapshot(*hosts, net=network(pairs), placed=others)
    policy = MetronomePolicy(MetronomeOptions(mode=chance.choice(("default", "paper")), joint_jobs=0))

    def found():
        proposal = policy.candidates(asked(one), snap)
        return [(c.placement, c.score) for c in islice(proposal.candidates, 6)]

    at_once = found()
    monkeypatch.setattr(Stages, "_more_on", lambda *_: 0)
    assert at_once == found()


def test_a_gang_that_fits_on_one_host_is_chosen_with_one_look(monkeypatch):
    looks, choose = [], Stages.next_of
    monkeypatch.setattr(Stages, "next_of", lambda *args: looks.append(1) or choose(*args))
    one = job(JOB, ntasks=8, gpus_per_task=1, traffic=profile(100, (0, 30, 500)))
    snap = snapshot(host("a", gpus=8), host("b", gpus=8), net=full_mesh("a", "b"))
    candidate = next(MetronomePolicy().candidates(asked(one), snap).candidates)
    assert candidate.placement.hosts == ("a",)
    assert len(looks) == 1


def test_a_gang_stays_below_one_leaf_and_leaves_whole_hosts_whole():
    """Below l1 two hosts have room for half of it each; below l2 one of whole hosts would do with another."""
    leaf_of = {"a": "l1", "b": "l2", "c": "l1", "d": "l2", "e": "l2"}
    hosts = [host(name, gpus=4, nic_mbps=100) for name in leaf_of]
    wants = asked(job(1, ntasks=6, gpus_per_task=1, traffic=profile(200, (0, 50, 100))))
    snap = replace(snapshot(*hosts), fabric=Fabric(leaf_of, 2, 100_000_000))
    assert set(hosts_of(MetronomePolicy().candidates(wants, snap))[0]) == {"a", "c"}
    literal = MetronomePolicy(MetronomeOptions(mode="paper")).candidates(wants, snap)
    assert set(hosts_of(literal)[0]) == {"a", "b"}


def test_where_measured_delays_tell_hosts_apart_they_decide_before_leaves_do():
    leaf_of = {"a": "l1", "b": "l2", "c": "l1"}
    net = {
        (x, y): linkstats(0, 0.1 if "c" not in (x, y) else 2.0, 900) for x in "abc" for y in "abc" if x != y
    }
    hosts = [host(name, gpus=4, nic_mbps=1000) for name in leaf_of]
    snap = replace(snapshot(*hosts, net=net), fabric=Fabric(leaf_of, 2, 100_000_000))
    wants = asked(job(1, ntasks=6, gpus_per_task=1, traffic=profile(200, (0, 50, 100))))
    assert set(hosts_of(MetronomePolicy().candidates(wants, snap))[0]) == {"a", "b"}


def test_of_equal_hosts_a_job_of_one_host_takes_the_one_with_the_least_room():
    hosts = [host("a", gpus=4), host("b", gpus=2), host("c", gpus=3)]
    wants = asked(job(1, ntasks=2, gpus_per_task=1, traffic=profile(200, (0, 50, 100))))
    assert hosts_of(MetronomePolicy().candidates(wants, snapshot(*hosts))) == [("b",)]


def crowded(seed):
    """Hosts of one zone, most of whose links bear load, and a job to be placed beside that."""
    chance = random.Random(seed)
    hosts = [host(f"h{i}", gpus=4, nic_mbps=100) for i in range(10)]
    names = [h.name for h in hosts]

    def load():
        comm = chance.randint(20, 120)
        return profile(
            chance.choice((150, 200, 300, 400)), (chance.randint(0, 20), comm, chance.choice((60, 100)))
        )

    others = [placed(i, *chance.sample(names, 2), traffic=load(), sequence=i) for i in range(1, 9)]
    delays_us = {
        (a, b): linkstats(None, chance.choice((20, 20, 90)) / 1_000, None)
        for a, b in itertools.permutations(names, 2)
    }
    free = {name: Free(8, 32 * GIB, tuple(range(chance.randint(0, 4)))) for name in names}
    one = job(
        JOB,
        ntasks=chance.choice((2, 3, 4)),
        tasks_per_host=chance.choice((0, 1)),
        gpus_per_task=1,
        traffic=load(),
    )
    return one, snapshot(*hosts, net=network(delays_us), free=free, placed=others)


@pytest.mark.parametrize("seed", [*seeds(40), 94])  # with 94 a host is taken for whose score nobody looked
def test_scores_that_are_looked_for_one_by_one_choose_as_all_at_once(seed, monkeypatch):
    one, snap = crowded(seed)

    def answers():
        proposal = MetronomePolicy().candidates(asked(one), snap)
        found = islice(proposal.candidates, 6)
        explained = MetronomePolicy().candidates(asked(one), snap, explain=True).verdicts
        seen = [(c.placement, c.score, c.note, proposal.observe(c)().chosen) for c in found]
        return seen, proposal.reasons, explained

    late, one_by_one = answers(), Stages._bandwidth

    def all_at_once(stages, given):
        scores = one_by_one(stages, given)
        for number in np.flatnonzero(stages._unknown):
            stages._find(int(number), scores)
        return scores

    monkeypatch.setattr(Stages, "_bandwidth", all_at_once)
    assert answers() == late
