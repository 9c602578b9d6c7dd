"""Meshes that measure without a pause: which streams hosts are ordered to have, and what windows become."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rm.adapters.archives.opensearch import index_of, kept_of
from rm.adapters.archives.pscheduler import document_of
from rm.core.model.host import Host, HostState
from rm.core.monitoring.cells import Status
from rm.core.monitoring.latencybg import (
    HALF,
    LATE_US,
    WAIT_US,
    WAITING_MOST,
    Direction,
    Given,
    Halves,
    Window,
    found_of,
    told_by,
)
from rm.core.monitoring.mesh import Mesh, parse_mesh
from rm.daemon.monitoring.streaming import AWAY_US, Streaming
from rm.errors import ConfigError, Unreachable, UsageError
from rm.protocol.latencybg import Latencybg, OrderLatencybg, ReceivedWindow, SentWindow
from rm.protocol.probes import Spread
from rm.protocol.request import Request
from tests import builders
from tests.archived import Kept
from tests.monitored import House, Prober
from tests.pscheduler_schemas import must_be_a_run

BACKGROUND = parse_mesh(
    {"name": "bg", "tests": ["latencybg"], "packets": 100, "loss_warn_pct": 0.5, "loss_critical_pct": 2}
)
WINDOW_US = 10_000_000
LIFE, OTHER_LIFE = 70, 80
SECRET = "0123456789abcdef"


def sent(number: int, stream: int = 1, packets: int = 100) -> SentWindow:
    return SentWindow(
        stream=stream, life=LIFE, window=number, begun_us=1_000_000 + number * WINDOW_US, sent=packets
    )


def received(number: int, packets: int = 100, stream: int = 1, **more: Any) -> ReceivedWindow:
    return ReceivedWindow(stream=stream, life=LIFE, window=number, received=packets, **more)


def answer(now_us: int = 0, life: int = LIFE, **more: Any) -> Latencybg:
    usual = {"port": 8750, "listening": [], "sent": [], "received": [], "last": 0, "more": False}
    return Latencybg(life=life, now_us=now_us, **{**usual, **more})


def secret_of(stream: int) -> str:
    return f"{stream:016x}"


def test_the_halves_of_a_window_meet_in_either_order() -> None:
    halves = Halves()
    assert halves.take("a", answer(sent=[sent(0)], last=1, now_us=11_500_000), 61_500_000) == []
    (first,) = halves.take("b", answer(received=[received(0), received(1)], last=2), 62_000_000)
    assert (first.sent.sent, first.at_us) == (100, 51_000_000)  # by our clock, which is 50 s ahead of a's
    (second,) = halves.take("a", answer(sent=[sent(1)], last=2, now_us=21_500_000), 71_500_000)
    assert second.at_us - first.at_us == WINDOW_US


def test_a_host_forgets_a_window_only_when_both_halves_are_here() -> None:
    halves = Halves()
    halves.take("a", answer(sent=[sent(0)], last=7), 10)
    assert halves.asked("a") == (LIFE, 7, 0)
    halves.take("b", answer(received=[received(0)], last=9), 20)
    assert (halves.asked("a"), halves.asked("b")) == ((LIFE, 7, 7), (LIFE, 9, 9))
    halves.take("a", answer(sent=[sent(1)], last=8), 30)
    halves.take("a", answer(last=8), 30 + WAIT_US + 1)  # b never told of it: it is given up
    assert halves.asked("a") == (LIFE, 8, 8)


def test_a_host_tells_of_the_windows_of_its_own_streams_only() -> None:
    a, b, c = (builders.host(name) for name in "abc")
    there, back, other = (Direction(BACKGROUND, *ends) for ends in ((a, b), (b, a), (b, c)))
    directions = {one.id: one for one in (there, back, other)}
    streams = (*directions, 5)  # and one that is none
    everything = answer(
        sent=[sent(0, stream) for stream in streams],
        received=[received(0, stream=stream) for stream in streams],
        listening=[(stream, 1, LIFE) for stream in streams],
        secrets=[(stream, SECRET) for stream in streams],
        last=8,
    )
    given = {stream: Given(SECRET, 0) for stream in streams}
    for name, out, into in (
        ("a", [there.id], [back.id]),
        ("b", [back.id, other.id], [there.id]),
        ("c", [], [other.id]),
        ("d", [], []),
    ):
        told = told_by(name, everything, directions, given, 10)
        assert [window.stream for window in told.sent] == out
        assert [window.stream for window in told.received] == into
        assert [stream for stream, _, _ in told.listening] == into
        assert [stream for stream, _ in told.secrets] == into
        assert told.last == 8


def test_a_receiver_that_began_anew_has_lost_nothing_before_its_sender_knows_its_secret() -> None:
    """It reads no packet that carries the secret of its earlier life."""
    there = Direction(BACKGROUND, builders.host("a"), builders.host("b"))
    ends = {there.id: there}
    began = answer(life=LIFE, listening=[(there.id, 500, OTHER_LIFE)], secrets=[(there.id, SECRET)])

    def listened(given: dict[int, Given]) -> list[int]:
        return [for_us for _, for_us, _ in told_by("b", began, ends, given, 1_000).listening]

    assert listened({}) == []
    assert listened({there.id: Given("f" * 16, 0)}) == []
    assert listened({there.id: Given(SECRET, 0)}) == [500]
    assert listened({there.id: Given(SECRET, 900)}) == [100]


@pytest.mark.parametrize("lives", [1, 5])
@pytest.mark.parametrize("buckets", [0, 96])
def test_of_halves_without_end_the_oldest_are_given_up(lives: int, buckets: int) -> None:
    """Also of a host that says each time that its process has begun anew."""
    halves, most = Halves(), WAITING_MOST // (HALF + buckets)
    histogram = [(bucket, 1) for bucket in range(buckets)]
    other = sent(0, stream=9)
    halves.take("c", answer(sent=[other], last=1), 5)
    step = most // 4
    for turn in range(12):
        numbers = range(turn * step, (turn + 1) * step)
        some = [received(number, stream=1, histogram=histogram) for number in numbers]
        halves.take("b", answer(received=some, last=turn + 1, life=LIFE + turn % lives), 10)
    assert len(halves._received) == most
    newest = 12 * step - 1
    told = halves.take("a", answer(sent=[sent(0), sent(newest - most), sent(newest)], last=1), 20)
    assert [window.sent.window for window in told] == [newest]
    told = halves.take("d", answer(received=[received(0, stream=9)], last=1), 30)
    assert len(told) == 1  # other hosts lose nothing


def test_of_halves_that_met_nothing_is_kept_though_an_older_one_waits() -> None:
    halves, step = Halves(), 4_096
    halves.take("a", answer(sent=[sent(0, stream=9)], last=1), 10)
    for turn in range(12):
        numbers = range(turn * step, (turn + 1) * step)
        halves.take("a", answer(sent=[sent(number) for number in numbers], last=turn + 2), 10)
        halves.take("b", answer(received=[received(number) for number in numbers], last=turn + 1), 10)
    assert sum(len(keys) for _, keys in halves._hosts["a"].open) <= WAITING_MOST // HALF + step
    assert len(halves.take("c", answer(received=[received(0, stream=9)], last=1), 20)) == 1


def test_what_was_told_in_an_earlier_life_meets_its_other_half() -> None:
    halves = Halves()
    halves.take("a", answer(sent=[sent(0)], last=7), 10)
    halves.take("a", answer(life=OTHER_LIFE, last=3), 20)
    assert halves.asked("a") == (OTHER_LIFE, 3, 0)
    assert len(halves.take("b", answer(received=[received(0)], last=2), 30)) == 1
    assert halves.asked("a") == (OTHER_LIFE, 3, 3)


def test_a_process_that_begins_anew_is_read_from_its_beginning() -> None:
    halves = Halves()
    halves.take("a", answer(sent=[sent(0)], last=7), 10)
    halves.take("a", answer(life=OTHER_LIFE), 20)
    assert halves.asked("a") == (OTHER_LIFE, 0, 0)


@pytest.mark.parametrize(
    ("since_us", "heard", "after_us", "lost"),
    [
        (60_000_000, 0, LATE_US, True),
        (60_000_000, 0, LATE_US - 1, False),  # its packets may be under way
        (60_000_000, LIFE, LATE_US, False),  # it counts them, and will tell
        (5_000_000, 0, LATE_US, False),  # it has not listened from the beginning on
    ],
)
def test_what_a_listening_host_has_heard_nothing_of_is_lost(
    since_us: int, heard: int, after_us: int, lost: bool
) -> None:
    halves, now_us = Halves(), 90_000_000
    halves.take("a", answer(sent=[sent(0)], last=1, now_us=11_500_000), now_us)
    told = halves.take("b", answer(listening=[(1, since_us, heard)]), now_us + after_us)
    assert [window.received for window in told] == ([None] if lost else [])


def test_loss_delays_and_clocks_of_a_window() -> None:
    spread = Spread(min=90, median=100, p95=400, max=900)
    buckets = [(90, 50), (400, 47)]
    of = received(
        0, 97, delay_us=spread, jitter_us=7, offset_us=5_000, clock_error_us=80, histogram=buckets,
        duplicates=2, reordered=1,
    )  # fmt: skip
    found = found_of(Window(sent(0), of, 0), 4_000)
    assert found.values == {
        "loss_pct": 3.0, "delay_us": 100, "delay_p95_us": 400, "jitter_us": 7, "clock_error_us": 80,
        "clock_offset_us": 4_920,
    }  # fmt: skip
    assert found.told == {
        "sent": 100, "lost": 3, "duplicated": 2, "reordered": 1, "clock_error_us": 80,
        "histogram": ((90, 50), (400, 47)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error_us", "pinged_us", "delay_us"),
    [(None, None, None), (None, 5_000, 5_100), (900, 9_900, 200), (900, None, 100), (80, 10_900, 100)],
)
def test_the_better_known_difference_of_clocks_counts(
    error_us: int | None, pinged_us: int | None, delay_us: int | None
) -> None:
    spread = Spread(min=100, median=100, p95=100, max=100)
    offset_us = 0 if error_us is None else 10_000
    if error_us is None:  # then delays are as the clocks show them
        spread = Spread(min=10_100, median=10_100, p95=10_100, max=10_100)
    of = received(0, delay_us=spread, offset_us=offset_us, clock_error_us=error_us)
    assert found_of(Window(sent(0), of, 0), pinged_us).values.get("delay_us") == delay_us


def test_a_clock_that_was_set_leaves_no_delay() -> None:
    of = received(0, delay_us=Spread(median=-9_000, p95=5), clock_error_us=80)
    assert found_of(Window(sent(0), of, 0), None).values == {"loss_pct": 0.0}


def test_what_a_continuous_mesh_cannot_have_is_refused() -> None:
    assert (BACKGROUND.spacing_us, BACKGROUND.peers, BACKGROUND.is_of_links) == (100_000, 20, True)
    assert BACKGROUND.checks == ("loss", "delay")
    for wrong, said in (
        ({"schedule": "every 60s"}, "without a pause"),
        ({"rounds": 8}, "at the same time"),
        ({"tests": ["latencybg", "mtu"]}, "Make two meshes"),
        ({"spacing_s": 0.001}, "less than 0.01"),
        ({"packets": 2}, "not from a second to an hour"),
        ({"query": "x"}, "'query' is of tests of the kind dns"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_mesh({"name": "bg", "tests": ["latencybg"], **wrong})


# -- the daemon


class Agents(Prober):
    """Hosts whose processes answer as `answers` says."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[tuple[str, OrderLatencybg]] = []
        self.answers: dict[str, Latencybg | Exception] = {}

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        if not isinstance(request, OrderLatencybg):
            return super().call(name, request, timeout_s)
        self.orders.append((name, request))
        future: Future[Any] = Future()
        told = self.answers.get(name)
        if isinstance(told, Exception):
            future.set_exception(told)
        else:
            future.set_result(told or self.usual(request))
        return future

    @staticmethod
    def usual(request: OrderLatencybg) -> Latencybg:
        listening = [(stream.into, 60_000_000, 0) for stream in request.streams]
        secrets = [(stream.into, secret_of(stream.into)) for stream in request.streams]
        port = 8750 if request.streams else 0
        return answer(listening=listening, secrets=secrets, port=port, life=LIFE)


class Streams:
    """A daemon of hosts a and b, whose answers are taken in at once."""

    def __init__(self, *meshes: Mesh, count: int = 2) -> None:
        self.agents, self.kept = Agents(), Kept()
        self.house = House(*(meshes or (BACKGROUND,)), hosts=count, agents=self.agents, archives=self.kept)
        self.streaming = self.another()
        hosts = self.house.lead.cycle.state.hosts
        self.there = Direction(BACKGROUND, hosts["a"], hosts["b"]).id
        self.back = Direction(BACKGROUND, hosts["b"], hosts["a"]).id

    def another(self) -> Streaming:
        return Streaming(
            agents=self.agents,
            monitor=self.house.monitor,
            clock=self.house.clock,
            epoch=7,
            cells=self.house.store.history.cells(),
        )

    def turn(self) -> list[tuple[str, OrderLatencybg]]:
        """What was asked in it."""
        self.agents.orders = []
        self.streaming.turn()
        self.streaming._hear(0.0)
        return self.agents.orders

    def settle(self) -> None:
        while any(order.streams for _, order in self.turn()):
            pass

    def answer(self, name: str, told: Latencybg) -> None:
        future: Future[Latencybg] = Future()
        future.set_result(told)
        self.streaming.answered(name, future)

    def told(self, number: int, packets: int = 100, names: str = "ab") -> None:
        """These hosts tell of the window that has just ended; of that from a to b so many packets arrived."""
        now_us = self.house.clock.us
        begun_us = now_us - WINDOW_US
        for name, out, into, arrived in (
            ("a", self.there, self.back, 100),
            ("b", self.back, self.there, packets),
        ):
            if name not in names:
                continue
            delay = Spread(min=200, median=200, p95=250, max=300)
            told = answer(
                now_us=now_us,
                listening=[(into, 60_000_000, LIFE)],
                sent=[SentWindow(stream=out, life=LIFE, window=number, begun_us=begun_us, sent=100)],
                received=[received(number, arrived, into, delay_us=delay, clock_error_us=50)],
                last=2 * number + 2,
            )
            self.answer(name, told)


@pytest.fixture
def streams() -> Streams:
    return Streams()


def _with_state(streams: Streams, name: str, state: HostState) -> Host:
    return replace(streams.house.lead.cycle.state.hosts[name], state=state)


def ports(orders: list[tuple[str, OrderLatencybg]]) -> list[tuple[str, list[int]]]:
    return [(name, [stream.port for stream in order.streams]) for name, order in orders]


def test_a_host_sends_when_the_other_listens(streams: Streams) -> None:
    first, second = ports(streams.turn()), streams.turn()
    assert first == [("a", [0]), ("b", [0])]
    assert ports(second) == [("a", [8750]), ("b", [8750])]
    (stream,) = second[0][1].streams
    assert (stream.out, stream.into, stream.count, stream.interval_us) == (
        streams.there, streams.back, 100, 100_000,
    )  # fmt: skip
    assert stream.secret == secret_of(stream.out)  # as its receiver told
    assert streams.turn() == []  # nothing has changed, and it is not yet time
    assert stream.histogram  # an archive wants it


def test_windows_are_recorded_judged_and_archived(streams: Streams) -> None:
    streams.settle()
    for number in range(3):
        streams.house.clock.us += WINDOW_US
        streams.told(number, 100 if number == 0 else 90)
    there, back = streams.house.network()[("a", "b")], streams.house.network()[("b", "a")]
    assert (there.loss_pct, there.delay_us, back.loss_pct) == (10.0, 200, 0.0)
    assert streams.house.status(BACKGROUND, "loss") is Status.CRITICAL
    assert streams.house.status(BACKGROUND, "loss", "ba") is Status.OK
    samples = streams.house.store.history.samples("a", "b")
    assert [s.values["loss_pct"] for s in samples] == [0.0, 10.0, 10.0]
    assert [b.at_us - a.at_us for a, b in pairwise(samples)] == [WINDOW_US] * 2
    assert {o.test for o in streams.kept.outcomes} == {"latencybg"}
    assert [o.found["lost"] for o in streams.kept.outcomes if o.source.name == "a"] == [0, 10, 10]
    assert [o.ended_us - o.begun_us for o in streams.kept.outcomes] == [WINDOW_US] * 6
    for outcome in streams.kept.outcomes:
        must_be_a_run(document_of(outcome))
    assert kept_of(streams.kept.outcomes[-1])["result"]["packets"] == {
        "sent": 100, "received": 90, "lost": 10, "loss": 0.1, "duplicated": 0, "reordered": 0,
    }  # fmt: skip
    assert index_of(streams.kept.outcomes[0]) == "pscheduler_latencybg"
    state = streams.house.monitor.state("bg")
    assert (state.measured, state.failed) == (1, 0)


def test_no_host_tells_of_a_link_between_others() -> None:
    """Both halves of windows from a to b, which c makes up."""
    streams = Streams(count=3)
    streams.settle()
    streams.house.clock.us += WINDOW_US
    begun_us = streams.house.clock.us - WINDOW_US
    half = SentWindow(stream=streams.there, life=LIFE, window=0, begun_us=begun_us, sent=100)
    lie = answer(now_us=streams.house.clock.us, sent=[half], received=[received(0, 1, streams.there)], last=2)
    streams.answer("c", lie)
    streams.answer("c", answer(listening=[(streams.there, 60_000_000, 0)]))
    assert ("a", "b") not in streams.house.network()
    assert streams.house.store.history.samples("a", "b") == []


def test_what_was_found_while_nobody_led_counts_though_hosts_come_one_after_the_other(
    streams: Streams,
) -> None:
    there = _with_state(streams, "b", HostState.UP)
    streams.house.lead.cycle.state.hosts["b"] = _with_state(streams, "b", HostState.DOWN)
    streams.streaming.turn()
    streams.house.clock.us += WINDOW_US
    streams.told(0, names="a")
    streams.house.lead.cycle.state.hosts["b"] = there
    streams.turn()
    streams.told(0, 90, names="b")
    assert [s.values["loss_pct"] for s in streams.house.store.history.samples("a", "b")] == [10.0]


def test_another_leader_does_not_record_a_window_twice(streams: Streams) -> None:
    streams.settle()
    streams.house.clock.us += WINDOW_US
    streams.told(0)
    streams.streaming = streams.another()
    streams.settle()
    streams.told(0)
    streams.house.clock.us += WINDOW_US
    streams.told(1)
    assert len(streams.house.store.history.samples("a", "b")) == 2


def test_streams_end_when_their_mesh_is_paused_and_go_on_afterwards(streams: Streams) -> None:
    streams.settle()
    streams.house.monitor.set_paused("bg", "ann")
    assert [order.streams for _, order in streams.turn()] == [[], []]
    assert streams.turn() == []
    streams.house.monitor.set_paused("bg", "")
    assert all(order.streams for _, order in streams.turn())


def test_a_lost_channel_does_not_end_the_streams_of_others_but_a_long_absence_does(streams: Streams) -> None:
    streams.settle()
    state = streams.house.lead.cycle.state
    state.hosts["b"] = _with_state(streams, "b", HostState.DOWN)
    assert streams.turn() == []
    streams.house.clock.us += AWAY_US
    streams.turn()  # a was up just now, b was not
    assert [order.streams for name, order in streams.turn() if name == "a"] in ([], [[]])
    assert streams.streaming._hosts["a"].wanted == []


def test_hosts_are_asked_once_where_there_are_no_such_meshes() -> None:
    """Streams of a mesh that was removed from rm.toml end."""
    streams = Streams(Mesh("latency"))
    assert [order.streams for _, order in streams.turn()] == [[], []]
    assert streams.turn() == []


def test_an_agent_that_cannot_is_asked_again_only_later(streams: Streams) -> None:
    streams.agents.answers["a"] = Unreachable("It does not know the operation.")
    for _ in range(2):  # the second time knowing that b listens
        streams.turn()
    assert streams.turn() == []
    assert streams.streaming._hosts["a"].complaint.startswith("It does not know")


def test_there_is_nothing_to_run(streams: Streams) -> None:
    with pytest.raises(UsageError, match="without a pause"):
        streams.house.monitor.run("bg")
    streams.house.monitor.confirm()
    assert streams.agents.probes() == []
