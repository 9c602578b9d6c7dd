"""Operations on jobs' traffic: shaping, counting, profiles, pauses, admission."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from rm.protocol.attempts import Grid
from rm.protocol.request import Done, OfAttempt, Ordered, Request
from rm.protocol.scalars import AtUs, Bps, Bytes, Count, DurationUs, Rank, Share, Word

BurstUs = Annotated[int, Meta(ge=1, le=2_000_000)]
Missing = Annotated[list[Word], Meta(max_length=256)]  # parts that the kernel lacks
PerJob = Annotated[dict[Word, Bytes], Meta(max_length=65_536)]


class Shaped(Struct, frozen=True, kw_only=True, rename={"traffic_class": "class"}):
    """`verified`: a packet of the job passed its class."""

    traffic_class: Word
    classifier: Word
    verified: bool
    missing: Missing
    queue_packets: Count = 0


class Bursts(Struct, frozen=True, kw_only=True):
    """A burst ends after a silence of `gap_us`; one above `longest_us` goes behind those that wait."""

    gap_us: BurstUs
    longest_us: BurstUs


class Shape(Ordered[Shaped], frozen=True, kw_only=True, tag="shape"):
    """Give the job its class on the interface, or change it. With `bursts`: whoever begins a burst earlier is
    served before the others that have them, those of priority 0 before all."""

    interface: Word
    rate_bps: Bps
    priority: Annotated[int, Meta(ge=0, le=7)]
    class_rate_bps: Bps
    ceil_bps: Bps
    queue_packets: Count  # 0: as the queue that was found, else 100
    bursts: Bursts | UnsetType = UNSET


class Unshape(Ordered[Done], frozen=True, kw_only=True, tag="unshape"):
    """Remove the job's class; the last job's removal restores the interface as it was found."""

    interface: Word


class PathSet(Struct, frozen=True, kw_only=True):
    """`verified`: a packet of the job got the code point."""

    classifier: Word
    verified: bool
    missing: Missing


class SetPath(Ordered[PathSet], frozen=True, kw_only=True, tag="path"):
    """Give what the job sends through the interface this code point (DSCP), by which switches choose its
    path."""

    interface: Word
    dscp: Annotated[int, Meta(ge=0, le=63)]


class UnsetPath(Ordered[Done], frozen=True, kw_only=True, tag="unpath"):
    """The job's packets are sent as they are again."""

    interface: Word


class Counted(Struct, frozen=True, kw_only=True):
    classifier: Word
    verified: bool
    missing: Missing
    added: bool  # nobody counted before


class CountTraffic(OfAttempt[Counted], frozen=True, kw_only=True, tag="count"):
    """Count the job's bytes on the interface without shaping them."""

    interface: Word


class ClassCounters(Struct, frozen=True, kw_only=True):
    bytes: Bytes
    packets: Bytes
    drops: Bytes
    backlog_bytes: Bytes


class ShapeCounted(Struct, frozen=True, kw_only=True):
    jobs: Annotated[dict[Word, ClassCounters], Meta(max_length=65_536)]


class ShapeCounters(Request[ShapeCounted], frozen=True, kw_only=True, tag="shape_counters"):
    """Counters of every shaped job's class."""

    interface: Word


class InterfaceCounters(Struct, frozen=True, kw_only=True):
    """By the host's clock; `jobs`: what each counted job has sent, by its number."""

    now_us: AtUs
    rx_bytes: Bytes
    tx_bytes: Bytes
    jobs: PerJob


class CountersNow(Request[InterfaceCounters], frozen=True, kw_only=True, tag="counters"):
    """Counters of the interface and of every counted job."""

    interface: Word


class Watched(Struct, frozen=True, kw_only=True):
    samples: Count


class Watch(Request[Watched], frozen=True, kw_only=True, tag="watch"):
    """Notify `counters` at this interval (at least 1 ms) for `duration_us`."""

    interface: Word
    interval_us: DurationUs
    duration_us: DurationUs


class Profiled(Struct, frozen=True, kw_only=True):
    """`phases` are (offset_us, duration_us, rate_bps); `origin` says what offset 0 is: `reports` (the start
    of the job's iterations) or `traffic` (the phase after the longest silence)."""

    period_us: DurationUs = 0
    phases: Annotated[list[tuple[DurationUs, DurationUs, Bps]], Meta(max_length=4_096)] = []
    iterations: Count = 0
    confidence: Share = 0.0
    origin: Word = ""


class Profile(OfAttempt[Profiled], frozen=True, kw_only=True, tag="profile"):
    """Period and communication phases, from the job's own byte counters."""

    interface: Word
    duration_us: DurationUs


class Paused(Struct, frozen=True, kw_only=True):
    paused_us: DurationUs


class Pause(OfAttempt[Paused], frozen=True, kw_only=True, tag="pause"):
    """Freeze the job's processes for `length_us`, at most 10 s: by its control group, else by SIGSTOP."""

    length_us: DurationUs


class Regulated(Struct, frozen=True, kw_only=True):
    """`cooperative`: the job has begun to report iterations by itself."""

    iterations: Count = 0
    pauses: Count = 0
    cooperative: bool = False


class Regulate(Ordered[Regulated], frozen=True, kw_only=True, tag="regulate"):
    """Keep a job that knows nothing of rm in its slots: watch its bytes, report `iterations` as those of
    `rank`, and freeze it for the waits of its schedule. An iteration has `phases` communication phases;
    one begins when `need_bytes` came, and ends after `quiet_us` below that. `schedule` holds where the
    attempt has none of its own."""

    interface: Word
    duration_us: DurationUs
    rank: Rank
    phases: Annotated[int, Meta(ge=1, le=4_096)]
    need_bytes: Bytes | UnsetType = UNSET
    quiet_us: DurationUs | UnsetType = UNSET
    schedule: Grid | UnsetType = UNSET


class Admission(Ordered[Done], frozen=True, kw_only=True, tag="admission"):
    """The attempt's ranks on the host ask before they communicate, at the socket `admission` in its folder,
    and wait `most_us` at most; 0: they ask no longer, and none waits."""

    most_us: DurationUs


class Admit(Ordered[Done], frozen=True, kw_only=True, tag="admit"):
    """Let the attempt's communication of this number begin, and all before."""

    number: Count


class Hold(Ordered[Done], frozen=True, kw_only=True, tag="hold"):
    """Let the attempt's communication of this number, which has begun, stand still until `admit` names it
    again, `most_us` and 10 s at most: its processes are frozen, by their control group, else by SIGSTOP."""

    number: Count
    most_us: DurationUs
