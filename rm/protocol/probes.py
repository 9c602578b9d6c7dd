"""Measuring the network: one host reflects, another probes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from rm.protocol.request import Request
from rm.protocol.scalars import (
    AtUs,
    Bps,
    Bytes,
    Count,
    DurationUs,
    Percent,
    Port,
    SignedUs,
    Word,
)

Iperf3 = Literal["iperf3"]


class Reflected(Struct, frozen=True, kw_only=True):
    """How many questions came, and how much a throughput test brought."""

    answered: Count = 0
    received_bytes: Bytes = 0


class Reflect(Request[Reflected], frozen=True, kw_only=True, tag="reflect"):
    """Answer probes on the port, over UDP and TCP, for `duration_us` (at most 10 minutes), or until nothing
    came for `idle_us`; with the tool iperf3 one test of that instead. Notifies `reflecting` when it listens,
    and once more, with `reached`, at the first question. Only the addresses in `allow` are answered."""

    port: Port
    duration_us: DurationUs
    idle_us: DurationUs
    allow: Annotated[list[Word], Meta(max_length=1_024)]
    tool: Iperf3 | UnsetType = UNSET


class Spread(Struct, frozen=True, kw_only=True):
    """Of delays, microseconds; below zero by no more than the clocks' error."""

    min: SignedUs = 0
    median: SignedUs
    p95: SignedUs = 0
    max: SignedUs = 0


class RoundTrips(Struct, frozen=True, kw_only=True):
    sent: Count
    received: Count
    loss_pct: Percent
    rtt_us: Spread | None = None
    jitter_rtt_us: DurationUs | None = None


class OneWay(Struct, frozen=True, kw_only=True):
    """`forward` is from the prober to the reflector. Delays are left out where nothing came back; a loss is
    null where it is not known. `clock_error_us` bounds the error of one-way delays."""

    sent: Annotated[int, Meta(ge=1, le=100_000)]
    received: Count
    loss_forward_pct: Percent
    loss_backward_pct: Percent | None = None
    loss_pct: Percent = 0.0
    forward_us: Spread | None = None
    backward_us: Spread | None = None
    rtt_us: Spread | None = None
    jitter_forward_us: DurationUs | None = None
    jitter_backward_us: DurationUs | None = None
    jitter_rtt_us: DurationUs | None = None
    offset_us: SignedUs | None = None
    clock_error_us: DurationUs | None = None


class Throughput(Struct, frozen=True, kw_only=True):
    """As the sink saw it. `bursts`: of those asked for, how many were made; `retransmits` by iperf3."""

    throughput_bps: Bps
    bytes: Bytes
    duration_us: DurationUs
    bursts: Count | None = None
    retransmits: Count | None = None


class PathMtu(Struct, frozen=True, kw_only=True):
    mtu_bytes: Annotated[int, Meta(ge=0, le=65_536)]


class Tools(Struct, frozen=True, kw_only=True):
    iperf3: bool


class ProbeTools(Request[Tools], frozen=True, kw_only=True, tag="probe"):
    """Which programs for tests the host has."""

    kind: Literal["tools"] = "tools"


class ProbeOneWay(Request[OneWay], frozen=True, kw_only=True, tag="probe"):
    """Loss, delay and jitter both ways. `offset_us` (the reflector's clock minus this host's) and the bound
    of its error are used when they are better than the exchange's own."""

    kind: Literal["oneway"] = "oneway"
    address: Word
    port: Port
    count: Annotated[int, Meta(ge=1, le=100_000)]
    interval_us: DurationUs
    offset_us: SignedUs | UnsetType = UNSET
    offset_error_us: DurationUs | UnsetType = UNSET


class ProbeRoundTrip(Request[RoundTrips], frozen=True, kw_only=True, tag="probe"):
    """Loss and delay there and back."""

    kind: Literal["rtt"] = "rtt"
    address: Word
    port: Port
    count: Annotated[int, Meta(ge=1, le=100_000)]
    interval_us: DurationUs


class ProbeThroughput(Request[Throughput], frozen=True, kw_only=True, tag="probe"):
    """TCP as fast as it goes, or as `rate_bps` (0: no limit) allows. `windows`, (begin_us, length_us) by this
    host's clock, confine it to bursts with `buffer_bytes` under way at most."""

    kind: Literal["throughput"] = "throughput"
    address: Word
    port: Port
    rate_bps: Bps
    duration_us: DurationUs | UnsetType = UNSET
    windows: Annotated[list[tuple[AtUs, DurationUs]], Meta(max_length=4_096)] | UnsetType = UNSET
    buffer_bytes: Bytes | UnsetType = UNSET
    tool: Iperf3 | UnsetType = UNSET


class ProbeMtu(Request[PathMtu], frozen=True, kw_only=True, tag="probe"):
    """The largest packet that gets there undivided, the IP header included."""

    kind: Literal["mtu"] = "mtu"
    address: Word
    port: Port


class Hop(Struct, frozen=True, kw_only=True):
    """One that answered for packets that lived too short, or the host itself; "" = nobody did. How many
    were `answered`, and the fastest round trip."""

    address: Annotated[str, Meta(max_length=64)] = ""
    answered: Count = 0
    rtt_us: DurationUs | None = None


class Way(Struct, frozen=True, kw_only=True):
    """The hops on the way to a host, with itself if it was `reached`; each was asked `sent` times."""

    hops: Annotated[list[Hop], Meta(max_length=64)]
    sent: Annotated[int, Meta(ge=1, le=1_000)]
    reached: bool


class ProbeTrace(Request[Way], frozen=True, kw_only=True, tag="probe"):
    """Which routers are on the way: UDP with a rising TTL, `tries` times each; a round of all hops every
    `round_us` at most, since routers answer seldom."""

    kind: Literal["trace"] = "trace"
    address: Word
    tries: Annotated[int, Meta(ge=1, le=100)]
    round_us: DurationUs
