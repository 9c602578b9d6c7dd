"""What the network costs jobs: by how much their iterations take longer beside others than alone; and what
interleaving saves them of what it would cost.

An iteration counts while its job shares a link with others by the present alignment, with its own time
(without the pauses that rm ordered) less the period of its profile, which is how long it takes alone. That is
added up over half a minute, so that what is only noise cancels out; a sum below nothing is nothing. The time
is divided among the others by how many of these iterations each was beside. An iteration several times as
long as it should be did something else, such as writing a checkpoint, and does not count.

What is saved is what iterations of a job in a rotation would take if nobody managed its links, less what they
take with all their pauses, and no less than alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from rm.core.jobs import events as ev
from rm.core.model.network.alignment import LinkAlignment
from rm.core.model.network.slowed import PERIODS_MOST, Slowed, with_more
from rm.core.ports import Clock
from rm.daemon.regulation.unmanaged import Without

EVERY_US = 30_000_000
LEAST = 0.01  # of the period: a smaller mean is not told
TOLD_MOST = 200  # attempts that are told at once: each is written
LEFT_MAX = 10_000  # attempts whose iterations are added up at once
ALONE = frozenset[int]()


@dataclass(slots=True)
class _Window:
    """`over_us` and `period_us` are of the iterations beside others; the last three of those in a rotation:
    what they would take unmanaged, what they took with their pauses, and what they take alone."""

    since_us: int
    over_us: int = 0
    period_us: int = 0
    beside: Counter[frozenset[int]] = field(default_factory=Counter)  # iterations by who shared the links
    unmanaged_us: int = 0
    took_us: int = 0
    alone_us: int = 0

    def saved_us(self, now_us: int) -> int:
        """No more iterations count than there was time for, whatever the host has reported."""
        us = self.unmanaged_us - max(self.took_us, self.alone_us)
        if us <= LEAST * self.alone_us:
            return 0
        return us * min(self.alone_us, now_us - self.since_us) // self.alone_us


class Neighbours:
    """With which others each job shares links; jobs on the same links have one set, with themselves.

    A set is worked out when it is first asked for, and holds until the alignment says something else of one
    of the job's links.
    """

    def __init__(self) -> None:
        # by identity: as long as they are here nothing else has it
        self._links: dict[int, LinkAlignment] = {}
        self._on: dict[int, set[int]] = {}  # by job
        # by job: its links, the jobs there
        self._found: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._known: dict[frozenset[int], frozenset[int]] = {}  # by links

    def see(self, links: Iterable[LinkAlignment]) -> None:
        there = {id(one): one for one in links if len(one.jobs) > 1}
        for link in self._links.keys() - there.keys():
            for job in self._links[link].jobs:
                self._on[job].discard(link)
                self._found.pop(job, None)
                if not self._on[job]:
                    del self._on[job]
        for link in there.keys() - self._links.keys():
            for job in there[link].jobs:
                self._on.setdefault(job, set()).add(link)
                self._found.pop(job, None)
        self._links, self._known = there, dict(self._found.values())

    def of(self, job: int) -> frozenset[int]:
        """None at all: the job is alone."""
        if (found := self._found.get(job)) is None:
            if job not in self._on:  # of which nothing is kept: hosts report of any number of jobs
                return ALONE
            links = frozenset(self._on[job])
            jobs = self._known.get(links)
            if jobs is None:
                jobs = frozenset().union(*(self._links[link].jobs for link in links))
                self._known[links] = jobs
            found = self._found[job] = links, jobs
        return found[1]


class SlowedWatch:
    """Belongs to one thread. `without` says what an iteration of a job would take unmanaged."""

    def __init__(
        self, post: Callable[[ev.Event], None], clock: Clock, without: Callable[[int], Without | None]
    ) -> None:
        self._post, self._clock, self._without = post, clock, without
        self._beside = Neighbours()
        self._windows: dict[tuple[int, int], _Window] = {}  # the oldest first

    def see(self, links: Iterable[LinkAlignment]) -> None:
        self._beside.see(links)

    def heard(self, job: int, attempt: int, took_us: int, paused_us: int, period_us: int | None) -> None:
        """An iteration took so long, `paused_us` of it because rm paused it; `period_us`: how long it takes
        alone, None: not known."""
        others, own_us = self._beside.of(job), took_us - paused_us
        if not others or not period_us or not 0 < own_us <= PERIODS_MOST * period_us:
            return
        if len(self._windows) >= LEFT_MAX and (job, attempt) not in self._windows:
            return
        window = self._windows.setdefault((job, attempt), _Window(self._clock.now_us()))
        window.over_us += own_us - period_us
        window.period_us += period_us
        window.beside[others] += 1
        if (without := self._without(job)) is not None:
            window.unmanaged_us += min(without.unmanaged_us, PERIODS_MOST * without.alone_us)
            window.took_us += took_us
            window.alone_us += without.alone_us

    def tell(self) -> None:
        """Post what was lost and saved in windows whose time is over, a number of them at a time."""
        now_us, told = self._clock.now_us(), list[Slowed]()
        for name, window in [*islice(self._windows.items(), TOLD_MOST)]:
            if 0 <= now_us - window.since_us < EVERY_US:
                break
            del self._windows[name]
            lost = window.over_us > LEAST * window.period_us
            by = _divided(name[0], window.over_us, window.beside) if lost else ()
            saved_us = window.saved_us(now_us)
            if by or saved_us:
                told.append(Slowed(*name, by, saved_us))
        if told:
            self._post(ev.JobsSlowed(tuple(told)))


def _divided(own: int, us: int, beside: Mapping[frozenset[int], int]) -> tuple[tuple[int, int], ...]:
    """Exactly all of it: what does not divide goes to the first. The few that cost most by their ids."""
    parts = Counter[int]()
    for jobs, count in beside.items():
        for job in jobs:
            if job != own:
                parts[job] += count
    whole = sum(parts.values())
    found = {job: us * part // whole for job, part in sorted(parts.items())}
    found[min(found)] += us - sum(found.values())
    return with_more((), found.items(), us)
