"""Events of hosts, of what they still hold and measure of jobs, and of their reservations.

`rm.core.jobs.events` has all.

All times are microseconds since the epoch of the daemon's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.jobs.strays import Held
from rm.core.model.host import Gpu, Host, Nic
from rm.core.model.host_reservation import HostReservation, Window
from rm.core.model.quickly_made import quickly_made


@dataclass(frozen=True, slots=True)
class HostAdded:
    """A host of the inventory: new, or with new variables. Measured fields of a known host are kept."""

    host: Host


@dataclass(frozen=True, slots=True)
class HostRemoved:
    host: str
    by: str


@quickly_made
@dataclass(frozen=True, slots=True)
class HostUp:
    """The agent answers. Zero or empty = not known."""

    host: str
    boot_id: str
    agent_version: str
    cpus: int = 0
    mem_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    interface: str = ""
    nic_bps: int = 0
    nics: tuple[Nic, ...] = ()
    unenforced: tuple[str, ...] = ()
    writable: bool = True  # its spool
    newest_job: int = 0  # that it remembers: new jobs get larger ids
    containers: str = ""  # the runtime of containers that it has
    unshaped: tuple[str, ...] = ()
    machine: str = ""
    kernel: str = ""
    booted_us: int = 0


@dataclass(frozen=True, slots=True)
class HostSilent:
    """The channel to the host is lost; its jobs go on until it is declared down."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostDown:
    """Silent for longer than the configured time: its jobs are lost."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseOver:
    """The host is not heard, and the lease of this attempt there has run out: its tasks have ended."""

    job: int
    attempt: int
    host: str


@dataclass(frozen=True, slots=True)
class HostDrained:
    host: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostMisbehaved:
    """The host's agent said or did what no agent of this rm does: it gets no more jobs until an administrator
    has looked at it. Those that run there go on."""

    host: str
    what: str


@dataclass(frozen=True, slots=True)
class SpoolWritable:
    """The host that could launch nothing, as its spool could not be written, can write it again."""

    host: str


@dataclass(frozen=True, slots=True)
class HostResumed:
    host: str
    by: str


@dataclass(frozen=True, slots=True)
class ReservationSet:
    """A reservation of hosts is made, or another version of it."""

    reservation: HostReservation


@dataclass(frozen=True, slots=True)
class ReservationDeleted:
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class ReservationRenewed:
    """Further windows of one that comes again, behind those that are known."""

    name: str
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class ReservationTurned:
    """The first window of a reservation has begun, or is over: the cycle sees it by the clock."""

    name: str
    edge_us: int


@dataclass(frozen=True, slots=True)
class ReservationPlayed:
    """What became of the playbook of a reservation, in the window that begins then."""

    name: str
    window_us: int
    result: str


@dataclass(frozen=True, slots=True)
class StrayFound:
    """`host` still holds an attempt that is not this job's current one: it must be stopped there, and while
    it runs it keeps what `held` says."""

    job: int
    attempt: int
    host: str
    running: bool
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class StrayEnded:
    """A rank of such an attempt runs no longer; with the last one what it held is free."""

    job: int
    attempt: int
    host: str
    rank: int


@dataclass(frozen=True, slots=True)
class GpusIdle:
    """By its hosts' measurements the GPUs of a job's attempt did nothing for `idle_us`. With `stop` the job
    ends, with `mail` its user is mailed."""

    job: int
    attempt: int
    idle_us: int
    stop: bool = False
    mail: bool = False
