"""The contract of every queue, placement and communication policy, found through the registry.

A new policy file is checked here without any further line. Each example is made once, and tried with every
policy of the kind: to make them is most of the work. The note of a failure names the policy.
"""

import itertools
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from rm.core import registry
from rm.core.model.host import HostState
from rm.core.model.snapshot import Free, TrackedDict
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide
from tests.builders import GIB, asked, full_mesh, host, job, linkstats, placed, profile, snapshot
from tests.examples import examples

PLACEMENTS = registry.names("placement")
SETTINGS = settings(max_examples=examples(60))
FEWER = settings(SETTINGS, max_examples=examples(30))  # where one example is many placements
COMMS, QUEUES = registry.names("comm"), registry.names("queue")
CANDIDATES = 12  # how many of the lazy candidates are looked at


@st.composite
def clusters(draw, uniform_links: bool = False):
    """Up to five small hosts in up to two zones, some measured, some partly taken, maybe one down."""
    count = draw(st.integers(1, 5))
    names = [f"h{i}" for i in range(count)]
    hosts, free = [], {}
    for name in names:
        gpus = draw(st.sampled_from((3, 2, 1, 0)))
        one = host(
            name,
            draw(st.sampled_from(("near", "far"))),
            cpus=draw(st.sampled_from((8, 4, 2, 1))),
            mem_gib=8,
            gpus=gpus,
            gpu_model=draw(st.sampled_from(("A100", "V100"))),
            nic_mbps=1_000,
            state=draw(st.sampled_from((HostState.UP,) * 5 + (HostState.DOWN,))),
        )
        hosts.append(one)
        # of each GPU's 16 GiB: taken by one job alone, shared, or idle
        left = {i: draw(st.sampled_from((16, 16, 16, 10, 3, None))) for i in range(gpus)}
        free[name] = Free(
            draw(st.sampled_from((one.cpus, *range(one.cpus + 1)))),
            draw(st.sampled_from((8, 8, 8, 4, 2, 0))) * GIB,
            tuple(i for i, gib in left.items() if gib == 16),
            tuple((i, gib * GIB) for i, gib in left.items() if gib is not None),
        )
    net = {
        (a, b): linkstats(
            draw(st.sampled_from((0, 0, 5, 40))), draw(st.sampled_from((0.1, 0.3, 9))), 900, failures=0
        )
        for a, b in itertools.permutations(names, 2)
        if not uniform_links and draw(st.integers(0, 3))
    }
    loud = profile(200, (0, 120, 900))
    others = [
        placed(900 + i, *draw(st.lists(st.sampled_from(names), min_size=2, max_size=3)), traffic=loud)
        for i in range(draw(st.integers(0, 2)))
    ]
    known = [
        job(p.job, ntasks=len(p.placement.tasks), expected_us=draw(st.sampled_from((None, 5, 10**9))))
        for p in others
    ]
    return snapshot(*hosts, zones={"near": 1, "far": 20}, net=net, free=free, placed=others, jobs=known)


TRAFFICS = (None, profile(200, (0, 40, 500)), profile(200, (0, 120, 900)))


@st.composite
def jobs(draw, id: int = 1):
    ntasks = draw(st.integers(1, 5))
    hosts_min = draw(st.integers(0, min(3, ntasks)))
    tasks_per_host = draw(st.sampled_from((0, 0, 1, 2)))
    hosts_max = draw(st.sampled_from((0, 0, max(hosts_min, 1), hosts_min + 1)))
    asked = draw(st.sampled_from(("task", "task", "task", "host", "gpu")))
    gpus = {
        "gpus_per_task": draw(st.sampled_from((0, 0, 1, 2))),
        "gpu_bind": draw(st.sampled_from(("per_task", "none"))),
    }
    if asked == "host":
        gpus = {"gpus_per_host": draw(st.integers(1, 3))}
    elif asked == "gpu":  # several tasks to each GPU, all of which are used
        gpus = {"gpus_per_host": draw(st.integers(1, 2)), "ntasks_per_gpu": draw(st.integers(1, 2))}
        hosts_min = hosts_max = draw(st.integers(1, 2))
        tasks_per_host = gpus["gpus_per_host"] * gpus["ntasks_per_gpu"]
        ntasks = hosts_min * tasks_per_host
    memory = draw(st.sampled_from(("mem_gib", "mem_gib", "mem_gib", "mem_bytes_per_host", "mem_all")))
    sizes = {"mem_gib": st.integers(0, 2), "mem_all": st.just(True)}
    size = draw(sizes.get(memory, st.integers(1, 4).map(lambda gib: gib * GIB)))
    low_comm = draw(st.integers(0, 4)) == 0
    has_gpus = gpus.get("gpus_per_task") or gpus.get("gpus_per_host")
    return job(
        id,
        ntasks=ntasks,
        cpus_per_task=draw(st.integers(1, 2)),
        **{memory: size},
        **gpus,
        distribution=draw(st.sampled_from(("block", "block", "cyclic", "plane=2"))),
        gpu_type=draw(st.sampled_from(("", "", "", "", "a100"))),
        gpu_mem_bytes=draw(st.sampled_from((0, 0, 3, 9))) * GIB if has_gpus else 0,
        tasks_per_host=tasks_per_host,
        hosts_min=hosts_min,
        hosts_max=hosts_max,
        exclusive=draw(st.integers(0, 5)) == 0,
        low_comm=low_comm,
        traffic=None if low_comm else draw(st.sampled_from(TRAFFICS)),
        hosts_excluded=draw(st.sampled_from(((), (), (), ("h0",)))),
    )


def check_placement(one, snap, placement) -> None:
    """Gang-complete, within what is free, and as the user asked."""
    spec = one.spec
    assert [t.rank for t in placement.tasks] == list(range(spec.ntasks))
    assert [t.host for t in placement.tasks] == in_turn(spec, placement)
    assert not spec.hosts_max or len(placement.hosts) <= spec.hosts_max
    assert len(placement.hosts) >= spec.hosts_min
    for name in placement.hosts:
        mine, here, free = placement.on(name), snap.hosts[name], snap.free[name]
        gpus = placement.gpus_on(name)
        assert here.schedulable
        assert name not in spec.hosts_excluded
        assert not spec.tasks_per_host or len(mine) <= spec.tasks_per_host
        assert len(mine) * spec.cpus_per_task <= free.cpus
        assert memory(spec, len(mine), here) <= free.mem_bytes
        whole = spec.exclusive and not (spec.gpus_per_host or spec.gpus_per_task)
        assert len(gpus) == (
            len(here.gpus) if whole else spec.gpus_per_host or spec.gpus_per_task * len(mine)
        )
        if spec.ntasks_per_gpu:
            assert sorted(t.gpus for t in mine) == [(g,) for g in gpus for _ in range(spec.ntasks_per_gpu)]
        elif whole or spec.gpus_per_host or spec.gpu_bind == "none":
            assert all(t.gpus == gpus for t in mine)
        else:
            assert all(len(t.gpus) == spec.gpus_per_task for t in mine)
        assert set(gpus) <= set(usable(spec, free))
        models = {g.index: g.model.lower() for g in here.gpus}
        assert all(spec.gpu_type in models[g] for g in gpus)
        if spec.exclusive:
            assert free.cpus == here.cpus
            assert len(free.gpus) == len(here.gpus)


def in_turn(spec, placement):
    """The hosts of the ranks: one host after the other, or each in turn as long as it has more tasks."""
    left = [[name] * len(placement.on(name)) for name in placement.hosts]
    if spec.distribution == "block":
        return list(itertools.chain.from_iterable(left))
    size = {"cyclic": 1, "plane=2": 2}[spec.distribution]
    planes = [[names[at : at + size] for at in range(0, len(names), size)] for names in left]
    return [name for row in itertools.zip_longest(*planes, fillvalue=[]) for part in row for name in part]


def memory(spec, tasks, here):
    if spec.mem_all:
        return here.mem_bytes
    return tasks * spec.mem_bytes_per_task + spec.mem_bytes_per_host


def usable(spec, free):
    """The GPUs that a task may have: idle ones, or those with enough memory left to share."""
    if not spec.gpu_mem_bytes:
        return free.gpus
    return tuple(g for g, left in free.gpu_mem if left >= spec.gpu_mem_bytes)


def could_be_placed(one, snap) -> bool:
    """By trying every number of tasks on every host."""
    spec = one.spec

    def takes(name: str, tasks: int) -> bool:
        here, free = snap.hosts[name], snap.free[name]
        if tasks == 0:
            return True
        if not here.schedulable or name in spec.hosts_excluded:
            return False
        untouched = free.cpus == here.cpus and free.mem_bytes == here.mem_bytes
        if spec.exclusive and not (untouched and len(free.gpus) == len(here.gpus)):
            return False
        may = usable(spec, free)
        fitting = [g.index for g in here.gpus if spec.gpu_type in g.model.lower() and g.index in may]
        return (
            (not spec.tasks_per_host or tasks <= spec.tasks_per_host)
            and tasks * spec.cpus_per_task <= free.cpus
            and memory(spec, tasks, here) <= free.mem_bytes
            and (spec.gpus_per_host or tasks * spec.gpus_per_task) <= len(fitting)
        )

    for counts in itertools.product(range(spec.ntasks + 1), repeat=len(snap.hosts)):
        used = sum(1 for c in counts if c)
        if sum(counts) != spec.ntasks or used < spec.hosts_min:
            continue
        if spec.hosts_max and used > spec.hosts_max:
            continue
        if all(takes(name, c) for name, c in zip(snap.hosts, counts, strict=True)):
            return True
    return False


def each(kind, names):
    """The policies of a kind, anew; a failure notes which one was tried last."""
    for name in names:
        note(f"{kind} policy {name}")
        yield name, registry.load(kind, name)


@SETTINGS
@given(one=jobs(), snap=clusters())
def test_placements_are_complete_and_exist_whenever_the_job_fits(one, snap):
    fits = could_be_placed(one, snap)
    for _, policy in each("placement", PLACEMENTS):
        proposal = policy.candidates(asked(one), snap)
        found = list(islice(proposal.candidates, CANDIDATES))
        for candidate in found:
            check_placement(one, snap, candidate.placement)
        assert len({c.placement for c in found}) == len(found), "the same placement twice"
        assert bool(found) == fits
        if not found:
            assert proposal.reasons, "a job without a placement and without a reason"
            assert all(r.message and r.numbers for r in proposal.reasons)


@SETTINGS
@given(one=jobs(), snap=clusters(), other=clusters())
def test_placements_are_a_function_of_their_arguments(one, snap, other):
    """The same answer again, from an object with another past, and after an unrelated question."""
    for name, policy in each("placement", PLACEMENTS):
        first = list(islice(policy.candidates(asked(one), snap).candidates, CANDIDATES))
        list(islice(policy.candidates(asked(one), other).candidates, 2))
        assert list(islice(policy.candidates(asked(one), replace(snap)).candidates, CANDIDATES)) == first
        fresh = registry.load("placement", name).candidates(asked(one), snap, explain=True)
        assert list(islice(fresh.candidates, CANDIDATES)) == first, "explaining changes the answer"


@FEWER
@given(data=st.data())
def test_gpus_are_shared_within_their_memory_and_never_with_an_exclusive_holder(data):
    """Whatever a pass decides one after the other, from an idle cluster, told by the decisions alone."""
    hosts = [host(n, cpus=16, gpus=data.draw(st.integers(1, 3))) for n in ("h0", "h1", "h2")]
    waiting = [data.draw(jobs(id)) for id in range(1, data.draw(st.integers(2, 8)))]
    snap = snapshot(*hosts, jobs=waiting)
    for _, policy in each("placement", PLACEMENTS):
        policies = Policies(registry.load("queue", "fifo"), policy, registry.load("comm", "none"))
        result = decide(waiting, replace(snap, free=TrackedDict(snap.free)), policies, Tuning(), Blocked())
        check_shared(waiting, result.decisions)


def check_shared(waiting, decisions) -> None:
    asked = {j.id: j.spec for j in waiting}
    holders: dict[tuple[str, int], list[int]] = {}
    for decision in decisions:
        for name in decision.placement.hosts:
            for gpu in decision.placement.gpus_on(name):
                holders.setdefault((name, gpu), []).append(asked[decision.job].gpu_mem_bytes)
    for held in holders.values():
        assert sum(held) <= 16 * GIB
        assert 0 not in held or len(held) == 1
    alone = {j.job for j in decisions if asked[j.job].exclusive}
    for decision in decisions:
        if decision.job in alone:
            others = {h for d in decisions if d is not decision for h in d.placement.hosts}
            assert not others & set(decision.placement.hosts)


@SETTINGS
@given(one=jobs(), snap=clusters())
def test_explaining_judges_every_host(one, snap):
    for _, policy in each("placement", PLACEMENTS):
        proposal = policy.candidates(asked(one), snap, explain=True)
        best = next(proposal.candidates, None)
        assert [v.host for v in proposal.verdicts] == list(snap.hosts)
        for verdict in proposal.verdicts:
            if verdict.refused is not None:
                assert verdict.refused.message
                assert verdict.refused.numbers
                assert best is None or verdict.host not in best.placement.hosts


@SETTINGS
@given(one=jobs(), snap=clusters(), data=st.data())
def test_what_is_measured_first_does_not_matter(one, snap, data):
    """Only the inventory has an order; measurements, zones and free resources have none."""
    shuffled = replace(
        snap,
        network=replace(
            snap.network,
            pairs=dict(data.draw(st.permutations(list(snap.network.pairs.items())))),
        ),
        free=dict(data.draw(st.permutations(list(snap.free.items())))),
        placed=dict(reversed(snap.placed.items())),
        jobs=dict(reversed(snap.jobs.items())),
        zones=dict(reversed(snap.zones.items())),
    )
    for name, policy in each("placement", PLACEMENTS):
        answers = [
            list(islice(one_of.candidates(asked(one), s).candidates, CANDIDATES))
            for one_of, s in ((policy, snap), (registry.load("placement", name), shuffled))
        ]
        assert [c.placement for c in answers[0]] == [c.placement for c in answers[1]]


@pytest.mark.parametrize("name", PLACEMENTS)
def test_an_empty_cluster_is_a_reason_too(name):
    proposal = registry.load("placement", name).candidates(asked(job()), snapshot(), explain=True)
    assert list(proposal.candidates) == []
    assert proposal.reasons


WAITING = st.builds(
    lambda id, served_us, **fields: replace(job(id, **fields), served_us=served_us),
    st.integers(1, 50),
    served_us=st.sampled_from((0, 0, 7)),
    submitted_us=st.integers(0, 3),
    priority=st.integers(0, 2),
    ntasks=st.integers(1, 3),
    expected_us=st.sampled_from((None, 5, 6)),
    time_limit_us=st.sampled_from((None, 8)),
)


@SETTINGS
@given(pending=st.lists(WAITING, unique_by=lambda j: j.id, max_size=8), data=st.data())
def test_queue_orders_every_job_once_whatever_the_input_order(pending, data):
    snap = snapshot(now_us=10, jobs=pending)
    shuffled = data.draw(st.permutations(pending))
    for name, policy in each("queue", QUEUES):
        ordered = list(policy.order(pending, snap))
        assert sorted(j.id for j in ordered) == sorted(j.id for j in pending)
        assert list(policy.order(shuffled, snap)) == ordered
        assert list(registry.load("queue", name).order(ordered, snap)) == ordered
        kinds: dict[object, list[tuple[int, int]]] = {}
        for one in ordered:
            s = one.spec
            kind = s.priority, s.ntasks, s.expected_us, s.time_limit_us, one.served_us
            kinds.setdefault(kind, []).append((one.submitted_us, one.id))
        assert all(turns == sorted(turns) for turns in kinds.values()), "equals are not served in turn"


@SETTINGS
@given(data=st.data())
def test_alignments_name_their_jobs_and_ignore_the_order_of_input(data):
    hosts = [host(n) for n in ("a", "b", "c")]
    running = [
        placed(
            i + 1,
            *data.draw(st.permutations(("a", "b", "c")))[: data.draw(st.integers(1, 3))],
            traffic=data.draw(st.sampled_from(TRAFFICS)),
            priority=data.draw(st.sampled_from((0, 100))),
            low_comm=data.draw(st.booleans()),
        )
        for i in range(data.draw(st.integers(0, 3)))
    ]
    shuffled = data.draw(st.permutations(running))
    snap = snapshot(*hosts, net=full_mesh("abc"), placed=running)
    known = {p.job for p in running}
    for name, policy in each("comm", COMMS):
        alignment = policy.align(running, snap)
        named = {s.job for s in alignment.schedules} | set(alignment.unmatched)
        named |= {s.job for s in alignment.shaping} | {j for link in alignment.links for j in link.jobs}
        assert named <= known
        assert alignment.score <= 100
        assert alignment.links or alignment.score == 100
        assert registry.load("comm", name).align(shuffled, snap) == alignment
        for schedule in alignment.schedules:
            assert 0 <= schedule.shift_us < schedule.period_us
            assert not (schedule.reference and schedule.inject_us)
