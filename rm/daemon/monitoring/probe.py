"""Lets one host measure towards another: what is asked of their agents, and what their answers say."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from rm.core.model.host import Host
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.pace import LEAST_SPACING_US
from rm.core.monitoring.path import Path, path_of
from rm.core.monitoring.service_test import ServiceTest
from rm.daemon.agents import Agents
from rm.errors import RmError, Unreachable
from rm.protocol.notifications import Reflecting
from rm.protocol.probes import (
    Fetched,
    Iperf3,
    OneWay,
    ProbeClock,
    ProbeDns,
    ProbeHttp,
    ProbeMtu,
    ProbeOneWay,
    ProbeThroughput,
    ProbeTools,
    ProbeTrace,
    Record,
    Reflect,
    Reflected,
    Resolved,
)
from rm.protocol.request import Answer, Request

PORTS = range(8_760, 8_960)  # within perfSONAR's range for tests
IDLE_US = 1_000_000  # as rm_probe.py knows
MARGIN_S = 10.0
MARGIN_US = round(MARGIN_S * 1e6)
CLOCK_ERROR_US = 500  # of the offsets that pings over the agents' channels give
IPERF_S = 1  # iperf3 counts whole seconds
UNDER_WAY_US = 3_000  # of full rate, that a burst has under way at most
GAPS_US = 5_000_000  # for bursts in gaps
GAP_TRIES = 8
CLOCK_PACKETS = 10
LONGEST_US = 60_000_000  # no packet that a probe still counts was under way for so long
TRACE_ROUND_S = 1.0  # to ask each of 30 hops once
PATIENCE_S = 0.25  # where the jobs leave no gap at once
LEAST_SENT_US = 20_000  # of bursts, all together, needed for a rate
DEFAULT_NIC_BPS = 1_000_000_000
REACHED_S = 1.0  # what a reflector said before the probe's last second is here by then
Window = tuple[int, int]  # begin by the leader's clock, length; microseconds
NextGaps = Callable[[int], Sequence[Window]]  # given how much is still to be sent, microseconds


class Prober:
    """Any thread may ask, and then waits."""

    def __init__(self, agents: Agents, patience_s: float = PATIENCE_S) -> None:
        self._agents = agents
        self._patience_s = patience_s
        self._listening: dict[tuple[str, int], Heard] = {}
        self._ports = itertools.count()
        self._has_iperf: dict[str, tuple[int, bool]] = {}  # by host, in the life of its agent since then

    def heard(self, host: str, message: Reflecting) -> None:
        """A host's reflector listens, or was reached; called in the fleet's thread."""
        waiting = self._listening.get((host, message.port))
        if waiting is not None:
            (waiting.reached if message.reached else waiting.listening).set()

    def latency(self, a: Host, b: Host, mesh: Mesh, histogram: bool = False) -> tuple[Way, Way]:
        """Loss, delay, jitter and round trip, there and back; with histograms of the delays.

        Where nothing gets from `a` to `b`, nothing that is asked there comes back either: then `b` asks,
        and what arrives at `a` measures the way back.

        Raises:
            RmError, TimeoutError: a host did not do its part.
        """
        there = self._oneway(a, b, mesh, histogram)
        if there.received or there.loss_forward_pct < 100.0:
            return way_of(there, "forward"), way_of(there, "backward")
        back = self._oneway(b, a, mesh, histogram)
        return way_of(there, "forward"), way_of(back, "forward")

    def _oneway(self, a: Host, b: Host, mesh: Mesh, histogram: bool) -> OneWay:
        """What `a` found, and where `a` does not know that all its questions arrived, how many `b` has seen.

        On a link that is dead at the end of the test, `a` hears no later number than that in the last answer.
        """
        ours = [self._agents.clock_offset_us(h.name) for h in (a, b)]
        known = ours[0] is not None and ours[1] is not None
        spacing_us = mesh.spacing_us or LEAST_SPACING_US
        took_us = mesh.packets * spacing_us
        with self._reflecting(a, b, took_us, max(IDLE_US, 10 * spacing_us)) as session:
            request = ProbeOneWay(
                address=b.literal_address,
                port=session.port,
                count=mesh.packets,
                interval_us=spacing_us,
                offset_us=(ours[1] or 0) - (ours[0] or 0) if known else UNSET,
                offset_error_us=CLOCK_ERROR_US if known else UNSET,
                histogram=histogram,
            )
            answer = session.ask(request, took_us)
            if answer.received and not answer.loss_forward_pct:
                return answer
            heard_of = answer.received and round(answer.sent * (1 - answer.loss_forward_pct / 100))
            try:
                answered = min(session.answered(answer.received), answer.sent)
            except (RmError, TimeoutError):
                if answer.received:  # what was heard counts, as far as it goes
                    return answer
                raise
            if answered <= heard_of:
                return answer
        forward_pct = round(100.0 * (answer.sent - answered) / answer.sent, 3)
        backward_pct = round(100.0 * (answered - answer.received) / answered, 3) if answered else None
        return msgspec.structs.replace(answer, loss_forward_pct=forward_pct, loss_backward_pct=backward_pct)

    def mtu(self, a: Host, b: Host) -> float:
        """The largest packet that gets from `a` to `b` undivided, bytes."""
        with self._reflecting(a, b, IDLE_US) as session:
            request = ProbeMtu(address=b.literal_address, port=session.port)
            return float(session.ask(request, IDLE_US).mtu_bytes)

    def throughput(self, a: Host, b: Host, mesh: Mesh) -> float:
        """TCP from `a` to `b` at once, bit/s; by iperf3 where both have it."""
        tool: Iperf3 | UnsetType = "iperf3" if self._iperf(a) and self._iperf(b) else UNSET
        took_us = mesh.duration_us if tool is UNSET else IPERF_S * 1_000_000
        with self._reflecting(a, b, took_us, tool=tool) as session:
            request = ProbeThroughput(
                address=b.literal_address,
                port=session.port,
                rate_bps=mesh.rate_bps,
                duration_us=took_us,
                tool=tool,
            )
            return float(session.ask(request, took_us).throughput_bps)

    def throughput_in(self, gaps: NextGaps, a: Host, b: Host, mesh: Mesh) -> float | None:
        """The same in bursts that spare the jobs: `gaps` is asked again and again for the next ones, so
        that no burst was planned long before. None: too little was sent.

        By rm's own test, which can be cut.
        """
        rate_bps = min(h.nic_bps for h in (a, b)) or DEFAULT_NIC_BPS
        offset_us = self._agents.clock_offset_us(a.name) or 0
        received = took_us = 0
        with self._reflecting(a, b, GAPS_US) as session:
            for _ in range(GAP_TRIES):
                windows = gaps(mesh.duration_us - took_us)
                if windows:
                    request = ProbeThroughput(
                        address=b.literal_address,
                        port=session.port,
                        rate_bps=mesh.rate_bps,
                        windows=[(begin + offset_us, length) for begin, length in windows],
                        buffer_bytes=rate_bps * UNDER_WAY_US // 8_000_000,
                    )
                    answer = session.ask(request, GAPS_US)
                    received, took_us = received + answer.bytes, took_us + answer.duration_us
                elif not took_us:
                    threading.Event().wait(self._patience_s)  # until the jobs have said more
                if took_us * 2 >= mesh.duration_us:
                    break
        return received * 8e6 / took_us if took_us >= LEAST_SENT_US else None

    def trace(self, a: Host, b: Host, tries: int, round_us: int) -> Path:
        """Which hops answer on the way from `a` to `b`, and how often.

        Raises:
            RmError, TimeoutError: the host did not do its part, or has an agent that cannot.
        """
        timeout_s = tries * (round_us / 1e6 + TRACE_ROUND_S) + MARGIN_S
        request = ProbeTrace(address=b.literal_address, tries=tries, round_us=round_us)
        way = self._agents.call(a.name, request, timeout_s).result(timeout_s)
        hops = [(hop.address, hop.answered, hop.rtt_us) for hop in way.hops]
        return path_of(hops, way.sent, way.reached)

    def clock(self, a: Host, b: Host, mesh: Mesh) -> Way:
        """By how much the two clocks differ, and whether each is held to a reference."""
        short = replace(mesh, packets=CLOCK_PACKETS, spacing_us=0)
        answer = self._oneway(a, b, short, False)
        if answer.offset_us is None or answer.clock_error_us is None:
            raise Unreachable(f"No packet came back from {b.name}.")
        way = Way(way_of(answer, "forward").values)
        way.values = {k: v for k, v in way.values.items() if k.startswith("clock_")}
        states = [self._agents.call(h.name, ProbeClock(), MARGIN_S).result(MARGIN_S) for h in (a, b)]
        local, remote = ((state.at_us, state.synchronized) for state in states)
        way.found = {"local": local, "remote": remote, "difference_us": answer.offset_us}
        return way

    def resolve(self, a: Host, service: ServiceTest) -> Resolved:
        """What the name server answers to `a`."""
        request = ProbeDns(
            query=service.query,
            record=cast(Record, service.record),
            nameserver=service.nameserver,
            timeout_us=service.timeout_us,
        )
        return self._asked(a, request, service)

    def fetch(self, a: Host, service: ServiceTest) -> Fetched:
        """What the web server answers to `a`."""
        request = ProbeHttp(url=service.url, contains=service.contains, timeout_us=service.timeout_us)
        return self._asked(a, request, service)

    def _asked(self, a: Host, request: Request[Answer], service: ServiceTest) -> Answer:
        timeout_s = 2 * service.timeout_us / 1e6 + MARGIN_S
        return self._agents.call(a.name, request, timeout_s).result(timeout_s)

    def _iperf(self, host: Host) -> bool:
        """Has the host iperf3? Asked once in each life of its agent."""
        since_us, has = self._has_iperf.get(host.name, (-1, False))
        if since_us != host.since_us:
            try:
                has = self._agents.call(host.name, ProbeTools(), MARGIN_S).result(MARGIN_S).iperf3
            except (RmError, TimeoutError):  # an agent that does not know the question
                has = False
            self._has_iperf[host.name] = (host.since_us, has)
        return has

    @contextmanager
    def _reflecting(
        self,
        a: Host,
        b: Host,
        took_us: int,
        idle_us: int = MARGIN_US,
        tool: Iperf3 | UnsetType = UNSET,
    ) -> Iterator[Session]:
        """While `b` answers, for as long as `a` needs; `idle_us`: until so long after `a`'s last word."""
        port = PORTS[next(self._ports) % len(PORTS)]
        heard = self._listening[(b.name, port)] = Heard()
        try:
            request = Reflect(
                port=port,
                duration_us=took_us + MARGIN_US,
                idle_us=idle_us,
                allow=[a.address, *(nic.address for nic in a.nics if nic.address)],
                tool=tool,
            )
            reflector = self._agents.call(b.name, request, 2 * (took_us / 1e6 + MARGIN_S))
            reflector.add_done_callback(lambda _: heard.listening.set())
            listens = heard.listening.wait(MARGIN_S)
            if reflector.done():
                reflector.result()  # why it could not listen
            if not listens:
                raise Unreachable(f"{b.name} did not begin to reflect.")
            yield Session(self._agents, a, port, heard, reflector)
        finally:
            del self._listening[(b.name, port)]


@dataclass(slots=True)
class Way:
    """What was found of one direction, by metric; `packets`: how many its loss is a share of; `path`: of a
    trace, in words; `failed`: why this direction alone has no result; `found`: of the newest test, as of
    `rm.core.monitoring.outcome`."""

    values: dict[str, float] = field(default_factory=dict)
    packets: int = 0
    path: str = ""
    failed: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)


class Heard:
    """What a reflector has said so far: that it listens, and that a question has reached it."""

    def __init__(self) -> None:
        self.listening = threading.Event()
        self.reached = threading.Event()


@dataclass(frozen=True, slots=True)
class Session:
    """`b` reflects on a port for probes of `a`."""

    agents: Agents
    a: Host
    port: int
    heard: Heard
    reflector: Future[Reflected]

    def ask(self, request: Request[Answer], takes_us: int) -> Answer:
        """Let `a` probe, which takes so long."""
        timeout_s = takes_us / 1e6 + MARGIN_S
        return self.agents.call(self.a.name, request, timeout_s).result(timeout_s)

    def answered(self, received: int) -> int:
        """How many questions have reached `b`; `received`: answers that the probe got."""
        if not received and not self.heard.reached.wait(REACHED_S):
            return 0
        return self.reflector.result(IDLE_US / 1e6 + MARGIN_S).answered


def _was_set(answer: OneWay) -> bool:
    """Was a clock set during the probe, or since the pings told of it? Then one direction has packets that
    arrived before they left, and the other has some that were under way for longer than a probe lasts."""
    ways = [way for way in (answer.forward_us, answer.backward_us) if way is not None]
    spreads = [*ways, *([] if answer.rtt_us is None else [answer.rtt_us])]
    longest_us = max((abs(us) for one in spreads for us in (one.min, one.median, one.max)), default=0)
    return longest_us > LONGEST_US or any(way.median < -(answer.clock_error_us or 0) for way in ways)


def way_of(answer: OneWay, direction: str) -> Way:
    """One direction, `forward` or `backward`, of a one-way probe's answer; without any value where nothing is
    known of it. As many packets go back as have arrived.

    A delay below zero by no more than the clocks' error is none. Nothing is said of delays where a clock
    was set.
    """
    forward = direction == "forward"
    loss_pct = answer.loss_forward_pct if forward else answer.loss_backward_pct
    if loss_pct is None:
        return Way()
    packets = answer.sent if forward else round(answer.sent * (1 - answer.loss_forward_pct / 100))
    values: dict[str, float] = {"loss_pct": loss_pct}
    way = Way(values, packets)
    was_set = _was_set(answer)
    histogram = answer.forward_histogram if forward else answer.backward_histogram
    way.found = {
        "sent": packets,
        "lost": min(packets, round(packets * loss_pct / 100)),
        "clock_error_us": answer.clock_error_us,
        "histogram": () if was_set else tuple(histogram),
    }
    error_us, delays = answer.clock_error_us, answer.forward_us if forward else answer.backward_us
    if was_set:
        return way
    if delays is not None:
        values["delay_us"] = max(delays.median, 0)
        if delays.p95 >= delays.median:  # an older agent does not say
            values["delay_p95_us"] = max(delays.p95, 0)
        if error_us is not None:
            values["clock_error_us"] = error_us
            if answer.offset_us is not None:
                values["clock_offset_us"] = max(0, abs(answer.offset_us) - error_us)
    jitter_us = answer.jitter_forward_us if forward else answer.jitter_backward_us
    if jitter_us is not None:
        values["jitter_us"] = jitter_us
    if answer.rtt_us is not None:
        values["rtt_us"] = answer.rtt_us.median
    return way
