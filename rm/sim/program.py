"""What a simulated job does: iterations of compute and communication stages, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from rm.core.model.asked.traffic import TrafficProfile
from rm.policies.interleave.profile import phases_of

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class Compute:
    """Work on each of the job's GPUs: `parts_us` one after the other, each of them without
    interruption (a forward and a backward pass), the GPUs independently of each other.

    The stage ends when the last GPU is done: synchronous data-parallel training.
    """

    parts_us: tuple[float, ...]

    @property
    def total_us(self) -> float:
        return sum(self.parts_us)


@dataclass(frozen=True, slots=True)
class Communicate:
    """A ring collective over the job's hosts: each host sends `bits` to the next, at most `cap_bps`.

    `size_bytes` is the message as the job sees it (the M of an all-reduce). A job on one host
    communicates for free. With `barriers` > 1 the transfer goes in this many equal steps, each
    of which waits for the slowest flow (the 2(n-1) stages of a ring all-reduce).
    """

    bits: float
    cap_bps: float = inf
    size_bytes: float = 0.0
    barriers: int = 1


Stage = Compute | Communicate


@dataclass(frozen=True, slots=True)
class Program:
    """`iterations` times the same stages; `alone_us` is one iteration with the network to itself."""

    iterations: int
    stages: tuple[Stage, ...]
    alone_us: float
    compute_us: float = field(init=False)

    def __post_init__(self) -> None:
        total_us = sum(s.total_us for s in self.stages if isinstance(s, Compute))
        object.__setattr__(self, "compute_us", total_us)


def program_of(profile: TrafficProfile, iterations: int) -> Program:
    """The program whose iterations put exactly this profile on a link that is otherwise idle.

    A phase of rate r and duration d is a transfer of r*d bits that is never faster than r; the
    rest of the period is compute.
    """
    stages: list[Stage] = []
    at = 0
    for offset, duration, rate in phases_of(profile):
        if offset > at:
            stages.append(Compute((float(offset - at),)))
        bits = rate * duration / 1e6
        stages.append(Communicate(bits, float(rate), bits / BITS_PER_BYTE))
        at = offset + duration
    if at < profile.period_us:
        stages.append(Compute((float(profile.period_us - at),)))
    return Program(iterations, tuple(stages), float(profile.period_us))


def sequence(
    iterations: int, stages: Iterable[Stage], bandwidth_bps: float, fixed_us: float = 0.0
) -> Program:
    """A program from its stages; alone, transfers run at `bandwidth_bps` or their cap.

    `fixed_us` is what each communication costs besides (the latency a of Ada-SRSF's model).
    """
    made = tuple(stages)
    alone = 0.0
    for stage in made:
        if isinstance(stage, Compute):
            alone += stage.total_us
        else:
            alone += fixed_us + stage.bits / min(stage.cap_bps, bandwidth_bps) * 1e6
    return Program(iterations, made, alone)
