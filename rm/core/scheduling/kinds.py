"""Which jobs fit or fail together: by their demand, the hosts that reservations keep from them, and whether
they still wait for hosts of few racks."""

from __future__ import annotations

from rm.core.model.asked.demand import Demand
from rm.core.model.host_reservation import HostReservation, closed_hosts, standing_against
from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot
from rm.core.model.switches import insists

Standing = tuple[str, tuple[str, ...]]


class Kinds:
    """Of the jobs of one pass. Without reservations the kind of a job without --switches is its demand."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._closed: dict[Standing, tuple[tuple[str, str], ...]] = {}
        self._kinds: dict[tuple[int, Standing], tuple[Demand, Demand]] = {}  # by identity of the demand
        self._anywhere: dict[int, tuple[Demand, Demand]] = {}  # the same

    def of(self, job: Job) -> Demand:
        """The same object for jobs of one demand and the same hosts, as long as both live."""
        demand, snapshot = job.demand, self._snapshot
        if demand.switches and not insists(job, snapshot):
            demand = self._anywhere.setdefault(id(demand), (demand, demand._replace(switches=0)))[1]
        if not snapshot.reservations:
            return demand
        spec = job.spec
        against = standing_against(spec, snapshot.now_us, snapshot.reservations)
        if not against and not spec.reservation:
            return demand
        standing = spec.reservation, tuple(one.name for one in against)
        known = self._kinds.get((id(demand), standing))
        if known is None:
            kind = demand.kept_from(self._hosts(standing, against))
            known = self._kinds[id(demand), standing] = demand, kind
        return known[1]

    def _hosts(self, standing: Standing, against: tuple[HostReservation, ...]) -> tuple[tuple[str, str], ...]:
        if standing not in self._closed:
            snapshot = self._snapshot
            mine = next((one for one in snapshot.reservations if one.name == standing[0]), None)
            self._closed[standing] = closed_hosts(mine, against, snapshot.now_us, snapshot.hosts)
        return self._closed[standing]
