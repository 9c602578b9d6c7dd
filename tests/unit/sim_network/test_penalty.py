"""The contention penalty model against its formula and a naive simulation."""

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.errors import UsageError
from rm.sim.network.penalty import Penalty
from rm.sim.network.port import Transfer
from tests.examples import examples

FIXED = settings(max_examples=examples(200))
MS = 1000.0
MB = 1e6
HOSTS = ["a", "b", "c", "d"]
Step = tuple[float, str, Transfer]


def transfer(number: int, hosts: str, size_bytes: float) -> Transfer:
    return Transfer(number, number, tuple(hosts), size_bytes=size_bytes)


def play(network: Penalty, steps: Sequence[Step]) -> dict[int, float]:
    """Carry out the steps and whatever follows; when each transfer was told to have ended."""
    ended: dict[int, float] = {}
    left = sorted(steps, key=lambda step: step[0])
    while True:
        due = network.next_us()
        if left and (due is None or left[0][0] < due):
            when, what, one = left.pop(0)
            ended |= dict.fromkeys(network.advance(when), when)
            if what == "begin":
                network.begin(one, when)
            elif one.id not in ended:
                getattr(network, what)(one.id, when)
        elif due is None:
            return ended
        else:
            ended |= dict.fromkeys(network.advance(due), due)


def naive(a: float, b: float, eta: float, steps: Sequence[Step]) -> dict[int, float]:
    """Each transfer's latency and bytes, brought forward from event to event."""
    state: dict[int, list[float]] = {}  # latency and bytes left
    on: dict[int, set[str]] = {}
    stopped: dict[int, set[str]] = {}
    ended: dict[int, float] = {}
    left = sorted(steps, key=lambda step: step[0])
    now = 0.0
    while left or on:
        k = {i: max(sum(h in other for other in on.values()) for h in hosts) for i, hosts in on.items()}
        pace = {i: n * b + (n - 1) * eta for i, n in k.items()}
        due = min((now + state[i][0] + state[i][1] * pace[i] for i in on), default=inf)
        until = min([due, *(now + state[i][0] for i in on if state[i][0] > 1e-9), *(s[0] for s in left[:1])])
        for i in on:
            waited = min(state[i][0], until - now)
            state[i][0] -= waited
            state[i][1] -= (until - now - waited) / pace[i]
        now = until
        for i in [i for i in on if state[i][0] <= 1e-9 and state[i][1] <= 1e-6]:
            ended[i] = now
            del on[i]
        while left and left[0][0] <= now:
            _, what, one = left.pop(0)
            if what == "begin":
                state[one.id] = [a, one.size_bytes]
                on[one.id] = set(one.hosts)
            elif what == "suspend" and one.id in on:
                stopped[one.id] = on.pop(one.id)
            elif what == "resume" and one.id in stopped:
                on[one.id] = stopped.pop(one.id)
    return ended


@pytest.mark.parametrize(("ways", "ms"), [(1, 85.969), (2, 194.769), (3, 303.569)])
def test_the_formula(ways: int, ms: float) -> None:
    network = Penalty(0.669 * MS, 0.853 * MS / MB, 0.235 * MS / MB)
    steps = [(0.0, "begin", transfer(i, "ab", 100 * MB)) for i in range(ways)]
    assert play(network, steps) == pytest.approx(dict.fromkeys(range(ways), ms * MS))


def test_k_is_counted_on_each_host_and_changes_with_every_begin_and_end() -> None:
    """b = 1, eta = 1/4 ms/MB. 2 meets 1 on b and 3 on c; 1 and 3 do not meet."""
    network = Penalty(0.0, MS / MB, 0.25 * MS / MB)
    steps: list[Step] = [
        (0.0, "begin", transfer(1, "ab", 100 * MB)),
        (50 * MS, "begin", transfer(2, "bc", 40 * MB)),
        (95 * MS, "begin", transfer(3, "cd", 100 * MB)),
    ]
    # at 95, 1 has 30 and 2 has 20 left; both drain in 2.25 a MB, so 2 ends at 140 and 1 has 10 left
    assert play(network, steps) == pytest.approx({2: 140 * MS, 1: 150 * MS, 3: 220 * MS})
    used = network.usage()
    assert used["b"].carried_bits == pytest.approx(8 * 140 * MB)
    assert used["b"].busy_us == pytest.approx(150 * MS)
    assert used["b"].overloaded_us == pytest.approx(90 * MS)
    assert used["c"].excess_bits == pytest.approx(8 * 45 * MB)  # for 45 ms one transfer too many


def test_latency_is_spent_before_the_first_byte_and_is_contention_for_others() -> None:
    network = Penalty(10 * MS, MS / MB, 0.25 * MS / MB)
    network.begin(transfer(1, "ab", 20 * MB), 0.0)
    assert network.left_bytes(1, 10 * MS) == 20 * MB
    network.begin(transfer(2, "ab", 20 * MB), 20 * MS)
    assert network.left_bytes(1, 29 * MS) == pytest.approx(6 * MB)
    assert network.next_us() == pytest.approx(42.5 * MS)
    assert network.advance(42.5 * MS) == [1]
    # 2 began to drain at 30, at a rate of 1/2.25, so it has 20 - 12.5/2.25 left
    assert network.next_us() == pytest.approx((62.5 - 12.5 / 2.25) * MS)


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 7))):
        hosts = draw(st.sets(st.sampled_from(HOSTS), min_size=2))
        one = transfer(number, "".join(sorted(hosts)), draw(st.sampled_from([10.0, 25.0, 60.0])))
        begins = float(draw(st.integers(0, 80)))
        steps.append((begins, "begin", one))
        if draw(st.integers(0, 2)) == 0:
            stops = begins + draw(st.integers(0, 30))
            steps.append((stops, "suspend", one))
            steps.append((stops + draw(st.integers(0, 30)), "resume", one))
    return steps


@FIXED
@given(scripts(), st.sampled_from([0.0, 7.0]), st.sampled_from([0.0, 0.25]))
def test_transfers_end_when_the_naive_simulation_says(steps: list[Step], a: float, eta: float) -> None:
    wanted = naive(a, 1.0, eta, steps)
    assert play(Penalty(a, 1.0, eta), steps) == pytest.approx(wanted, rel=1e-6)


def test_on_one_host_there_is_nothing_to_wait_for() -> None:
    network = Penalty(10 * MS, MS / MB, 0.0)
    network.begin(transfer(1, "a", 100 * MB), 5.0)
    network.begin(transfer(2, "ab", 1 * MB), 5.0)
    assert network.next_us() == 5.0
    assert network.advance(5.0) == [1]
    assert network.next_us() == 5.0 + 11 * MS


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="b is above 0"):
        Penalty(1.0, 0.0, 0.0)
    network = Penalty(0.0, 1.0, 0.0)
    network.begin(transfer(1, "ab", 1), 3.0)
    with pytest.raises(UsageError, match="cannot limit"):
        network.recap(1, 1e9, 3.0)
    with pytest.raises(ValueError, match="begun already"):
        network.begin(transfer(1, "ab", 1), 3.0)
    with pytest.raises(ValueError, match="time goes back"):
        network.advance(2.0)
