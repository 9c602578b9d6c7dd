"""The fluid network against a naive simulation that computes all rates anew at every event."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.network.fabric import Fabric
from rm.errors import UsageError
from rm.sim.network import rates
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.network.port import Flow, Network, Transfer
from rm.sim.network.unfairness import Unfairness
from tests.examples import examples

FIXED = settings(max_examples=examples(150))
MBPS = 1e6  # one bit per microsecond
HOSTS = ["a", "b", "c", "d", "e"]
LEAVES = Fabric({"a": "l0", "b": "l0", "c": "l1", "d": "l1"}, 2, 4_000_000)  # e hangs on no leaf
Step = tuple[float, str, tuple[object, ...]]  # when, which method, its arguments before the time


def ring(hosts: str, bits: float, **more: object) -> tuple[Flow, ...]:
    return tuple(Flow(a, b, bits, **more) for a, b in zip(hosts, hosts[1:] + hosts[0], strict=True))  # type: ignore[arg-type]


def transfer(
    number: int, flows: tuple[Flow, ...], size_bytes: float = 0.0, job: int | None = None
) -> Transfer:
    hosts = tuple(dict.fromkeys(h for f in flows for h in (f.source, f.destination)))
    return Transfer(number, number if job is None else job, hosts, flows, size_bytes)


def play(network: Network, steps: Sequence[Step]) -> dict[int, float]:
    """Carry out the steps and whatever follows; when each transfer was told to have ended."""
    ended: dict[int, float] = {}
    left = sorted(steps, key=lambda step: step[0])
    while True:
        due = network.next_us()
        if left and (due is None or left[0][0] < due):
            when, what, arguments = left.pop(0)
            ended |= dict.fromkeys(network.advance(when), when)
            if what == "begin" or arguments[0] not in ended:
                getattr(network, what)(*arguments, when)
        elif due is None:
            return ended
        else:
            ended |= dict.fromkeys(network.advance(due), due)


@dataclass(eq=False)
class Part:
    """A stream of the naive simulation."""

    of: int
    left: float
    cap: float
    share: float
    loads: dict[int, float]
    priority: int
    weight: float
    on: bool = True
    rate: float = field(default=0.0)


def fill(capacity: Sequence[float], parts: list[Part]) -> None:
    room = list(capacity)
    for part in parts:
        part.rate = 0.0
    for priority in sorted({p.priority for p in parts}):
        growing = [p for p in parts if p.priority == priority]
        while growing:
            step = min((p.cap - p.rate) / p.weight for p in growing)
            for link, left in enumerate(room):
                pull = sum(p.weight * p.loads.get(link, 0.0) for p in growing)
                if pull:
                    step = min(step, left / pull)
            for part in growing:
                part.rate += step * part.weight
                for link, load in part.loads.items():
                    room[link] -= step * part.weight * load
            full = {i for i, left in enumerate(room) if left < 1e-9}
            growing = [p for p in growing if p.cap - p.rate > 1e-9 and not full & set(p.loads)]


def naive(topology: Topology, steps: Sequence[Step], lockstep: bool) -> dict[int, float]:
    capacity = [c / MBPS for c in topology.capacity_bps]
    parts: list[Part] = []
    ended: dict[int, float] = {}
    left = sorted(steps, key=lambda step: step[0])
    now = 0.0
    while left or parts:
        fill(capacity, [p for p in parts if p.on])
        due = min((now + p.left / p.rate for p in parts if p.on and p.rate > 1e-12), default=inf)
        when = left[0][0] if left else inf
        if due == when == inf:
            break
        until = min(due, when)
        for part in parts:
            if part.on:
                part.left -= part.rate * (until - now)
        now = until
        for part in [p for p in parts if p.on and p.left <= 1e-7]:
            parts.remove(part)
            if all(p.of != part.of for p in parts):
                ended[part.of] = now
        while left and left[0][0] <= now:
            _, what, arguments = left.pop(0)
            if what == "begin":
                parts += streams(topology, arguments[0], lockstep)  # type: ignore[arg-type]
                continue
            for part in parts:
                if part.of == arguments[0]:
                    if what == "recap":
                        part.cap = min(1e3, float(arguments[1]) / MBPS * part.share)  # type: ignore[arg-type]
                    else:
                        part.on = what == "resume"
    return ended


def streams(topology: Topology, one: Transfer, lockstep: bool) -> list[Part]:
    apart = [
        Part(one.id, f.size_bits * share, min(1e3, f.cap_bps / MBPS * share), share, dict.fromkeys(path, 1.0),
             f.priority, f.weight * share)
        for f, share, path in topology.subflows(one)
    ]  # fmt: skip
    if not lockstep:
        return apart
    joined = []
    largest = max(f.size_bits for f in one.flows)
    for priority, weight in dict.fromkeys((f.priority, f.weight) for f in one.flows):
        mine = [
            (f, s, p) for f, s, p in topology.subflows(one) if (f.priority, f.weight) == (priority, weight)
        ]
        largest = max(f.size_bits for f, _, _ in mine)
        loads: dict[int, float] = {}
        for flow, share, path in mine:
            for link in path:
                loads[link] = loads.get(link, 0.0) + share * flow.size_bits / largest
        cap = min([1e3, *(f.cap_bps / MBPS * largest / f.size_bits for f, _, _ in mine)])
        joined.append(Part(one.id, largest, cap, 1.0, loads, priority, weight))
    return joined


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Topology, list[Step], bool]:
    fabric = draw(st.sampled_from([None, LEAVES]))
    ecmp = draw(st.sampled_from(["connection", "transfer"]))
    duplex = draw(st.booleans())
    topology = Topology(
        dict.fromkeys(HOSTS, 10 * MBPS), fabric, ecmp=ecmp, duplex=duplex, seed=draw(st.integers(0, 9))
    )
    when = st.integers(0, 60).map(float)
    flow = st.builds(
        Flow,
        st.sampled_from(HOSTS[:2]),
        st.sampled_from(HOSTS[2:]),
        st.sampled_from([30.0, 60.0, 100.0, 170.0]),
        st.sampled_from([inf, inf, 3 * MBPS]),
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([1.0, 1.0, 2.0]),
        st.sampled_from([(), (), ((0, 0.5), (1, 0.5)), ((1, 1.0),), ((0, 0.25), (1, 0.75))]),
    )
    rings = st.builds(
        ring,
        st.permutations(HOSTS).flatmap(lambda p: st.integers(2, 5).map(lambda n: "".join(p[:n]))),
        st.just(90.0),
    )
    some = st.one_of(rings, st.lists(flow, min_size=1, max_size=3).map(tuple))
    said = draw(st.lists(some, min_size=1, max_size=4))  # jobs repeat themselves, also at one time
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 6))):
        begins = draw(when)
        flows, job = draw(st.sampled_from(said)), draw(st.integers(0, 2))
        steps.append((begins, "begin", (transfer(number, flows, job=job),)))
        if draw(st.integers(0, 3)) == 0:
            stops = begins + draw(st.integers(0, 20))
            steps.append((stops, "suspend", (number,)))
            steps.append((stops + draw(st.integers(0, 20)), "resume", (number,)))
        if draw(st.integers(0, 3)) == 0:
            steps.append(
                (
                    begins + draw(st.integers(0, 20)),
                    "recap",
                    (number, draw(st.sampled_from([MBPS, 4 * MBPS]))),
                )
            )
    return topology, steps, draw(st.booleans())


@FIXED
@given(scripts())
def test_transfers_end_when_the_naive_simulation_says(script: tuple[Topology, list[Step], bool]) -> None:
    topology, steps, lockstep = script
    wanted = pytest.approx(naive(topology, steps, lockstep), rel=1e-6)
    assert play(Fluid(topology, lockstep=lockstep), steps) == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "FEW", 0)  # so that changes spread as they do among many streams
        assert play(Fluid(topology, lockstep=lockstep), steps) == wanted


@pytest.mark.parametrize("lockstep", [False, True])
def test_spreading_among_many_streams_finds_the_same_rates(lockstep: bool) -> None:
    chance = random.Random(7)
    hosts = [f"h{i}" for i in range(40)]
    fabric = Fabric({h: f"leaf{i // 8}" for i, h in enumerate(hosts)}, 3, 20_000_000)
    topology = Topology(dict.fromkeys(hosts, 10 * MBPS), fabric)
    steps: list[Step] = []
    for number in range(120):
        members = chance.sample(hosts, chance.randint(2, 8))
        bits, priority = chance.uniform(100, 900), chance.choice([0, 0, 0, 1])
        flows = tuple(
            Flow(a, b, bits, priority=priority)
            for a, b in zip(members, members[1:] + members[:1], strict=True)
        )
        steps.append((chance.uniform(0, 1500), "begin", (transfer(number, flows),)))
    spread = play(Fluid(topology, lockstep=lockstep), steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "FEW", 10_000)
        assert play(Fluid(topology, lockstep=lockstep), steps) == pytest.approx(spread, rel=1e-9)


@FIXED
@given(scripts())
def test_links_carry_what_the_transfers_brought(script: tuple[Topology, list[Step], bool]) -> None:
    topology, steps, lockstep = script
    network = Fluid(topology, lockstep=lockstep)
    ended = play(network, steps)
    carried = [0.0] * len(topology.names)
    for _, what, (one, *_) in steps:
        if what == "begin":
            assert isinstance(one, Transfer)
            assert one.id in ended
            for flow, share, path in topology.subflows(one):
                for link in path:
                    carried[link] += flow.size_bits * share
    usage = network.usage()
    assert [usage[name].carried_bits for name in topology.names] == pytest.approx(carried)
    for name, capacity in zip(topology.names, topology.capacity_bps, strict=True):
        used = usage[name]
        assert used.carried_bits <= capacity / MBPS * used.busy_us * (1 + 1e-9) + 1e-6
        assert used.overloaded_us <= used.busy_us + 1e-6


class Curious(Fluid):
    """Is asked for everything whenever anything happens."""

    begun: frozenset[int] = frozenset()

    def begin(self, transfer: Transfer, now_us: float) -> None:
        super().begin(transfer, now_us)
        self.begun = self.begun | {transfer.id}

    def advance(self, now_us: float) -> list[int]:
        ended = super().advance(now_us)
        self.begun = self.begun.difference(ended)
        for number in self.begun:
            assert self.left_bytes(number, now_us) >= 0
        self.usage()
        return ended


@FIXED
@given(scripts())
def test_asking_changes_nothing(script: tuple[Topology, list[Step], bool]) -> None:
    topology, steps, lockstep = script
    quiet = play(Fluid(topology, lockstep=lockstep), steps)
    assert play(Curious(topology, lockstep=lockstep), steps) == quiet


def test_two_rings_over_one_host_share_its_links_both_ways() -> None:
    topology = Topology(dict.fromkeys("abcd", 10 * MBPS))
    steps: list[Step] = [
        (0.0, "begin", (transfer(1, ring("abc", 100)),)),
        (10.0, "begin", (transfer(2, ring("ad", 100)),)),
    ]
    # alone, 1 would end at 10: so they never meet
    assert play(Fluid(topology), steps) == {1: 10.0, 2: 20.0}
    steps[1] = (4.0, *steps[1][1:])
    # 60 bits left each way at 4, at half the rate until 16; then 2 has 40 left for itself
    assert play(Fluid(topology), steps) == {1: 16.0, 2: 20.0}
    network = Fluid(topology)
    assert play(network, steps) == {1: 16.0, 2: 20.0}
    used = network.usage()["a:out"]
    assert (used.carried_bits, used.busy_us, used.overloaded_us, used.excess_bits) == (
        200.0,
        20.0,
        12.0,
        120.0,
    )
    assert network.usage()["b:out"].overloaded_us == 0.0


def test_whoever_begins_beside_others_counts_less_until_it_ends() -> None:
    """3 Mbit each on 1 Mbit/s: alone for 1 s, then at 2/3 and 1/3 Mbit/s, then the second alone."""
    one, two = (transfer(n, ring("ab", 3e6)) for n in (1, 2))
    steps: list[Step] = [(0.0, "begin", (one,)), (1e6, "begin", (two,))]
    topology = Topology(dict.fromkeys("ab", MBPS))
    for _ in range(2):  # the second time the rates are remembered
        ended = play(Fluid(topology, lockstep=True, unfair=Unfairness(0.5)), steps)
        assert ended == {1: pytest.approx(4e6), 2: pytest.approx(6e6)}
    together: list[Step] = [(0.0, "begin", (one,)), (0.0, "begin", (two,))]
    assert play(Fluid(topology, lockstep=True, unfair=Unfairness(0.5)), together) == {1: 6e6, 2: 6e6}
    with pytest.raises(UsageError, match=r"A newcomer counts by 0 of its weight\."):
        Unfairness(0)


def test_the_longer_others_are_under_way_the_less_a_newcomer_counts() -> None:
    """After half of the head start by 3/4: then they share by 4/7 and 3/7 until the first has its 2.5."""
    one, two = transfer(1, ring("ab", 2.5e6)), transfer(2, ring("ab", 3e6))
    topology = Topology(dict.fromkeys("ab", MBPS))
    steps: list[Step] = [(0.0, "begin", (one,)), (0.5e6, "begin", (two,))]
    unfair = Unfairness(0.5, head_start_us=1e6)
    ended = play(Fluid(topology, lockstep=True, unfair=unfair), steps)
    assert ended == {1: pytest.approx(4e6), 2: pytest.approx(5.5e6)}


def test_a_new_cap_leaves_a_newcomer_its_weight() -> None:
    one, two = (transfer(n, ring("ab", 3e6)) for n in (1, 2))
    topology = Topology(dict.fromkeys("ab", MBPS))
    steps: list[Step] = [(0.0, "begin", (one,)), (1e6, "begin", (two,)), (1.5e6, "recap", (2, 0.9 * MBPS))]
    ended = play(Fluid(topology, lockstep=True, unfair=Unfairness(0.5)), steps)
    assert ended[1] == pytest.approx(4e6)


def test_luck_differs_between_transfers_and_is_the_same_again() -> None:
    """Like jobs that begin together end apart, now the one first and now the other."""

    def first_ends(seed: int) -> list[int]:
        topology = Topology(dict.fromkeys("ab", MBPS), seed=seed)
        network = Fluid(topology, lockstep=True, unfair=Unfairness(luck=0.3))
        found = []
        for turn in range(40):
            begin_us = turn * 1e7
            for job in (1, 2):
                network.begin(Transfer(2 * turn + job, job, ("a", "b"), ring("ab", 3e6)), begin_us)
            ends = network.advance(begin_us + 5.9999e6)
            assert not network.next_us() or network.next_us() == pytest.approx(begin_us + 6e6)
            network.advance(begin_us + 7e6)
            found += [end % 2 for end in ends]
        return found

    ends = first_ends(1)
    assert {0, 1} == set(ends)
    assert ends == first_ends(1) != first_ends(2)
    with pytest.raises(UsageError, match=r"Use 0 to 2\."):
        Unfairness(luck=-0.1)


@pytest.mark.parametrize("lockstep", [True, False])
def test_an_uplink_that_several_jobs_share_carries_less(lockstep: bool) -> None:
    """8 Mbit over 4 Mbit/s: alone for 1 s; both at 1.5 until the second has its 3; alone again."""
    topology = Topology(dict.fromkeys("abcd", 10 * MBPS), replace(LEAVES, spines=1))
    one, two = transfer(1, (Flow("a", "c", 8e6),)), transfer(2, (Flow("b", "d", 3e6),))
    steps: list[Step] = [(0.0, "begin", (one,)), (1e6, "begin", (two,))]
    ended = play(Fluid(topology, lockstep=lockstep, shared_loss=0.25), steps)
    assert ended == {2: pytest.approx(3e6), 1: pytest.approx(3.25e6)}
    mine = [(0.0, "begin", (one,)), (1e6, "begin", (replace(two, job=1),))]
    assert play(Fluid(topology, shared_loss=0.25), mine)[2] == pytest.approx(2.5e6), "one job shares nothing"
    with pytest.raises(UsageError, match=r"A shared link loses 1 of itself\."):
        Fluid(topology, shared_loss=1)


@pytest.mark.parametrize(("priority", "ends_us"), [(0, (5e6, 4e6)), (1, (2e6, 3e6))])
def test_a_queue_that_several_jobs_share_idles_at_times(priority: int, ends_us: tuple[float, float]) -> None:
    """20 Mbit over 10 Mbit/s, and 10 more of another job: together they have 5 Mbit/s. One that waits for the
    other's class does not meet it."""
    topology = Topology(dict.fromkeys("ab", 10 * MBPS))
    one = transfer(1, (Flow("a", "b", 20e6), Flow("b", "a", 20e6)))
    two = transfer(2, (Flow("a", "b", 10e6, priority=priority), Flow("b", "a", 10e6, priority=priority)))
    unfair = Unfairness(loss=0.5)
    ended = play(
        Fluid(topology, lockstep=True, unfair=unfair), [(0.0, "begin", (one,)), (0.0, "begin", (two,))]
    )
    assert ended == {1: pytest.approx(ends_us[0]), 2: pytest.approx(ends_us[1])}
    with pytest.raises(UsageError, match=r"loses -0\.1 of itself\."):
        Unfairness(loss=-0.1)


def test_what_begins_on_a_shared_link_has_all_of_it_once_it_is_alone() -> None:
    """Two have 5 of 10 Mbit/s together, from 1 s on three; at 2.5 s the two have ended."""
    sizes, begins = (5e6, 5e6, 10e6), (0.0, 0.0, 1e6)
    steps: list[Step] = [
        (begin, "begin", (transfer(n, (Flow("a", "b", size),)),))
        for n, (size, begin) in enumerate(zip(sizes, begins, strict=True), 1)
    ]
    ended = play(Fluid(Topology(dict.fromkeys("ab", 10 * MBPS)), unfair=Unfairness(loss=0.5)), steps)
    assert ended == {1: pytest.approx(2.5e6), 2: pytest.approx(2.5e6), 3: pytest.approx(3.25e6)}


def test_in_step_no_flow_of_a_ring_runs_ahead() -> None:
    """A throttled flow holds up its ring, and the others leave to a second ring what they cannot use."""
    topology = Topology(dict.fromkeys("abc", 10 * MBPS))
    slow = (Flow("a", "b", 100, cap_bps=2 * MBPS), Flow("b", "a", 100))
    steps: list[Step] = [
        (0.0, "begin", (transfer(1, slow),)),
        (0.0, "begin", (transfer(2, (Flow("b", "c", 160),)),)),
    ]
    assert play(Fluid(topology, lockstep=True), steps) == pytest.approx({1: 50.0, 2: 20.0})
    assert play(Fluid(topology), steps) == pytest.approx({1: 50.0, 2: 26.0})


def test_a_lower_priority_waits_until_the_upper_has_ended() -> None:
    topology = Topology(dict.fromkeys("ab", 10 * MBPS))
    high, low = Flow("a", "b", 100), Flow("a", "b", 50, priority=1)
    network = Fluid(topology)
    network.begin(transfer(1, (low,), size_bytes=1000), 0.0)
    network.begin(transfer(2, (high,)), 2.0)
    assert network.next_us() == 12.0
    assert network.left_bytes(1, 5.0) == pytest.approx(600.0)
    assert network.advance(12.0) == [2]
    assert network.next_us() == 15.0


def test_one_link_a_host_counts_both_directions() -> None:
    topology = Topology(dict.fromkeys("ab", 10 * MBPS), duplex=False)
    assert topology.names == ["a", "b"]
    assert play(Fluid(topology), [(0.0, "begin", (transfer(1, ring("ab", 100)),))]) == {1: 20.0}


def test_ideal_gives_each_job_all_links() -> None:
    topology = Topology(dict.fromkeys("abc", 10 * MBPS))
    steps: list[Step] = [
        (0.0, "begin", (transfer(1, ring("ab", 100)),)),
        (0.0, "begin", (transfer(2, ring("abc", 50)),)),
        (0.0, "begin", (transfer(3, (Flow("a", "b", 50), Flow("a", "c", 100))),)),
    ]
    network = Ideal(topology)
    assert play(network, steps) == {1: 10.0, 2: 5.0, 3: 15.0}
    assert network.usage()["a:out"].carried_bits == 300.0
    assert all(used.excess_bits == 0 for used in network.usage().values())


def test_what_needs_no_network_ends_at_once_but_not_before_it_is_asked() -> None:
    network = Fluid(Topology({"a": MBPS}))
    network.begin(transfer(1, (Flow("a", "a", 1e9),)), 7.0)
    network.begin(Transfer(2, 2, ("a",)), 7.0)
    network.begin(transfer(3, (Flow("a", "a", 8, cap_bps=MBPS),)), 7.0)
    assert network.next_us() == 7.0
    assert network.left_bytes(1, 7.0) == 0.0
    assert network.advance(7.0) == [1, 2]
    assert play(network, []) == {3: 15.0}


def test_ends_that_were_missed_are_told_in_order_and_rates_change_in_between() -> None:
    topology = Topology(dict.fromkeys("ab", 10 * MBPS))
    network = Fluid(topology)
    for number, bits in ((9, 20), (4, 20), (1, 100)):
        network.begin(transfer(number, (Flow("a", "b", bits),)), 0.0)
    network.begin(transfer(2, (Flow("b", "a", 10),)), 100.0)
    assert network.left_bytes(1, 100.0) == 0.0
    assert network.advance(100.0) == [4, 9, 1]
    assert network.next_us() == 101.0


@pytest.mark.parametrize("begin_us", [0.0, 1e6, 1e12])
@pytest.mark.parametrize("lockstep", [False, True])
def test_each_advance_gets_on(begin_us: float, lockstep: bool) -> None:
    """No event is repeated for the sake of a rounding error, however long the clock has run."""
    network = Fluid(Topology(dict.fromkeys(HOSTS, 7 * MBPS)), lockstep=lockstep)
    for number in range(40):
        hosts = "".join(HOSTS[(number + i) % 5] for i in range(2 + number % 4))
        network.begin(transfer(number, ring(hosts, 1e-7 * 13**number / 3)), begin_us)
    told, times = [], 0
    while (due := network.next_us()) is not None:
        told += network.advance(due)
        times += 1
    assert sorted(told) == list(range(40))
    assert times <= sum(2 + number % 4 for number in range(40))


def test_a_suspended_transfer_leaves_its_links_to_others() -> None:
    topology = Topology(dict.fromkeys("ab", 10 * MBPS))
    network = Fluid(topology)
    network.begin(transfer(1, (Flow("a", "b", 100),), size_bytes=12.5), 0.0)
    network.suspend(1, 4.0)
    network.suspend(1, 5.0)
    assert network.next_us() is None
    assert network.left_bytes(1, 50.0) == pytest.approx(7.5)
    network.begin(transfer(2, (Flow("a", "b", 100),)), 50.0)
    assert network.next_us() == 60.0
    network.resume(1, 55.0)
    assert play(network, []) == {2: 65.0, 1: 66.0}


def test_wrong_requests_are_refused_in_sentences() -> None:
    network = Fluid(Topology(dict.fromkeys("abcd", MBPS), LEAVES))
    with pytest.raises(UsageError, match="no host 'z'"):
        network.begin(transfer(1, (Flow("a", "z", 1),)), 0.0)
    with pytest.raises(UsageError, match="spine 7"):
        network.begin(transfer(1, (Flow("a", "c", 1, route=((7, 1.0),)),)), 0.0)
    with pytest.raises(UsageError, match="whole flow"):
        network.begin(transfer(1, (Flow("a", "c", 1, route=((0, 0.5),)),)), 0.0)
    with pytest.raises(UsageError, match="weight 0"):
        network.begin(transfer(1, (Flow("a", "b", 1, weight=0.0),)), 0.0)
    with pytest.raises(UsageError, match="capacity 0"):
        Topology({"a": 0})
    with pytest.raises(ValueError, match="no transfer 1"):
        network.suspend(1, 0.0)
    assert network.next_us() is None
