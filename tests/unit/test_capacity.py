"""The table of capacities against counting host by host, through passes and from pass to pass."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs.free import all_of, take
from rm.core.jobs.room import capacity, gpus_for
from rm.core.model.host import HostState
from rm.core.model.job import TaskPlacement
from rm.core.model.snapshot import TrackedDict
from rm.policies.placement.steps.capacity import LatestCapacities
from tests.builders import GIB, host, snapshot, spec
from tests.examples import examples

SETTINGS = settings(max_examples=examples(80))
HOSTS = st.builds(
    lambda i, **more: host(f"h{i}", cpus=6, mem_gib=4, **more),
    st.integers(0, 3),
    gpus=st.integers(0, 3),
    gpu_model=st.sampled_from(("A100", "V100")),
    state=st.sampled_from((HostState.UP, HostState.UP, HostState.DOWN)),
)
SPECS = st.builds(
    lambda gpus, gpu_mem_bytes, **more: spec(
        gpus_per_task=gpus, gpu_mem_bytes=gpu_mem_bytes if gpus else 0, **more
    ),
    gpus=st.integers(0, 2),
    gpu_mem_bytes=st.sampled_from((0, 5 * GIB, 10 * GIB)),
    gpu_type=st.sampled_from(("", "", "a100")),
    mem_gib=st.sampled_from((0, 1)),
    exclusive=st.sampled_from((False, False, True)),
    hosts_excluded=st.sampled_from(((), ("h1",))),
    tasks_per_host=st.sampled_from((0, 1)),
)


@SETTINGS
@given(
    hosts=st.lists(HOSTS, min_size=1, max_size=4, unique_by=lambda h: h.name),
    asked=st.lists(st.tuples(SPECS, st.integers(0, 3), st.integers(0, 2)), max_size=8),
)
def test_capacities_follow_what_is_taken_in_a_pass_and_between_passes(hosts, asked):
    latest = LatestCapacities()
    snap = snapshot(*hosts)
    snap = replace(snap, free=TrackedDict(snap.free))
    for one, at, then in asked:
        shape = one.demand.shape
        caps = latest.under(snap).of(shape)
        assert list(caps) == [capacity(h, snap.free[h.name], shape) for h in hosts]
        here = hosts[at % len(hosts)]
        if caps[at % len(hosts)]:
            usable = latest.under(snap).usable(shape)[at % len(hosts)]
            gpus = [g.index for g, may in zip(here.gpus, usable, strict=False) if may]
            task = TaskPlacement(0, here.name, tuple(gpus[: one.gpus_per_task]))
            snap.free[here.name] = take(snap.free[here.name], one, (task,))
        if then == 1:  # another pass, in which one host has come free
            free = TrackedDict(snap.free)
            dict.__setitem__(free, here.name, all_of(here))
            snap = replace(snap, free=free)
        elif then == 2:  # a host has changed
            states = {HostState.UP: HostState.DOWN, HostState.DOWN: HostState.UP}
            hosts = [replace(h, state=states[h.state]) if h is here else h for h in hosts]
            snap = replace(snap, hosts={h.name: h for h in hosts}, free=TrackedDict(snap.free))


def test_a_type_is_a_part_of_the_model_or_what_sinfo_shows_of_it():
    one = host("h0", gpus=2, gpu_model="NVIDIA H100 80GB HBM3")
    capacities = LatestCapacities().under(snapshot(one))
    for kind, gpus in (
        ("h100", (0, 1)),
        ("nvidia_h100_80gb_hbm3", (0, 1)),
        ("NVIDIA_H100", (0, 1)),
        ("a100", ()),
    ):
        shape = spec(gpus_per_task=1, gpu_type=kind).demand.shape
        assert gpus_for(one, all_of(one), shape) == gpus
        assert list(capacities.of(shape)) == [len(gpus)]


def test_capacities_are_those_of_hosts_that_are_other_ones_now():
    """With other GPUs, or in another zone, which the tables of the snapshot before say nothing of."""
    before = [host("h0", "z1", gpus=2, gpu_model="V100"), host("h1", "z1", gpus=2), host("h2", "z2", gpus=2)]
    zones = {"z1": 1, "z2": 2}
    wanted = spec(gpus_per_task=1, gpu_type="a100").demand.shape
    latest = LatestCapacities()
    first = latest.under(snapshot(*before, zones=zones))
    assert list(first.of(wanted)) == [0, 2, 2]
    assert first.in_zones(first.of(wanted)) == {"z1": 2, "z2": 2}
    typed = [replace(before[0], gpus=before[1].gpus), *before[1:]]
    assert list(latest.under(snapshot(*typed, zones=zones)).of(wanted)) == [2, 2, 2]
    others = [typed[0], replace(before[1], zone="z2"), before[2]]
    now = latest.under(snapshot(*others, zones=zones))
    assert now.in_zones(now.of(wanted)) == {"z1": 2, "z2": 4}
    renamed = [replace(one, name=f"n{i}") for i, one in enumerate(others)]
    assert latest.under(snapshot(*renamed, zones=zones)).number == {"n0": 0, "n1": 1, "n2": 2}
    smaller = [replace(one, cpus=1) for one in renamed]
    assert list(latest.under(snapshot(*smaller, zones=zones)).total[0]) == [1, 1, 1]
