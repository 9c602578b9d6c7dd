"""Admission policies: srsf-n and adadual, asked as transfers become ready and end."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core import registry
from rm.core.ports import Admission, AdmissionPolicy, Transfer, admits
from rm.errors import ConfigError
from rm.policies.comm.adadual import AdaDual, AdaDualOptions
from rm.policies.comm.srsf_n import SrsfN, SrsfOptions
from rm.policies.comm.steps.contention import Contention, Flow, joins_hosts
from tests.examples import examples

SETTINGS = settings(max_examples=examples(150))
MB = 1e6
PAPER = AdaDualOptions(b=0.853, eta=0.235)


def transfer(
    job: int,
    left: float,
    *hosts: str,
    remaining: float | None = None,
    gpus: int = 1,
    size: float | None = None,
) -> Transfer:
    return Transfer(
        job=job,
        hosts=hosts or ("h0", "h1"),
        size_bytes=left if size is None else size,
        left_bytes=left,
        gpus=gpus,
        remaining_us=left if remaining is None else remaining,
    )


@dataclass
class World:
    """A fluid model of its own: every transfer drains at 1/(k*b + (k-1)*eta), k its busiest host's."""

    policy: AdmissionPolicy
    b: float
    eta: float

    def play(self, arrivals: Sequence[tuple[float, Transfer]]) -> dict[int, float]:
        """When each transfer ends, given (time at which it is ready, transfer)."""
        coming = sorted(arrivals, key=lambda a: (a[0], a[1].job))
        waiting: dict[int, Transfer] = {}
        ongoing: dict[int, Transfer] = {}
        ends: dict[int, float] = {}
        now = 0.0
        while coming or waiting or ongoing:
            while coming and coming[0][0] <= now:
                ready = coming.pop(0)[1]
                waiting[ready.job] = ready
            asked = self.policy.admit(
                [waiting[j] for j in sorted(waiting)], [ongoing[j] for j in sorted(ongoing)]
            )
            for job in asked.start:
                ongoing[job] = waiting.pop(job)
            assert ongoing or coming, "everybody waits for nobody"
            pace = {}
            for j, t in ongoing.items():
                k = max(sum(h in o.hosts for o in ongoing.values()) for h in t.hosts)
                pace[j] = k * self.b + (k - 1) * self.eta
            step = min((t.left_bytes * pace[j] for j, t in ongoing.items()), default=float("inf"))
            if coming:
                step = min(step, coming[0][0] - now)
            now += step
            for j, t in list(ongoing.items()):
                left = t.left_bytes - step / pace[j]
                ongoing[j] = t._replace(left_bytes=left)
                if left < 1e-9:
                    ends[j] = now
                    del ongoing[j]
        return ends


# -- the contract of every admission policy -------------------------------------------------------

ADMITTING = [n for n in registry.names("comm") if admits(registry.load("comm", n))]
HOSTS = ("a", "b", "c", "d")


@st.composite
def states(draw: st.DrawFn) -> tuple[list[Transfer], list[Transfer]]:
    made = [
        transfer(
            job,
            draw(st.integers(1, 50)) * MB,
            *draw(st.lists(st.sampled_from(HOSTS), min_size=2, max_size=3, unique=True)),
            remaining=draw(st.integers(1, 4)),
            gpus=draw(st.integers(1, 3)),
        )
        for job in range(1, draw(st.integers(1, 8)) + 1)
    ]
    busy: set[str] = set()
    ongoing = []
    for t in made:
        if not busy & set(t.hosts) and draw(st.booleans()):
            ongoing.append(t)
            busy |= set(t.hosts)
    return [t for t in made if t not in ongoing], ongoing


def test_the_papers_admission_policies_are_found_by_name() -> None:
    assert {"srsf-n", "adadual"} <= set(ADMITTING)


@pytest.mark.parametrize("name", ADMITTING)
@SETTINGS
@given(state=states(), data=st.data())
def test_admission_starts_waiting_transfers_whatever_their_order(name, state, data) -> None:  # type: ignore[no-untyped-def]
    waiting, ongoing = state
    answer = registry.load("comm", name).admit(waiting, ongoing)
    assert set(answer.start) <= {t.job for t in waiting}
    assert len(set(answer.start)) == len(answer.start)
    assert set(answer.pause) <= {t.job for t in ongoing}
    shuffled = registry.load("comm", name).admit(
        data.draw(st.permutations(waiting)), data.draw(st.permutations(ongoing))
    )
    assert shuffled == answer
    if waiting and not ongoing:
        assert answer.start, "nobody communicates and nobody may start"


@pytest.mark.parametrize("name", ADMITTING)
def test_a_transfer_on_idle_hosts_starts(name: str) -> None:
    policy = registry.load("comm", name)
    assert policy.admit([transfer(2, MB, "c", "d")], [transfer(1, MB, "a", "b")]) == Admission((2,))
    assert policy.admit([], [transfer(1, MB, "a", "b")]) == Admission(())


# -- SRSF(n) --------------------------------------------------------------------------------------


def test_srsf_1_starts_the_shortest_remaining_service_first() -> None:
    """Service is time times GPUs, so the job of two GPUs waits although its time is shorter."""
    long_but_thin = transfer(1, MB, "a", "b", remaining=90, gpus=1)
    short_but_wide = transfer(2, MB, "b", "c", remaining=50, gpus=2)
    apart = transfer(3, MB, "d", "e", remaining=1e9)
    assert SrsfN().admit([long_but_thin, short_but_wide, apart], []).start == (1, 3)


def test_a_transfer_that_may_not_start_holds_nobody_up() -> None:
    ongoing = [transfer(1, MB, "a", "b")]
    blocked, free = transfer(2, MB, "b", "c", remaining=1), transfer(3, MB, "c", "d", remaining=2)
    assert SrsfN().admit([blocked, free], ongoing).start == (3,)


@pytest.mark.parametrize(("n", "started"), [(1, 1), (2, 2), (3, 3), (9, 4)])
def test_srsf_n_fills_every_host_up_to_n(n: int, started: int) -> None:
    waiting = [transfer(i, i * MB) for i in range(1, 5)]
    assert SrsfN(SrsfOptions(n)).admit(waiting, []).start == tuple(range(1, started + 1))


def test_n_counts_on_every_host_by_itself() -> None:
    ongoing = [transfer(1, MB, "a", "b"), transfer(2, MB, "c", "d")]
    policy = SrsfN(SrsfOptions(2))
    assert policy.admit([transfer(3, MB, "b", "c")], ongoing).start == (3,)
    assert policy.admit([transfer(4, MB, "b", "e")], [*ongoing, transfer(3, MB, "b", "c")]).start == ()


@SETTINGS
@given(state=states(), n=st.integers(1, 3))
def test_only_the_neighbourhood_of_a_change_needs_to_be_asked(
    state: tuple[list[Transfer], list[Transfer]], n: int
) -> None:
    """After everything that could start has, the end of one transfer concerns its own hosts only."""
    policies: list[AdmissionPolicy] = [SrsfN(SrsfOptions(n)), AdaDual(replace(PAPER, ways=n))]
    for policy in policies:
        waiting, ongoing = state
        started = policy.admit(waiting, ongoing).start
        ongoing = sorted([*ongoing, *(t for t in waiting if t.job in started)], key=lambda t: t.job)
        waiting = [t for t in waiting if t.job not in started]
        assert policy.admit(waiting, ongoing).start == ()
        if not ongoing:
            continue
        ended, rest = ongoing[0], ongoing[1:]
        touched = [t for t in waiting if set(t.hosts) & set(ended.hosts)]
        near = {h for t in touched for h in t.hosts}
        around = [t for t in rest if set(t.hosts) & near]
        assert policy.admit(touched, around) == policy.admit(waiting, rest)


# -- AdaDUAL --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "old", "starts"),
    [(100, 260, True), (99.2, 526.4, True), (200, 526.4, True), (100, 250, False), (251.8, 526.4, False)],
)
def test_the_threshold_of_theorem_2(new: float, old: float, starts: bool) -> None:
    answer = AdaDual(PAPER).admit([transfer(2, new)], [transfer(1, old)])
    assert answer.start == ((2,) if starts else ())


def test_the_threshold_itself_waits() -> None:
    options = AdaDualOptions(b=1, eta=0.25)  # 1/2.5 = 0.4
    assert AdaDual(options).admit([transfer(2, 40)], [transfer(1, 100)]).start == ()
    assert AdaDual(options).admit([transfer(2, 39.9)], [transfer(1, 100)]).start == (2,)


def test_a_third_transfer_waits() -> None:
    ongoing = [transfer(1, 1000), transfer(2, 1000)]
    assert AdaDual(PAPER).admit([transfer(3, 1)], ongoing).start == ()


def test_printed_asks_the_first_busy_server_and_all_asks_each() -> None:
    new = transfer(3, 10, "idle", "a", "b")
    ongoing = [transfer(1, 1000, "a", "x"), transfer(2, 10, "b", "y")]
    assert AdaDual(replace(PAPER, olds="printed")).admit([new], ongoing).start == (3,)
    assert AdaDual(PAPER).admit([new], ongoing).start == ()
    turned = new._replace(hosts=("idle", "b", "a"))
    assert AdaDual(replace(PAPER, olds="printed")).admit([turned], ongoing).start == ()


def test_total_adds_up_what_all_servers_lose() -> None:
    """Beside n old ones of equal size on hosts of their own the threshold is b/((n+1)(b+eta))."""
    policy = AdaDual(replace(PAPER, olds="total"))
    for n in (1, 2, 3, 4):
        ongoing = [transfer(i, 1000, f"h{i}", f"x{i}") for i in range(n)]
        threshold = PAPER.b / ((n + 1) * (PAPER.b + PAPER.eta))
        for share, starts in ((threshold * 0.999, True), (threshold * 1.001, False)):
            new = transfer(9, 1000 * share, *(f"h{i}" for i in range(n)))
            assert policy.admit([new], ongoing).start == ((9,) if starts else ()), (n, share)


@pytest.mark.parametrize(
    ("policy", "both_at_once", "second_later"),
    [
        (SrsfN(SrsfOptions(1)), (130, 230), (230, 260)),
        (AdaDual(AdaDualOptions(b=1, eta=0.25)), (130, 230), (267.5, 147.5)),
        (SrsfN(SrsfOptions(2)), (255, 255), (267.5, 147.5)),
    ],
    ids=["srsf-1", "adadual", "srsf-2"],
)
def test_two_jobs_of_one_iteration(policy, both_at_once, second_later) -> None:  # type: ignore[no-untyped-def]
    """Forward 10, backward 20, then the transfer; on disjoint GPUs of the same two servers."""
    world = World(policy, 1, 0.25)
    ends = world.play([(30, transfer(1, 100)), (30, transfer(2, 100))])
    assert tuple(ends[j] for j in (1, 2)) == pytest.approx(both_at_once)
    ends = world.play([(30, transfer(1, 200)), (80, transfer(2, 30))])
    assert tuple(ends[j] for j in (1, 2)) == pytest.approx(second_later)


def test_an_all_reduce_alone_takes_the_time_of_the_model() -> None:
    """a = 0.669 ms is paid once by each; b and eta in ms per MB, 100 MB."""
    for k, expected in ((1, 85.969), (2, 194.769), (3, 303.569)):
        assert 0.669 + 100 * Contention(0.853, 0.235).seconds_per_byte(k) == pytest.approx(expected)


# -- k ways ---------------------------------------------------------------------------------------


def ends_on_one_link(model: Contention, olds: Sequence[float], new: float, start: float) -> list[float]:
    """Independent of the policy: step by step, in exact order of events."""
    left = dict(enumerate(olds))
    ends: dict[int, float] = {}
    now, mine = 0.0, len(olds)
    while left or mine not in ends:
        if mine not in left and mine not in ends and now >= start:
            left[mine] = new
        pace = model.seconds_per_byte(len(left)) if left else 0.0
        until = min((x * pace for x in left.values()), default=float("inf"))
        if mine not in left and mine not in ends:
            until = min(until, start - now)
        now += until
        for j in list(left):
            left[j] -= until / pace
            if left[j] <= 1e-9:
                ends[j] = now
                del left[j]
        if mine not in left and mine not in ends and abs(now - start) < 1e-9:
            left[mine] = new
    return [ends[j] for j in sorted(ends)]


sizes = st.integers(1, 60).map(float)


@SETTINGS
@given(olds=st.lists(sizes, min_size=1, max_size=4), new=sizes, eta=st.integers(0, 8))
def test_joining_is_right_against_every_start_time_on_one_link(
    olds: list[float], new: float, eta: int
) -> None:
    """Brute force: no start on a fine grid beats the better of now and the ends of the others."""
    model = Contention(1.0, eta / 8)
    alone = ends_on_one_link(model, olds, 1e-6, 1e9)[: len(olds)]
    at_ends = [sum(ends_on_one_link(model, olds, new, d)) for d in alone]
    now = sum(ends_on_one_link(model, olds, new, 0.0))
    assert model.waiting_total(new, olds) == pytest.approx(min(at_ends))
    if now != pytest.approx(min(at_ends), rel=1e-6):
        assert model.joins(new, olds) == (now < min(at_ends))
    last = max(alone)
    for i in range(1, 60):
        start = last * i / 48  # beyond the last end too
        assert sum(ends_on_one_link(model, olds, new, start)) >= min(now, *at_ends) - 1e-6 * now


@SETTINGS
@given(olds=st.lists(sizes, min_size=1, max_size=3), new=sizes, eta=st.integers(0, 8))
def test_on_one_link_both_forecasts_agree(olds: list[float], new: float, eta: int) -> None:
    model = Contention(1.0, eta / 8)
    now = sum(ends_on_one_link(model, olds, new, 0.0))
    if now != pytest.approx(model.waiting_total(new, olds), rel=1e-6):
        flows = [Flow(("h0", f"x{i}"), left) for i, left in enumerate(olds)]
        assert joins_hosts(model, Flow(("h0", "h1"), new), flows, {}) == model.joins(new, olds)


@SETTINGS
@given(olds=st.lists(sizes, min_size=1, max_size=3), new=sizes, eta=st.integers(0, 8))
def test_the_policy_finds_the_best_start_by_being_asked_at_every_end(
    olds: list[float], new: float, eta: int
) -> None:
    """Brute force over all orders: the newcomer starts at once or after the first, second, ... end."""
    model = Contention(1.0, eta / 8)
    alone = ends_on_one_link(model, olds, 1e-6, 1e9)[: len(olds)]
    best = min(sum(ends_on_one_link(model, olds, new, start)) for start in [0.0, *alone])
    policy = AdaDual(AdaDualOptions(b=1.0, eta=eta / 8, ways=len(olds) + 1))
    ongoing = dict(enumerate(olds))
    now, ends, left, waits = 0.0, [], new, True
    while ongoing or waits:
        if waits:
            asked = policy.admit(
                [transfer(99, left)], [transfer(i, x, size=olds[i]) for i, x in ongoing.items()]
            )
            if asked.start:
                ongoing[99], waits = left, False
        pace = model.seconds_per_byte(len(ongoing))
        step = min(ongoing.values())
        now += step * pace
        for i in list(ongoing):
            ongoing[i] -= step
            if ongoing[i] <= 1e-9:
                del ongoing[i]
                ends.append(now)
    assert sum(ends) == pytest.approx(best, rel=1e-6)


def best_schedule(model: Contention, ongoing: float, waiting: Sequence[float]) -> float:
    """The least total completion time over all orders in which the waiting ones start, each at once
    or when another one ends; `ongoing` has started and goes on."""
    best = float("inf")

    def go(now: float, active: tuple[float, ...], rest: tuple[float, ...], ended: float) -> None:
        nonlocal best
        if ended >= best:
            return
        if not active and not rest:
            best = ended
            return
        for count in range(len(rest) + 1):
            for chosen in itertools.combinations(range(len(rest)), count):
                here = [*active, *(rest[i] for i in chosen)]
                if not here:
                    continue
                step = min(here)
                then = now + step * model.seconds_per_byte(len(here))
                left = tuple(x - step for x in here if x - step > 1e-9)
                kept = tuple(rest[i] for i in range(len(rest)) if i not in chosen)
                go(then, left, kept, ended + then * (len(here) - len(left)))

    go(0.0, (ongoing,), tuple(waiting), 0.0)
    return best


@settings(SETTINGS, max_examples=examples(60))
@given(old=st.integers(20, 200).map(float), waiting=st.lists(sizes, min_size=2, max_size=3))
def test_several_newcomers_beside_one_long_transfer(old: float, waiting: list[float]) -> None:
    """Asked one by one the rule is no longer optimal, but stays near the best order of starts."""
    model = Contention(1.0, 0.25)
    best = best_schedule(model, old, waiting)

    long = transfer(0, old, remaining=0)  # its service is least, so it has started before the others ask
    arrivals = [(0.0, long), *((0.0, transfer(i + 1, x)) for i, x in enumerate(waiting))]
    for ways in (2, 3):
        ends = World(AdaDual(AdaDualOptions(b=1.0, eta=0.25, ways=ways)), 1.0, 0.25).play(arrivals)
        assert best * (1 - 1e-9) <= sum(ends.values()) <= best * 1.05


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("srsf-n", {"n": 0}),
        ("adadual", {"ways": 0}),
        ("adadual", {"b": 0.0}),
        ("adadual", {"eta": -1.0}),
        ("adadual", {"olds": "some"}),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        registry.load("comm", name, options)
