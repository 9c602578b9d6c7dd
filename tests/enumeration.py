"""Drawn rotation problems, and all their schemes enumerated: what the exact searches are held against."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from rm.policies.interleave import (
    Circle,
    Demand,
    Distances,
    LinkLoad,
    Plan,
    canonical_phases,
    rank_key,
    unify,
)

CAPACITY = 10
Problem = tuple[Plan, list[LinkLoad]]


@st.composite
def problems(draw: st.DrawFn, most_links: int = 1) -> Problem:
    """Two to four jobs of periods 24, 12, 8 or 6 on circles of 18 or 24 slots, on one or more links.

    In half of them all jobs have one phase and every two contend; else they have up to three
    phases, of which some pairs fit beside each other and some triples do not.
    """
    count = draw(st.integers(2, 4))
    clashing = draw(st.booleans())
    rates, most_phases = ([6, 10], 1) if clashing else ([3, 4, 5, 6, 10], 3)
    periods = draw(st.sampled_from([[24, 24, 12, 8], [24, 12, 6], [24]]))
    return _problem(draw, count, rates, most_phases, periods, most_links)


@st.composite
def crowds(draw: st.DrawFn) -> Problem:
    """Five or six jobs on circles of 12 slots."""
    rates, most_phases = draw(st.sampled_from([([6, 10], 1), ([2, 3, 4, 6], 2)]))
    return _problem(draw, draw(st.integers(5, 6)), rates, most_phases, [12, 12, 6], 1, shortest=6)


def _problem(
    draw: st.DrawFn,
    count: int,
    rates: list[int],
    most_phases: int,
    periods: list[int],
    most_links: int,
    shortest: int = 3,
) -> Problem:
    jobs = []
    for job in range(count):
        period = draw(st.sampled_from(periods if job else periods[:1]))
        longest = max(1, period // shortest)
        phase = st.tuples(st.integers(0, period - 1), st.integers(1, longest), st.sampled_from(rates))
        phases = canonical_phases(period, draw(st.lists(phase, min_size=1, max_size=most_phases)))
        jobs.append(Demand(job, period, phases, rank_key(0, job, "")))
    slots = 12 if count > 4 else 18 if all(d.period > 8 for d in jobs) else 24
    plan = unify(jobs, g_t=0, slots=slots, min_slots=1)  # 18: phases do not start with slots
    assert plan is not None
    links = []
    for _ in range(draw(st.integers(1, most_links))):
        there = draw(st.sets(st.sampled_from(range(count)), min_size=min(2, count)))
        users = there if most_links > 1 else set(range(count))
        links.append(LinkLoad(CAPACITY, {d.job: d.phases for d in jobs if d.job in users}))
    return plan, links


def enumerated(circle: Circle) -> np.ndarray:
    """The excess of every scheme, indexed by the rotations of all jobs but the reference."""
    jobs = range(len(circle.n))
    total = np.zeros((len(circle.links), circle.slots, *circle.n[1:]), dtype=np.int64)
    for link, j in itertools.product(range(len(circle.links)), jobs):
        one = np.tile(np.array(circle.pattern[link][j]), circle.mul[j])
        turned = np.stack([np.roll(one, k) for k in range(circle.n[j] if j else 1)], axis=1)
        total[link] += turned.reshape(circle.slots, *(-1 if i == j and j else 1 for i in jobs[1:]))
    capacity = np.array(circle.capacity).reshape(-1, *[1] * (total.ndim - 1))
    return np.maximum(total - capacity, 0).sum(axis=(0, 1))


def least_distances(circle: Circle, distances: Distances) -> np.ndarray:
    """Psi of every scheme, indexed as in `enumerated`, from the pairs' own distances."""
    rotations = [np.zeros(circle.n[1:], dtype=np.int64), *np.indices(circle.n[1:])]
    pairs = [d[(rotations[b] - rotations[a]) % len(d)] for (a, b), d in distances.pairs.items()]
    return np.minimum.reduce(pairs)
