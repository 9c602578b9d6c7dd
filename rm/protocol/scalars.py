"""The numbers and texts that messages are made of, each with its range.

No sum of them that the daemon forms leaves 64 bits. Times are microseconds since the epoch, by the clock
that the field's message names, or durations (`_us`); rates are bit/s, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

TIME_MAX_US = 1 << 53  # no instant or duration is larger: as many microseconds are 285 years
COUNT_MAX = (1 << 63) - 1
LIST_MAX = 1 << 17

Job = Annotated[int, Meta(ge=0, le=1 << 53)]
Attempt = Annotated[int, Meta(ge=0, le=1 << 31)]
Rank = Annotated[int, Meta(ge=0, le=1 << 20)]
Epoch = Annotated[int, Meta(ge=0, le=1 << 53)]
HeardEpoch = Annotated[int, Meta(ge=0, le=(1 << 53) - (1 << 30))]  # one that leaves room for those to come
Pid = Annotated[int, Meta(ge=0, le=1 << 31)]

AtUs = Annotated[int, Meta(ge=0, le=TIME_MAX_US)]
AliveUs = Annotated[int, Meta(ge=0, le=TIME_MAX_US)]  # since the host's boot, by its clock that never jumps
DurationUs = Annotated[int, Meta(ge=0, le=TIME_MAX_US)]
SignedUs = Annotated[int, Meta(ge=-TIME_MAX_US, le=TIME_MAX_US)]  # a difference
Seconds = Annotated[int, Meta(ge=0, le=1 << 40)]
Bytes = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Bps = Annotated[int, Meta(ge=0, le=1 << 53)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
ExitCode = Annotated[int, Meta(ge=0, le=255)]  # others would turn into 0 in a shell
Signal = Annotated[int, Meta(ge=0, le=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[float, Meta(ge=0, le=100)]

Word = Annotated[str, Meta(max_length=255)]  # a name
Path = Annotated[str, Meta(max_length=8_192)]
Text = Annotated[str, Meta(max_length=8 << 20)]  # as long as a line may be
Sentence = Text  # users' words may be in it, which must not make a line misfit: its reader cuts it
