"""What the network costs jobs: by how much their iterations take longer beside others than alone.

An iteration counts while its job shares a link with others by the present alignment, with its own time
(without the pauses that rm ordered) less the period of its profile, which is how long it takes alone. That is
added up over half a minute, so that what is only noise cancels out; a sum below nothing is nothing. The time
is divided among the others by how many of these iterations each was beside. An iteration several times as
long as it should be did something else, such as writing a checkpoint, and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.model.alignment import LinkAlignment
from rm.core.model.slowed import Slowed, with_more
from rm.core.ports import Clock

EVERY_US = 30_000_000
LONGEST = 4  # times the period: a longer one did something else
LEAST = 0.01  # of the period: a smaller mean is not told
LEFT_MAX = 10_000  # attempts whose iterations are added up at once
ALONE = frozenset[int]()


@dataclass(slots=True)
class _Window:
    count: int = 0
    over_us: int = 0
    period_us: int = 0
    beside: Counter[frozenset[int]] = field(default_factory=Counter)  # iterations by who shared the links


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
    """Belongs to one thread."""

    def __init__(self, post: Callable[[ev.Event], None], clock: Clock) -> None:
        self._post, self._clock = post, clock
        self._beside = Neighbours()
        self._windows: dict[tuple[int, int], _Window] = {}
        self._due_us = clock.now_us() + EVERY_US

    def see(self, links: Iterable[LinkAlignment]) -> None:
        self._beside.see(links)

    def heard(self, job: int, attempt: int, took_us: int, period_us: int | None) -> None:
        """An iteration took so long without pauses; `period_us`: how long it takes alone, None: not known."""
        others = self._beside.of(job)
        if not others or not period_us or not 0 < took_us <= LONGEST * period_us:
            return
        if len(self._windows) >= LEFT_MAX and (job, attempt) not in self._windows:
            return
        window = self._windows.setdefault((job, attempt), _Window())
        window.count += 1
        window.over_us += took_us - period_us
        window.period_us += period_us
        window.beside[others] += 1

    def tell(self) -> None:
        """Post what was lost, if it is time."""
        now_us = self._clock.now_us()
        if now_us < self._due_us:
            return
        self._due_us = now_us + EVERY_US
        windows, self._windows = self._windows, {}
        told = tuple(
            Slowed(*name, _divided(name[0], window.over_us, window.beside))
            for name, window in sorted(windows.items())
            if window.over_us > LEAST * window.period_us
        )
        if told:
            self._post(ev.JobsSlowed(told))


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
