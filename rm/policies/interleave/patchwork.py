"""A large part of the affinity graph, link by link: bodies are joined where a link keeps them apart.

Ours; M and C solve what is connected at once, which no search does for hundreds of jobs. A link whose jobs
belong to several bodies is solved for these (bodies.py), which joins them to one body. Nothing is lost by it:
within a body nothing moves, so links that kept their jobs apart still do. Links that no rotation suits, or
whose bodies would be too large together, stay as they are. What comes and goes changes the bodies that it
touches and no others, and at any time the answer so far is a valid one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rm.policies.interleave.bodies import Place, apart, side_by_side
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.solve import Thresholds
from rm.policies.interleave.unify import Demand

LARGEST = 64  # jobs of a body: they share one epoch, and all get new schedules when one comes or goes
UNITS_MAX = 6  # bodies on a link, and jobs on their own
JOINTLY = 3  # more links that the same bodies meet on
BUDGET = 1_500  # search steps for one link
FREED_MAX = 4  # jobs on a link that are taken out of their bodies to place them anew
ALONE = Place(0, 0)


@dataclass(slots=True)
class Patchwork:
    """What is settled, in the course of being changed.

    `links` are the contended ones with more than one job, `on` those of each job; `body` knows the jobs that
    are in a body, whose `members` are by its number, and `places` at least those jobs; `kept` are the links
    that keep their jobs apart, each by a rotation within one body. `moved` collects the jobs whose place or
    body is another one now, `turned` the links on which jobs have moved against each other.
    """

    links: Mapping[str, LinkLoad]
    on: Mapping[int, Sequence[str]]
    demands: Mapping[int, Demand]
    high: Collection[int]
    thresholds: Thresholds
    places: dict[int, Place]
    body: dict[int, int]
    members: dict[int, set[int]]
    kept: set[str]
    moved: set[int] = field(default_factory=set)
    turned: set[str] = field(default_factory=set)
    torn: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.thresholds = replace(self.thresholds, budget=BUDGET, crowd=0, widest=False)

    def release(self, jobs: Iterable[int]) -> None:
        """These have gone, or have another profile: they leave their bodies. See `tear`."""
        for job in jobs:
            if (number := self.body.get(job)) is not None:
                self.members[number].discard(job)
                self.torn.add(number)
                self._forget(job)

    def tear(self) -> None:
        """Bodies that jobs have left fall apart where no link holds them together any more."""
        for number in sorted(self.torn):
            self._regroup(self.members.pop(number))
        self.torn.clear()

    def loosen(self, jobs: Iterable[int]) -> None:
        """Bodies of these jobs fall apart where no link holds them together any more."""
        for number in dict.fromkeys(self.body[job] for job in sorted(jobs) if job in self.body):
            if len(self._piece(number)) < len(self.members[number]):
                self._regroup(self.members.pop(number))

    def settle(self, name: str, joining: bool = True) -> bool:
        """Keep the link's jobs apart, by `joining` their bodies if need be; is that so now?"""
        load = self.links[name]
        units = self._units(load.phases)
        if len(units) == 1 and len(units[0]) > 1:
            if apart(load, self.places):
                self.kept.add(name)
                self.turned.add(name)
            return name in self.kept
        return joining and self._join(units, [name], load)

    def resettle(self, name: str) -> bool:
        """As `settle`, where that has failed: some jobs of the link leave their bodies and are placed anew,
        so that all links that kept them apart still do."""
        load = self.links[name]
        jobs = sorted(load.phases, key=lambda job: (len(self.on[job]), job))[:FREED_MAX]
        for freed in [*([job] for job in jobs), jobs]:
            held = sorted({link for job in freed for link in self.on[job] if link in self.kept})
            if held and self._join(self._without(freed, held, load), [name, *held], load, freed):
                return True
        return False

    def _join(
        self,
        units: Sequence[Mapping[int, Place]],
        names: Sequence[str],
        load: LinkLoad,
        freed: Sequence[int] = (),
    ) -> bool:
        jobs = {job for unit in units for job in unit}
        if not 1 < len(units) <= UNITS_MAX or len(jobs) > LARGEST:
            return False
        high = {job for job in jobs if job in self.high}
        pinned = high if len(high) < len(jobs) else set[int]()
        near = sorted({link for job in jobs for link in self.on[job]} - self.kept - set(names))
        near = [link for link in near if self.links[link].phases.keys() <= jobs]
        more = near[:JOINTLY] if not freed else []
        for asked in ([*names, *more], names) if more else (names,):
            loads = [self.links[link] for link in asked]
            found = side_by_side(units, loads, self.demands, pinned, self.thresholds)
            if found is not None and all(apart(one, found) for one in loads):
                break
        else:
            return False
        left = [self.members.pop(number) - jobs for number in {self.body[j] for j in jobs if j in self.body}]
        number = min(jobs)
        self.moved |= {job for job, at in found.items() if job not in self.body or self.places[job] != at}
        self.places |= found
        self.members[number] = jobs
        self.moved |= {job for job in jobs if self.body.get(job) != number}
        self.body |= dict.fromkeys(jobs, number)
        met = {link for link in near if link not in asked and apart(self.links[link], self.places)}
        self.kept |= met.union(asked)
        self.turned |= met.union(asked)
        for rest in left:
            self._regroup(rest)
        return True

    def _units(self, jobs: Iterable[int]) -> list[dict[int, Place]]:
        """The bodies of these jobs, and those of them on their own."""
        numbers = dict.fromkeys(self.body[job] for job in sorted(jobs) if job in self.body)
        whole = [{job: self.places[job] for job in sorted(self.members[number])} for number in numbers]
        return whole + [{job: ALONE} for job in sorted(jobs) if job not in self.body]

    def _without(self, freed: Sequence[int], held: Sequence[str], load: LinkLoad) -> list[dict[int, Place]]:
        """The bodies on these links, those of the freed jobs in the pieces that are left of them."""
        jobs = {*load.phases, *(job for link in held for job in self.links[link].phases)}
        units: list[dict[int, Place]] = [{job: ALONE} for job in freed]
        seen = set(freed)
        for job in sorted(jobs):
            if job in seen:
                continue
            piece = {job} if job not in self.body else self._piece(job, freed)
            seen |= piece
            units.append({j: self.places[j] if len(piece) > 1 else ALONE for j in sorted(piece)})
        return units

    def _piece(self, job: int, without: Collection[int] = ()) -> set[int]:
        """The jobs that are held together with this one by links that keep their jobs apart."""
        found, waiting = {job}, [job]
        while waiting:
            for link in self.on[waiting.pop()]:
                phases = self.links[link].phases
                if link in self.kept and not any(one in phases for one in without):
                    waiting += phases.keys() - found
                    found |= phases.keys()
        return found

    def _regroup(self, left: set[int]) -> None:
        """The jobs of what was one body, as those that it is now."""
        while left:
            piece = self._piece(min(left))
            left -= piece
            if len(piece) == 1:
                [job] = piece
                self._forget(job)
                continue
            self.members[min(piece)] = piece
            self.moved |= piece
            self.body |= dict.fromkeys(piece, min(piece))

    def _forget(self, job: int) -> None:
        del self.body[job]
        self.moved.add(job)

    def bodies_of(self, jobs: Iterable[int]) -> Iterator[set[int]]:
        """The bodies of these jobs, each once."""
        yield from (self.members[n] for n in dict.fromkeys(self.body[j] for j in jobs if j in self.body))
