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


Histogram = Annotated[list[tuple[SignedUs, Count]], Meta(max_length=1_000)]  # (delay, packets)
Said = Annotated[str, Meta(max_length=300)]


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
    forward_histogram: Histogram = []
    backward_histogram: Histogram = []


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
    of its error are used when they are better than the exchange's own. `histogram`: also how many packets had
    which delay, to 10 us, or less closely if these would be more than a thousand."""

    kind: Literal["oneway"] = "oneway"
    address: Word
    port: Port
    count: Annotated[int, Meta(ge=1, le=100_000)]
    interval_us: DurationUs
    offset_us: SignedUs | UnsetType = UNSET
    offset_error_us: DurationUs | UnsetType = UNSET
    histogram: bool = False


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


class ClockState(Struct, frozen=True, kw_only=True):
    """The host's time, and whether its kernel holds it to a reference (adjtimex(2))."""

    at_us: AtUs
    synchronized: bool


class ProbeClock(Request[ClockState], frozen=True, kw_only=True, tag="probe"):
    """The state of the host's clock."""

    kind: Literal["clock"] = "clock"


class Resolved(Struct, frozen=True, kw_only=True):
    """`error` "": these records, as in a zone file, came after this time; else why that is not so."""

    time_us: DurationUs
    records: Annotated[list[Said], Meta(max_length=100)] = []
    error: Said = ""
    nameserver: Annotated[str, Meta(max_length=255)] = ""


Record = Literal["a", "aaaa", "ns", "cname", "soa", "ptr", "mx", "txt"]


class ProbeDns(Request[Resolved], frozen=True, kw_only=True, tag="probe"):
    """One question to a name server, "" = the host's own."""

    kind: Literal["dns"] = "dns"
    query: Word
    record: Record
    nameserver: Annotated[str, Meta(max_length=255)] = ""
    timeout_us: DurationUs


class Fetched(Struct, frozen=True, kw_only=True):
    """`error` "": the page came in this time, with the text if one was asked for; else why that is not so.
    `status` is null where nobody answered, `found` where no text was asked for."""

    time_us: DurationUs
    status: Annotated[int, Meta(ge=0, le=999)] | None = None
    found: bool | None = None
    error: Said = ""


class ProbeHttp(Request[Fetched], frozen=True, kw_only=True, tag="probe"):
    """One page of a web server, of which a megabyte is read at most; `contains`: text that it must have."""

    kind: Literal["http"] = "http"
    url: Annotated[str, Meta(max_length=2_000)]
    contains: Annotated[str, Meta(max_length=255)] = ""
    timeout_us: DurationUs
