"""What stood around a placement when it was chosen: for the record that `rmx why` reads later.

Only what the next placement changes is looked up at once; the words are found when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from rm.core.model.asked.demand import Shape
from rm.core.model.choice import CHOSEN_MAX, REFUSED_MAX, Judged, Refused
from rm.core.model.job import Placement
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import HostVerdict, Reason
from rm.core.model.snapshot import Free
from rm.core.ports import Candidate, Observed
from rm.core.scheduling.choosing import tasks_of
from rm.policies.placement.steps.capacity import Capacities
from rm.policies.placement.steps.filters import refusal
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_table import NetworkTable
from rm.policies.placement.steps.pools import Pool
from rm.policies.placement.steps.verdicts import other_zone

# hosts by name: badly connected ones, those without room, and of each of the next zones
BAD_MAX, FULL_MAX, ZONES_MAX, OF_ZONE_MAX = 4, 8, 2, 2
assert BAD_MAX + FULL_MAX + ZONES_MAX * OF_ZONE_MAX <= REFUSED_MAX
Scores = Callable[[int], tuple[tuple[str, float], ...]]  # of a host, by its number


@quickly_made
@dataclass(frozen=True, slots=True)
class Around:
    """What a policy looked at when it found a candidate.

    Args:
        caps: tasks that each host takes after the filters; is not written to any more.
        pool, table: where the candidate was looked for, if in a part of the cluster.
        narrow: hosts that the policy's own filter refused, by number.
        scores: what the hosts were compared by.
    """

    capacities: Capacities
    shape: Shape
    caps: Ints
    pool: Pool | None = None
    table: Callable[[], NetworkTable] | None = None
    narrow: Mapping[int, Reason] | None = None
    scores: Scores | None = None

    def observed(self, candidate: Candidate) -> Observed:
        """To be called before the snapshot changes, and its answer before the hosts do."""
        hosts, free = self.capacities.hosts, self.capacities.snapshot.free
        at = self.capacities.number[candidate.placement.tasks[0].host]
        full = self._without_room(at)
        return partial(self._judged, candidate.placement, full, [free.get(hosts[i].name) for i in full])

    def _without_room(self, at: int) -> list[int]:
        """The nearest hosts without room, by number: those of the host's own zone, then others."""
        caps, zone_of = self.caps, self.capacities.zone_of
        zone = zone_of[at]
        mine = self.capacities.members[zone]
        near: list[int] = mine[caps[mine] <= 0][:FULL_MAX].tolist()
        if len(near) < FULL_MAX:
            full = (caps <= 0).nonzero()[0]
            if len(full) > len(near):
                near += full[zone_of[full] != zone][: FULL_MAX - len(near)].tolist()
        return near

    def _judged(self, placement: Placement, full: list[int], left: list[Free | None]) -> Judged:
        """`left` is what was free of the hosts `full`."""
        tasks = tasks_of(placement)
        table = self.table() if self.table is not None and len(tasks) > 1 else None
        chosen = tuple([self._taken(host, count, table) for host, count in islice(tasks.items(), CHOSEN_MAX)])
        together: dict[str, tuple[Reason, list[str]]] = {}
        bad = self._badly_connected()
        if table is not None:
            for i in bad[:BAD_MAX]:
                reason, host = table.bad_reason(i), self.capacities.hosts[i]
                together.setdefault(reason.message, (reason, []))[1].append(host.name)
        for i, free in zip(full, left, strict=True):
            host = self.capacities.hosts[i]
            why = refusal(host, free, self.shape) or (self.narrow or {}).get(i)
            if why is not None:
                together.setdefault(why.message, (why, []))[1].append(host.name)
        farther = self._farther()
        refused = [Refused(reason, tuple(names)) for reason, names in together.values()]
        refused += self._of_zones(farther)
        count = int((self.caps <= 0).sum()) + len(bad) + int(farther.sum())
        return Judged(chosen, tuple(refused), count, len(self.capacities.hosts) - count - len(tasks))

    def _taken(self, host: str, count: int, table: NetworkTable | None) -> HostVerdict:
        i = self.capacities.number[host]
        scores: list[tuple[str, float]] = [("room_tasks", float(self.caps[i]))]
        if table is not None and not np.isnan(quality := table.quality()[i]):
            scores.append(("network", round(float(quality), 3)))
        if self.scores is not None:
            scores += self.scores(i)
        scores.append(("tasks", float(count)))
        return HostVerdict(host, None, tuple(scores))

    def _badly_connected(self) -> list[int]:
        """Hosts with room that the pool leaves out."""
        pool = self.pool
        if pool is None or not pool.without_bad:
            return []
        bad: list[int] = pool.numbers[(pool.caps <= 0) & (self.caps[pool.numbers] > 0)].tolist()
        return bad

    def _farther(self) -> Ints:
        """Of each zone that was not looked at, since it lies beyond the first pool: its hosts with room."""
        zones = self.capacities.zones
        if self.pool is None or not self.pool.first:
            return np.zeros(len(zones), dtype=np.int64)
        room: Ints = np.bincount(self.capacities.zone_of[self.caps > 0], minlength=len(zones))
        last = max(map(zones.index, self.pool.zones))
        room[: last + 1] = 0
        return room

    def _of_zones(self, farther: Ints) -> Iterator[Refused]:
        assert self.pool is not None or not farther.any()
        for zone in farther.nonzero()[0][:ZONES_MAX].tolist():
            assert self.pool is not None
            mine = self.capacities.members[zone]
            some = mine[self.caps[mine] > 0][:OF_ZONE_MAX].tolist()
            reason = other_zone(self.capacities.zones[zone], self.pool, self.capacities)
            yield Refused(reason, tuple([self.capacities.hosts[i].name for i in some]))
