"""Continuous one-way latency: the streams between a host and its peers, and their windows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rm.protocol.probes import Histogram, Spread
from rm.protocol.request import Request
from rm.protocol.scalars import AtUs, Count, DurationUs, Epoch, SignedUs, Word

UnsurePort = Annotated[int, Meta(ge=0, le=65_535)]
StreamId = Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]
Life = Annotated[int, Meta(ge=0, le=1 << 53)]
Secret = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]  # 64 bits; empty: none is known
Packets = Annotated[int, Meta(ge=0, le=100_000)]
WINDOWS_MOST = 16_384
STREAMS_MOST = 1_024


class Stream(Struct, frozen=True, kw_only=True):
    """The streams to and from one peer: `out` and `into` are their ids. A packet goes every `interval_us`,
    and `count` of them are a window. `port` is the peer's, 0: not known yet, and nothing is sent to it.
    `secret` is what the peer told for `out`: packets without it do not count there."""

    out: StreamId
    into: StreamId
    address: Word
    port: UnsurePort
    secret: Secret = ""
    count: Annotated[int, Meta(ge=1, le=100_000)]
    interval_us: DurationUs
    histogram: bool = False


class SentWindow(Struct, frozen=True, kw_only=True):
    """How many packets of a window were sent. `begun_us` is by the sender's clock; windows are counted from 0
    in each `life` of the stream."""

    stream: StreamId
    life: Life
    window: Count
    begun_us: AtUs
    sent: Packets


class ReceivedWindow(Struct, frozen=True, kw_only=True):
    """What has arrived of a window, without the `duplicates`. Delays are less `offset_us`, the receiver's
    clock minus the sender's; `clock_error_us` bounds its error, null: it is not known."""

    stream: StreamId
    life: Life
    window: Count
    received: Packets
    duplicates: Count = 0
    reordered: Count = 0
    delay_us: Spread | None = None
    jitter_us: DurationUs | None = None
    offset_us: SignedUs = 0
    clock_error_us: DurationUs | None = None
    histogram: Histogram = []


Listening = tuple[StreamId, DurationUs, Life]


class Latencybg(Struct, frozen=True, kw_only=True):
    """`life` of the process and its `port`, 0: there is none. `listening`: (stream, since how long, the life
    of its sender, 0: nothing has arrived). `secrets`: (stream, what its packets must carry). `last` numbers
    the newest window of this answer, and there may be `more`."""

    life: Life
    port: UnsurePort
    now_us: AtUs
    listening: Annotated[list[Listening], Meta(max_length=STREAMS_MOST)]
    secrets: Annotated[list[tuple[StreamId, Secret]], Meta(max_length=STREAMS_MOST)] = []
    sent: Annotated[list[SentWindow], Meta(max_length=WINDOWS_MOST)]
    received: Annotated[list[ReceivedWindow], Meta(max_length=WINDOWS_MOST)]
    last: Count
    more: bool


class OrderLatencybg(Request[Latencybg], frozen=True, kw_only=True, tag="latencybg"):
    """Have these streams, and no others, until nobody has asked for ten minutes; the answer has the windows
    that are over since number `after` of that `life` of the process. Those up to `done` are forgotten."""

    epoch: Epoch
    cluster: Word = ""
    streams: Annotated[list[Stream], Meta(max_length=STREAMS_MOST)]
    life: Life = 0
    after: Count = 0
    done: Count = 0
