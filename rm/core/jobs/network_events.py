"""Events of the network: what is measured of it and of jobs that use it, and how jobs are aligned.

`rm.core.jobs.events` has all.

All times are microseconds since the epoch of the daemon's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import Alignment, Difference, Released
from rm.core.model.network.links import LinkStats
from rm.core.model.network.slowed import Slowed
from rm.core.model.progress import Progress


@dataclass(frozen=True, slots=True)
class ProfileMeasured:
    """The traffic profile seen on the run (inspection, or a job submitted without one)."""

    job: int
    attempt: int
    traffic: TrafficProfile
    cooperative: bool


@dataclass(frozen=True, slots=True)
class JobsProgressed:
    """New estimates of how far running jobs have come; of an attempt that is over they are noise."""

    progress: tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class JobsSlowed:
    """Running jobs have lost time to others on their links, or saved some by interleaving; of an attempt that
    is over it is noise."""

    slowed: tuple[Slowed, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction of the network, as probed."""

    source: str
    destination: str
    stats: LinkStats


@dataclass(frozen=True, slots=True)
class ZoneMeasured:
    """How far a zone is from the users, that is from the daemon: one way, whole milliseconds,
    so that noise does not make one of two equally near zones the nearer one."""

    zone: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class AlignmentRecomputed:
    """Stage 3: the alignment for the placed jobs of this version; with `gone` what differs from before."""

    placed_version: int
    alignment: Alignment
    gone: Difference | None = None


@dataclass(frozen=True, slots=True)
class JobsReleased:
    """Jobs that share links are slower than before they were managed, or may be: they are left alone."""

    released: Released


@dataclass(frozen=True, slots=True)
class JobsManaged:
    """Jobs that were left alone are managed again; `why` in words."""

    jobs: tuple[int, ...]
    why: str
