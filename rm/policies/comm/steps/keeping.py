"""What keeps the jobs of a link apart: the order in which their bursts begin, traffic classes, slot gates, or
nothing.

First come, first served suits jobs whose paces are alike, however many, and needs no gates. What
it costs is known by playing it (burst_loss.py). Elsewhere classes and gates get in each other's way on a link
with more than two jobs: strict classes push a job that is late behind all that rank before it, and its gate
takes the time in which it could catch up. So such a link has one of the two, or none where either would cost
the slowest job more than contention does. `python -m bench modes` measures the rule, docs/interleaving.md has
the figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass

from rm.policies.comm.steps.burst_loss import burst_loss, is_playable
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.score import random_phase
from rm.policies.interleave.unify import Demand

CROWDED = 0.8  # of what phases at random lose, on a link that cannot carry them all (bench modes)
VARIES = 0.1  # of what jobs compute: up to this standard deviation nobody is to lose by the order of bursts
PAIR = 2  # jobs on a link that have classes and gates: the first in rank loses nothing, and one pays for it


@dataclass(frozen=True, slots=True)
class Keeping:
    """Links with traffic classes by rank, links on which only high jobs come before the low ones (and
    either sort shares), jobs that wait for no slot, since classes keep them apart, and links whose bursts are
    served in the order in which they begin."""

    ranked: frozenset[str]
    shared: frozenset[str]
    ungated: frozenset[int]
    ordered: frozenset[str] = frozenset()


def everything(links: Mapping[str, LinkLoad]) -> Keeping:
    """Classes by rank on all links, gates for all jobs."""
    return Keeping(frozenset(links), frozenset(), frozenset())


def least_loss(
    links: Mapping[str, LinkLoad],
    demands: Mapping[int, Demand],
    high: Container[int],
    apart: Container[str],
    hosts: Container[str],
    meeting: Container[str],
    bursts: bool = True,
) -> Keeping:
    """On each link what costs the slowest job least, and never the high jobs their place.

    Args:
        links: the contended ones.
        demands: of all their jobs.
        high: the jobs of high priority.
        apart: links on which a rotation keeps all jobs apart; on the others none is gated.
        hosts: whose links can have classes; uplinks cannot.
        meeting: links that are `alike`. On others it is known of no order what it costs: a burst that
            waits on one link holds up those behind it on another, and a job that gives way on each of its
            links waits for jobs that know nothing of each other.
        bursts: may links serve them in the order in which they begin?
    """
    ranked, shared, ordered = set[str](), set[str](), set[str]()
    eased, waiting = set[int](), set[int]()
    for name, load in links.items():
        pair = len(load.phases) <= PAIR
        mixed = 0 < sum(job in high for job in load.phases) < len(load.phases)
        classes = name in hosts and (pair or mixed or name not in apart)
        orderly = bursts and name in meeting and name in hosts and not (pair and mixed)
        if orderly and _in_order(load, demands, high, mixed):
            ordered.add(name)
            eased |= load.phases.keys()
        elif classes and ((name in apart and mixed) or (name in meeting and _bearable(load, demands, mixed))):
            ranked.add(name)
        elif classes and mixed:
            shared.add(name)
        elif name in apart:
            waiting |= load.phases.keys()
        if not pair and (name in ranked or name in shared):
            eased |= load.phases.keys()
    return Keeping(frozenset(ranked), frozenset(shared), frozenset(eased - waiting), frozenset(ordered))


def alike(links: Mapping[str, LinkLoad]) -> frozenset[str]:
    """The links whose jobs meet the same jobs on all of these links that they use."""
    on: dict[int, set[frozenset[int]]] = {}
    for load in links.values():
        for job in load.phases:
            on.setdefault(job, set()).add(frozenset(load.phases))
    return frozenset(name for name, load in links.items() if all(len(on[job]) == 1 for job in load.phases))


def is_alike(load: LinkLoad, on: Mapping[int, Collection[str]], links: Mapping[str, LinkLoad]) -> bool:
    """Is this one of the links that are `alike`? It looks at the links of its own jobs alone, and no further
    than to the first that says no; `on`: the contended links of each job."""
    jobs = load.phases.keys()
    return all(links[other].phases.keys() == jobs for job in jobs for other in on[job])


def _in_order(link: LinkLoad, demands: Mapping[int, Demand], high: Container[int], mixed: bool) -> bool:
    """Does serving bursts as they come cost the slowest job less than what else there is?

    That is contention, which on an overloaded link costs less than phases at random would, since jobs push
    one another apart; or classes by rank, where a high job must keep its place on an overloaded link. What
    cannot be played is not known, and not chosen. Jobs of one priority must not lose by it either where they
    vary: an order that exact iterations keep may be one that the first late burst ends for good.
    """
    if not is_playable(link, demands):
        return False
    chance = chance_loss(link, demands)
    full = share(link, demands) > 1
    bound = CROWDED * chance if full else chance
    if mixed and full:
        bound = max(bound, strict_loss(link, demands))
    return all(
        burst_loss(link, demands, high, varies) <= bound for varies in ((0.0,) if mixed else (0.0, VARIES))
    )


def _bearable(link: LinkLoad, demands: Mapping[int, Demand], mixed: bool) -> bool:
    """Do classes by rank cost the slowest job less than what else there is?

    Without classes that is contention. Where high jobs keep theirs, the low ones that share bear what these
    would lose, too; on an overloaded link they miss every second gap at any rank.
    """
    ranked, chance = strict_loss(link, demands), chance_loss(link, demands)
    if not mixed:
        return ranked <= chance
    return ranked <= (2 * chance if share(link, demands) <= 1 else 1.0)


def strict_loss(link: LinkLoad, demands: Mapping[int, Demand]) -> float:
    """The share of its period by which classes by rank lengthen the slowest job's iterations, as predicted.

    A job that is faster than one before it falls in behind that one's phase and takes over its period. One
    that is slower than the fastest before it drifts through the gap that all phases leave, in each iteration
    by the difference of their periods; where the gap ends, it waits until those before it have sent. A job
    whose phase is longer than the gap of those before it takes several gaps; infinite where there is none.
    """
    worst = ahead_us = 0.0
    longest_us, shortest_us = 0, 0
    for job in sorted(link.phases, key=lambda j: demands[j].rank):
        period_us = demands[job].period
        own_us = sum(length * rate for _, length, rate in link.phases[job]) / link.capacity
        longest_us, shortest_us = max(longest_us, period_us), min(shortest_us or period_us, period_us)
        drift_us, gap_us = period_us - shortest_us, shortest_us - ahead_us
        if gap_us <= 0:
            return math.inf
        loss = longest_us / period_us - 1
        if own_us > gap_us:
            loss += math.ceil(own_us / gap_us) - 1
        elif drift_us:
            loss += ahead_us / period_us * drift_us / max(gap_us - own_us, drift_us)
        worst = max(worst, loss)
        ahead_us += own_us
    return worst


def share(link: LinkLoad, demands: Mapping[int, Demand]) -> float:
    """The mean rate of all jobs together, as a share of the link's capacity."""
    used_bps = 0.0
    for job, phases in link.phases.items():
        used_bps += sum(length * rate for _, length, rate in phases) / demands[job].period
    return used_bps / link.capacity


def chance_loss(link: LinkLoad, demands: Mapping[int, Demand]) -> float:
    """The same without any management: the share of the link that phases ask for in vain when they meet by
    chance (R10)."""
    jobs = [(demands[job].period, phases) for job, phases in link.phases.items()]
    return random_phase(jobs, link.capacity)[1]
