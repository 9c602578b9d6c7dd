"""The input of FORESIGHT: each job's profiled flows, and the links that they share.

FORESIGHT Sec. III, "Problem Statement": one iteration of each job has been profiled at the level
of flows, alone on the network, at each throttling rate ("Beyond Simple Delays"); nothing is known
of the dependencies between flows. Times are integer microseconds, rates integer bit/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from rm.core.model.network.fabric import Fabric
from rm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Piece:
    """Flow number `flow` sends at `rate_bps` during [start_us, end_us) of an iteration.

    `op` counts the operations of the iteration (see `RoutedRange`) from 0 in the order of their
    starts; what one operation sends, before and after a gap, is one pattern.
    """

    flow: int
    start_us: int
    end_us: int
    rate_bps: int
    op: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """One iteration alone on the network, its flows slowed to `throttle` (1 = not slowed)."""

    length_us: int
    pieces: tuple[Piece, ...]
    throttle: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class JobDemand:
    """A job of `iterations` equal iterations; `flows` are its (source, destination) hosts.

    `profiles[0]` is the unthrottled one; its length is the job's isolated period.

    Raises:
        UsageError: a job without profiles, or a piece that does not fit its iteration.
    """

    job: int
    flows: tuple[tuple[str, str], ...]
    iterations: int
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        if not self.profiles or self.iterations < 1:
            raise UsageError(
                f"Job {self.job} has {len(self.profiles)} profiles and {self.iterations} iterations.",
                "Give at least one of each.",
            )
        for profile in self.profiles:
            if profile.length_us < 1 or not 0 < profile.throttle <= 1:
                raise UsageError(
                    f"A profile of job {self.job} lasts {profile.length_us} us at the throttling rate "
                    f"{profile.throttle}.",
                    "An iteration takes time, and the rate lies between 0 and 1.",
                )
            for p in profile.pieces:
                if not (
                    0 <= p.flow < len(self.flows)
                    and 0 <= p.start_us < p.end_us <= profile.length_us
                    and p.rate_bps >= 0
                    and p.op >= 0
                ):
                    raise UsageError(
                        f"Job {self.job}: flow {p.flow} sends {p.rate_bps} bit/s from {p.start_us} to "
                        f"{p.end_us} us as operation {p.op}, which does not fit the iteration of "
                        f"{profile.length_us} us with {len(self.flows)} flows.",
                    )

    @property
    def period_us(self) -> int:
        """The isolated iteration time."""
        return self.profiles[0].length_us


@dataclass(frozen=True, slots=True)
class Links:
    """The links to schedule on: a fabric's uplinks, and those host links that may bind.

    A spine link is reserved in `units` equal parts: the least rate of a subflow. `host_bps` has
    the capacity of a host's link, each way; hosts that it lacks are never short of it.
    """

    fabric: Fabric | None
    units: int = 4
    host_bps: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.units < 1:
            raise UsageError(f"A link is divided into {self.units} units.", "Use 1 or more.")
        if self.fabric is not None and (self.fabric.spines < 1 or self.fabric.uplink_bps < 1):
            raise UsageError(
                f"The fabric has {self.fabric.spines} spines with links of {self.fabric.uplink_bps} bit/s.",
                "Give both, or no fabric.",
            )

    @property
    def colours(self) -> int:
        """Units of all uplinks of one leaf, one way; 0 without a fabric."""
        return self.fabric.spines * self.units if self.fabric is not None else 0

    def units_of(self, rate_bps: int, units: int | None = None) -> int:
        """Whole units that a flow of this rate reserves, of a link in `units` (default: its own)."""
        assert self.fabric is not None
        return -(-rate_bps * (units or self.units) // self.fabric.uplink_bps)
