"""Of many pending jobs that ask for the same, a pass tries the first, as many as it may place: when those
have had their turn, the next ones come to theirs. So a pass looks at few, however many wait.

All that is said here holds where those that ask for the same fit or fail together, and their order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, takewhile
from typing import Any

from rm.core.jobs.state import ClusterState
from rm.core.model.asked.demand import Demand
from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot
from rm.core.ports import QueuePolicy, keeps_order

KNOWN_SPARE = 1_000  # jobs whose order is kept although they wait no more
Order = Callable[[Sequence[Job]], Iterable[Job]]


@dataclass(frozen=True, slots=True)
class Firsts:
    """How many of those that ask for the same a pass tries at most, and in which order they come."""

    most: int
    order: Order

    def ordered(self, jobs: Iterable[int], state: ClusterState) -> list[int]:
        return [job.id for job in self.order([state.jobs[number] for number in jobs])]

    def are_before(self, job: int, others: Sequence[int], state: ClusterState) -> bool:
        """Do as many of the others come before the job as a pass may place?"""
        if len(others) < self.most:
            return False
        return self.ordered([*others, job], state).index(job) >= self.most


def firsts_of(state: ClusterState, queue: QueuePolicy, placements: int, now_us: int) -> Firsts | None:
    """None: a pass tries all. Rules of limits and partitions, reservations and what is preempted tell between
    jobs that ask for the same."""
    told_apart = state.tally.rules or state.reservations or state.claims or state.accounts.partitions
    if not placements or told_apart or not keeps_order(queue):
        return None

    @cache
    def snapshot() -> Snapshot:  # one for all kinds of the pass
        return state.snapshot(now_us)

    return Firsts(placements, lambda jobs: queue.order(jobs, snapshot()))


@dataclass(slots=True)
class Rest:
    """Those behind the first, in order, by what they ask for: it was tried and fitted, or is about to be."""

    behind: dict[Demand, dict[int, None]] = field(default_factory=dict)
    # in which order they were when they were last let go: of 50,000 it takes tens of milliseconds to find
    _known: dict[Demand, dict[int, None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.behind)

    def first(self, kind: object, jobs: list[int], state: ClusterState, firsts: Firsts | None) -> list[int]:
        """Of jobs that ask for the same and are to be tried again those to try now."""
        if firsts is None or len(jobs) <= 2 * firsts.most or not isinstance(kind, Demand) or kind.switches:
            return jobs
        self.behind[kind] = dict.fromkeys(self._ordered(kind, jobs, state, firsts))
        return self._take(kind, state, firsts.most)

    def _ordered(self, kind: Demand, jobs: list[int], state: ClusterState, firsts: Firsts) -> list[int]:
        known, there = self._known.get(kind, {}), set(jobs)
        ordered = [number for number in known if number in there]
        fresh = [number for number in jobs if number not in known]
        if fresh:
            late = firsts.ordered([*ordered[-1:], *fresh], state)
            if ordered and late[0] != ordered[-1]:
                ordered = firsts.ordered(jobs, state)
            else:
                ordered[-1:] = late
        self._known[kind] = dict.fromkeys(ordered)
        return ordered

    def next(self, tried: Collection[int], state: ClusterState, firsts: Firsts | None) -> list[int]:
        """Those to try beside the ones that are `tried` in any case, so that before the first of the rest
        come as many of its kind as the pass may place."""
        if firsts is None:
            rest = [number for behind in self.behind.values() for number in behind if number in state.pending]
            self.behind.clear()
            return rest
        found: list[int] = []
        alike = self._alike(tried, state) if self.behind else {}
        for kind, behind in list(self.behind.items()):
            for number in [*takewhile(lambda number: number not in state.pending, behind)]:
                del behind[number]
            first = next(iter(behind), None)
            if first is None:
                del self.behind[kind]
            elif not firsts.are_before(first, alike.get(kind, ()), state):
                found += self._take(kind, state, firsts.most)
        return found

    def _alike(self, tried: Iterable[int], state: ClusterState) -> dict[Demand, list[int]]:
        """Of the kinds of the rest those that are `tried`, and that wait for nothing but a place."""
        # by identity, since hashing a demand costs as much as the rest; it lives as long as it is here
        groups: dict[int, tuple[Demand, list[int]]] = {}
        for number in tried:
            if _is_free(number, state):
                demand = state.jobs[number].demand
                groups.setdefault(id(demand), (demand, []))[1].append(number)
        alike: dict[Demand, list[int]] = {}
        for demand, numbers in groups.values():
            if demand in self.behind:
                alike.setdefault(demand, []).extend(numbers)
        return alike

    def _take(self, kind: Demand, state: ClusterState, most: int) -> list[int]:
        """The first, and those between them that are refused by themselves, if they are."""
        behind = self.behind[kind]
        free = (i for i, number in enumerate(behind, 1) if _is_free(number, state))
        upto = next(islice(free, most - 1, None), len(behind))
        taken = list(islice(behind, upto))
        for number in taken:
            del behind[number]
        if not behind:
            del self.behind[kind]
        return [number for number in taken if number in state.pending]

    def refused(self, waiting: dict[Any, dict[int, None]], pending: Collection[int]) -> None:
        """A pass is over: what fits no more fits for none behind it. The order of what is not `pending` any
        more need not be known."""
        for kind in [kind for kind in self.behind if kind in waiting]:
            waiting[kind].update(self.behind.pop(kind))
        if sum(map(len, self._known.values())) > 2 * len(pending) + KNOWN_SPARE:
            left = ((kind, [j for j in known if j in pending]) for kind, known in self._known.items())
            self._known = {kind: dict.fromkeys(jobs) for kind, jobs in left if jobs}

    def all(self) -> set[int]:
        return set().union(*self.behind.values())

    def clear(self) -> None:
        self.behind.clear()
        self._known.clear()

    def leave(self, jobs: Iterable[int]) -> None:
        """These ask for something else now, and are tried by themselves."""
        for those in (*self.behind.values(), *self._known.values()):
            for number in those.keys() & jobs:
                del those[number]
        for kind in [kind for kind, those in self._known.items() if not those]:  # which count for nothing
            del self._known[kind]


def _is_free(number: int, state: ClusterState) -> bool:
    """Does it wait for nothing but a place?"""
    return number in state.pending and not state.jobs[number].is_conditional
