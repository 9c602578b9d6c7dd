"""Streams of a job's steps between its hosts, which the daemon passes on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rm.protocol.job_steps import StepUsed
from rm.protocol.request import Done, Ordered
from rm.protocol.scalars import Bytes, Word

CHUNK_BYTES = 64 << 10
Place = Annotated[int, Meta(ge=0, le=65_535)]
Data = Annotated[str, Meta(max_length=CHUNK_BYTES * 4 // 3 + 4)]


class Stream(Ordered[Done], frozen=True, kw_only=True, tag="stream"):
    """A piece of a stream of the attempt's steps, from its host of this `place`; `data` is base64 and begins
    at `offset`, `ack` is up to where the other direction was consumed there. With `end` nothing follows,
    which counts as one byte more; with `gone` there is no such stream. `used` is what the step uses at this
    end. Both ends repeat what is not acknowledged."""

    place: Place
    stream: Word
    offset: Bytes
    data: Data
    ack: Bytes
    end: bool = False
    gone: bool = False
    used: StepUsed | None = None
