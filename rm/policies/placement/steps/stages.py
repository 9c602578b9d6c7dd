"""Metronome's stages for one task after the other, and the gang around them.

Source: Metronome, Algorithm 1 lines 15-29 and Sec. III-B "Normalize Score"; R19, R20, R22.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from rm.core.model.network.alignment import PERFECT
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import Reason
from rm.policies.placement.steps.gang import Filling, Gang, Ints
from rm.policies.placement.steps.latency import normalized, raw_latency
from rm.policies.placement.steps.link_score import EARLY, LinkScore, LinkScores
from rm.policies.placement.steps.network_score import DECIMALS, Floats, Mask
from rm.policies.placement.steps.network_table import NetworkTable
from rm.policies.placement.steps.pools import Pool

EQUAL = 1e-9
ROOMIER = 1 << 62  # than any host
RESTARTS_MAX = 64  # of a gang with another first host; only a loop makes any necessary
NEAR_US = 2.0  # a host is 1 us from itself: where no other is nearer than this, rounding makes none as near


@quickly_made
@dataclass(frozen=True, slots=True)
class Choice:
    """The host of one task, and what the stages said of every host of the pool.

    `candidates` passed stage 1; `everywhere_us` finds the raw latencies of all hosts of the
    cluster, the arrays run parallel to the pool. `looped`: a better host would close a loop.
    """

    host: int
    candidates: Mask
    scores: Floats
    raw_latency_us: Floats
    everywhere_us: Callable[[], Floats]
    low_comm: bool
    link: LinkScore
    looped: bool = False

    @property
    def final(self) -> Ints:
        """Stage 2's score, 0 to 100. It has the order of the raw latency, which decides (R19)."""
        everywhere_us = self.everywhere_us()
        eq19 = normalized(self.raw_latency_us, float(everywhere_us.min()), float(everywhere_us.max()))
        return 100 - eq19 if self.low_comm else eq19


class Apart(NamedTuple):
    """The mean delay between hosts in microseconds, and their mean pair score."""

    delay_us: float
    score: float

    def is_no_farther(self, than: Apart) -> bool:
        """Does the network tell nothing against these hosts, or less than against the others?"""
        return self.delay_us <= than.delay_us and self.score >= than.score


@dataclass(slots=True)
class Stages:
    """The stages over one pool for one job.

    `links` is None for jobs without known demand; `low_comm` reverses stage 2.
    """

    pool: Pool
    gang: Gang
    table: NetworkTable
    links: LinkScores | None
    low_comm: bool
    tight: bool = True  # hosts that are equal otherwise: the one with the least room
    loops: dict[str, Reason] = field(default_factory=dict)  # refusals met on the way, by host
    first: Choice | None = None  # of the job's first task, as all hosts compete for it
    _alone: Floats | None = None  # bandwidth scores of hosts that have no task of the job yet
    _unknown: Mask = field(
        default_factory=lambda: np.zeros(0, dtype=bool)
    )  # of these those not yet looked for
    _any_unknown: bool = False
    _loaded: Sequence[bool] = ()  # which hosts have links that bear load; none, if no link does

    def choose(self, assigned: Sequence[int]) -> Choice | None:
        """The best host for the next task, given those of the tasks before; None = no host left."""
        placing = Placing(self.pool, self.gang, self.table)
        for host in assigned:
            placing.give(host)
        return self.next_of(placing, frozenset())

    def next_of(self, placing: Placing, banned: frozenset[int]) -> Choice | None:
        """The best host for the next task of a gang that is being placed; None = no host left."""
        filling, given = placing.filling, placing.filling.given
        may = filling.may_take()
        if banned:
            may[list(banned)] = False
        scores, unknown = self._bandwidth(placing), self._unknown
        everywhere: Callable[[], Floats] = self.table.mean_delays_us
        if given and not self.low_comm:
            raw = placing.latency_us()
            everywhere = partial(placing.everywhere_us, len(placing.assigned))
        else:
            raw = everywhere()[self.pool.numbers]
        looped = False
        while np.logical_or.reduce(may):
            candidates = may
            if self.links is not None:
                candidates = may & (scores >= np.maximum.reduce(scores[may]) - EQUAL)
            host = self._first(candidates, raw, placing)
            if self.links is not None and self._any_unknown and unknown[candidates].any():
                if unknown[host]:
                    self._find(host, scores)
                    continue
                if scores[host] < PERFECT:  # one of the others may be the best by less than rounding errors
                    for other in np.flatnonzero(candidates & unknown):
                        self._find(int(other), scores)
                    continue
            loop = self._loop(placing, host)
            if loop is None:
                link = self._link(host, given.get(host, 0) + 1)
                choice = Choice(host, candidates, scores, raw, everywhere, self.low_comm, link, looped)
                if not given and not banned:
                    self.first = choice
                return choice
            self.loops[self._name(host)] = loop
            may[host], looped = False, True
        return None

    def place(self, banned: frozenset[int] = frozenset()) -> list[int]:
        """Hosts of the tasks in order; fewer than the gang has when some task found none."""
        placing = Placing(self.pool, self.gang, self.table)
        while placing.filling.left:
            choice = self.next_of(placing, banned)
            if choice is None:
                break
            placing.give(choice.host)
            if not banned or self.links is None:
                more = self._more_on(choice, placing)
                if more:
                    placing.give(choice.host, more)
            banned = frozenset()
        return placing.assigned

    def _more_on(self, choice: Choice, placing: Placing) -> int:
        """How many of the next tasks `next_of` would send where it has just sent one, which it need not be
        asked: all other hosts are farther away from that one, and were no nearer to the tasks before.

        That goes on while the host has room and its link scores no worse than the best: for the others
        nothing changes, since a task on a host that has some leaves the rest of the gang the same room.
        """
        host, on_it = choice.host, placing.filling.given[choice.host]
        room = min(int(self.pool.caps[host]) - on_it, placing.filling.left)
        if room < 1 or self.low_comm or choice.looped or self.gang.hosts_min > 1:
            return 0
        if self.table.hosts_within(NEAR_US)[self.pool.numbers[host]] > 1:
            delays = self.table.delays_us()[self.pool.numbers[host], self.pool.numbers]
            if np.count_nonzero(delays < NEAR_US) > 1:
                return 0
        if self.links is None:
            return room
        best, name = choice.scores[choice.candidates].max(), self._name(host)
        for tasks in range(on_it, on_it + room):
            if self.links.score_at(name, tasks + 1) < best:
                return tasks - on_it
            if self.links.sends_alike(name, tasks, tasks + 1):
                continue  # what closed no loop closes none
            if self._loop(placing, host, tasks) is not None:
                return tasks - on_it
        return room

    def gangs(self) -> Iterator[list[int]]:
        """Complete placements; each begins with a host that none before began with (R22)."""
        banned: frozenset[int] = frozenset()
        for _ in range(RESTARTS_MAX):
            assigned = self.place(banned)
            if not assigned:
                return
            if len(assigned) == self.gang.tasks:
                yield assigned
            banned |= {assigned[0]}

    def apart(self, hosts: Sequence[int]) -> Apart:
        """How far these hosts are from one another, as the network tells."""
        delays, scores = self.table.delays_us(), self.table.joined(self.pool.zones)[1]
        local = np.array(hosts, dtype=np.int64)
        numbers, pairs = self.pool.numbers[local], max(1, len(hosts) * (len(hosts) - 1))
        between, network = delays[numbers[:, None], numbers], scores[local[:, None], local]
        between.flat[:: len(hosts) + 1] = network.flat[:: len(hosts) + 1] = 0.0  # of a host and itself
        delay_us, score = (float(np.add.reduce(one, axis=None) / pairs) for one in (between, network))
        return Apart(round(delay_us, DECIMALS), round(score, DECIMALS))

    def score(self, assigned: Sequence[int]) -> float:
        """The worst link of the whole gang, now that it is known which tasks are where."""
        return min(self._link(host, tasks).score for host, tasks in sorted(Counter(assigned).items()))

    def scores_of(self, number: int) -> tuple[tuple[str, float], ...]:
        """What the job's first task saw of a host of the pool, by its number in the inventory."""
        if self.first is None or self._alone is None:
            return ()
        local = int(np.flatnonzero(self.pool.numbers == number)[0])
        return (
            ("bandwidth", round(float(self._alone[local]), 3)),
            ("latency_us", round(float(self.first.raw_latency_us[local]), 1)),
        )

    def _name(self, host: int) -> str:
        return self.pool.names[host]

    def _link(self, host: int, tasks: int) -> LinkScore:
        return EARLY if self.links is None else self.links.at(self._name(host), tasks)

    def _bandwidth(self, placing: Placing) -> Floats:
        """The score of each host's link with one more task; perfect where that is not known yet. It is looked
        for where a host would be taken if it were so: a score may cost a search of many milliseconds."""
        if self._alone is None:
            self._alone = np.full(len(self.pool.caps), PERFECT)
            self._unknown = np.zeros(len(self.pool.caps), dtype=bool)
            if self.links is not None and (loaded := self.links.loaded):
                self._loaded = [name in loaded for name in self.pool.names]
                self._unknown = np.array(self._loaded) & (self.pool.caps > 0)
                self._any_unknown = bool(self._unknown.any())
        if self.links is None:
            return self._alone
        if placing.scores is None:
            placing.scores = self._alone.copy()
        for host in placing.unscored:
            placing.scores[host] = self.links.score_at(self._name(host), placing.filling.given[host] + 1)
            if self._loaded and self._loaded[host]:
                placing.loaded.add(host)
        placing.unscored.clear()
        return placing.scores

    def _find(self, host: int, scores: Floats) -> None:
        """Look for the score of a host without a task of the job, and note it here too."""
        assert self.links is not None, "without links all scores are known"
        assert self._alone is not None, "it is looked for after the others were put down"
        scores[host] = self._alone[host] = self.links.score_at(self._name(host), 1)
        self._unknown[host] = False

    def find(self, numbers: Iterable[int]) -> None:
        """Let the scores of these hosts, by their numbers in the inventory, be known."""
        if self.first is None or not self._any_unknown:
            return
        wanted = set(numbers)
        for local in np.flatnonzero(self._unknown).tolist():
            if int(self.pool.numbers[local]) in wanted:
                self._find(local, self.first.scores)

    def _first(self, candidates: Mask, raw: Floats, placing: Placing) -> int:
        """Least latency, then the network score, then the least room, then list order; LowComm reversed.

        Raw latency orders like eq. 19's whole numbers and settles their ties (R19).
        """
        if self.tight and self.gang.most_hosts == 1 and not self.low_comm:
            caps = np.where(candidates, self.pool.caps, ROOMIER)
            return int(caps.argmin())  # it has nobody to talk to
        sign = -1 if self.low_comm else 1
        near = np.where(candidates, sign * raw, np.inf)
        host = int(near.argmin())
        least = near[host]
        if self.gang.tasks == 1 and not self.low_comm:
            return host  # it has nobody to talk to
        equal = (near == least).nonzero()[0]
        if len(equal) == 1:
            return host
        if placing.assigned:
            network = placing.network()
        else:
            network = self.table.mean_scores(self.pool.zones)
        scores = np.round(sign * network[equal], DECIMALS)
        if not self.tight:
            return int(equal[np.argmax(scores)])
        return self._tightest(equal[scores == scores.max()])

    def _tightest(self, hosts: Ints) -> int:
        return int(hosts[np.argmin(self.pool.caps[hosts])])

    def loops_at(self, counts: Mapping[int, int]) -> bool:
        """Would the job with these tasks on these hosts close a loop?"""
        tasks_on = {self._name(host): tasks for host, tasks in counts.items()}
        return self.links is not None and self.links.loop(tasks_on) is not None

    def _loop(self, placing: Placing, host: int, tasks: int | None = None) -> Reason | None:
        """The loop that one more task would close on the host, which has as many as it was given, or so
        many."""
        if self.links is None or not self._loaded:
            return None
        given = placing.filling.given
        if len(placing.loaded) + (self._loaded[host] and host not in placing.loaded) < 2:
            return None  # a loop needs two links
        tasks_on = {self._name(h): given[h] for h in sorted(given)}
        tasks_on[self._name(host)] = (given.get(host, 0) if tasks is None else tasks) + 1
        return self.links.loop(tasks_on)


class Placing:
    """A gang on its way to the hosts of a pool: which have tasks, and how near all hosts are to these."""

    def __init__(self, pool: Pool, gang: Gang, table: NetworkTable) -> None:
        self.filling = Filling(gang, pool.caps)
        self.assigned: list[int] = []  # the hosts of the tasks, in order
        self.scores: Floats | None = None  # of the hosts' links with one more task, but for those `unscored`
        self.unscored: set[int] = set()
        self.loaded: set[int] = set()  # of the others those with tasks whose links bear load of other jobs
        self._pool, self._table = pool, table
        self._latency, self._network = RowSum(), RowSum()

    def give(self, host: int, tasks: int = 1) -> None:
        """The host gets the next task, or several."""
        self.filling.give(host, tasks)
        self.assigned += [host] * tasks
        self.unscored.add(host)

    def latency_us(self) -> Floats:
        """As `raw_latency` to the hosts of the tasks, for the hosts of the pool."""
        return self._latency.over(self.assigned, self._delays_of)

    def everywhere_us(self, tasks: int) -> Floats:
        """The same to those of the first tasks, for all hosts of the cluster."""
        numbers = self._pool.numbers[self.assigned[:tasks]]
        return raw_latency(self._table.delays_us(), numbers.tolist())

    def network(self) -> Floats:
        """The sum of each host's pair scores with the hosts of the tasks."""
        return self._network.over(self.assigned, self._scores_of)

    def _delays_of(self, host: int) -> Floats:
        numbers = self._pool.numbers
        row: Floats = self._table.delays_us()[numbers[host], numbers]
        return row

    def _scores_of(self, host: int) -> Floats:
        row: Floats = self._table.joined(self._pool.zones)[1][host]
        return row


class RowSum:
    """Rows of hosts added up one after the other, as a sum over all of them would. It holds no method of its
    owner: the simulator and a pass collect no cycles."""

    def __init__(self) -> None:
        self._sum: Floats = np.zeros(0)
        self._counted = 0

    def over(self, hosts: Sequence[int], row_of: Callable[[int], Floats]) -> Floats:
        """The sum of the rows of all of these, which begin with those that were asked for before."""
        row, of = self._sum, -1
        for host in hosts[self._counted :]:
            if host != of:
                row, of = row_of(host), host
            self._sum = self._sum + row if self._counted else row
            self._counted += 1
        return self._sum
