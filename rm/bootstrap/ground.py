"""What every part of a leading daemon stands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

from rm.adapters.hosts.fleet import Fleet
from rm.adapters.store.sql import SqlStore
from rm.config import Config
from rm.core.jobs.state import ClusterState
from rm.core.ports import Clock
from rm.core.store import Loaded
from rm.daemon.leading.lease import HeldLease


@dataclass(frozen=True, slots=True)
class Ground:
    """One life of a daemon that leads.

    Attributes:
        located: adds to a sentence about the configuration where that stands.
        zone: of schedules.
        lease: held; `fail` ends the daemon with a sentence.
        loaded: what the store held, `state` what was made of it, for the leader; `recent_us`: how long ended
            jobs stay in the state.
        fleet: not started yet.
    """

    config: Config
    located: Callable[[str], str]
    store: SqlStore
    clock: Clock
    zone: tzinfo
    lease: HeldLease
    fail: Callable[[str], None]
    loaded: Loaded
    state: ClusterState
    recent_us: int
    fleet: Fleet
