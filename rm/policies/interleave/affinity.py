"""Jobs on several links: contention graph, loops, blocks, global time-shifts.

Sources: CASSINI Sec. 4 (affinity graph, Algorithm 1), Metronome Sec. III-B; R17, R21, R23, R24.
The graph is bipartite, jobs on one side and links on the other; only contended links matter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.unify import Rank

Links = Mapping[str, LinkLoad]
Rotations = Mapping[str, Mapping[int, Fraction]]  # link -> job -> rotation in ticks
LOOP_TESTS = ("cassini", "contended", "reduced")


def peak_sum(load: LinkLoad) -> int:
    return sum(max((bw for _, _, bw in phases), default=0) for phases in load.phases.values())


def contended(links: Links) -> dict[str, LinkLoad]:
    """The links whose jobs' peaks together exceed the capacity, jobs without demand left out."""
    result = {}
    for name, load in links.items():
        if peak_sum(load) > load.capacity:
            result[name] = LinkLoad(load.capacity, {j: p for j, p in load.phases.items() if p})
    return result


def dominated(small: LinkLoad, large: LinkLoad) -> bool:
    """Is a perfect scheme on `large` always one on `small`? (R21)

    True when each job of `small` is on `large` too and never asks there for a smaller share of
    the capacity.
    """
    return all(
        job in large.phases and _never_above(phases, small.capacity, large.phases[job], large.capacity)
        for job, phases in small.phases.items()
    )


def reduce(links: Links) -> dict[str, LinkLoad]:
    """The contended links without the dominated ones; of equal links the first by name stays."""
    left = dict(sorted(contended(links).items()))
    on: dict[int, set[str]] = {}
    for name, load in left.items():
        for job in load.phases:
            on.setdefault(job, set()).add(name)
    for name in sorted(left, reverse=True):
        jobs = left[name].phases
        larger = set.intersection(*(on[j] for j in jobs)) - {name}  # only they bear all its jobs
        if any(dominated(left[name], left[other]) for other in larger):
            del left[name]
            for job in jobs:
                on[job].discard(name)
    return left


def has_cycle(links: Links, test: str = "reduced") -> bool:
    """Does the affinity graph close a loop? `test` is one of LOOP_TESTS (R21)."""
    graph = _graph(links, test)
    edges = sum(len(load.phases) for load in graph.values())
    vertices = len(graph) + len({j for load in graph.values() for j in load.phases})
    return edges > vertices - len(components({n: load.phases for n, load in graph.items()}))


def a_cycle(links: Links, test: str = "reduced") -> list[int | str] | None:
    """Jobs and links by turns around one loop of the affinity graph; None when there is none (R21)."""
    neighbours = _neighbours(_graph(links, test))
    seen: set[int | str] = set()
    for start in neighbours:
        if start in seen:
            continue
        seen.add(start)
        path: list[int | str] = [start]  # depth first: what is met again is on the path
        waiting = [iter(neighbours[start])]
        while waiting:
            following = next(waiting[-1], None)
            if following is None:
                waiting.pop()
                path.pop()
            elif following not in seen:
                seen.add(following)
                path.append(following)
                waiting.append(iter(neighbours[following]))
            elif following in path[:-2]:
                return path[path.index(following) :]
    return None


def components(members: Mapping[str, Iterable[int]]) -> list[tuple[list[str], list[int]]]:
    """Connected components as (links, jobs), both sorted, ordered by smallest job.

    `members` maps each link to its jobs; links without jobs are left out.
    """
    parent: dict[int | str, int | str] = {}

    def root(x: int | str) -> int | str:
        while parent.setdefault(x, x) != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for link, jobs in members.items():
        for job in jobs:
            parent[root(link)] = root(job)
    found: dict[int | str, tuple[list[str], list[int]]] = {}
    for x in parent:
        links, group = found.setdefault(root(x), ([], []))
        if isinstance(x, str):
            links.append(x)
        else:
            group.append(x)
    return sorted(((sorted(a), sorted(b)) for a, b in found.values()), key=lambda c: c[1][0])


def blocks(links: Links, test: str = "reduced") -> list[list[str]]:
    """Groups of links to be solved jointly, sorted: biconnected parts that share links (R17)."""
    graph = _graph(links, test)
    group = {name: {name} for name in graph}
    for part in _biconnected(_neighbours(graph)):
        names = [x for x in part if isinstance(x, str)]
        joined = set().union(*(group[n] for n in names))
        for name in joined:
            group[name] = joined
    return sorted({tuple(sorted(g)): sorted(g) for g in group.values()}.values())


def bfs_shifts(
    rotations: Rotations, period: Mapping[int, Fraction], rank: Mapping[int, Rank]
) -> tuple[dict[int, Fraction], list[int]]:
    """Global time-shifts from the rotations on each link, and each component's reference (R23).

    The best ranked job of a component has shift 0; t_k = t_j - w_jl + w_kl modulo the period of
    k, over links and jobs in the order of names and ranks.
    """
    shifts: dict[int, Fraction] = {}
    references: list[int] = []
    on: dict[int, list[str]] = {}
    for link in sorted(rotations):
        for job in rotations[link]:
            on.setdefault(job, []).append(link)
    for first in sorted(on, key=lambda j: (rank[j], j)):
        if first in shifts:
            continue
        references.append(first)
        shifts[first] = Fraction(0)
        waiting = deque([first])
        while waiting:
            j = waiting.popleft()
            for link in on[j]:
                for k in sorted(rotations[link], key=lambda x: (rank[x], x)):
                    if k not in shifts:
                        there = rotations[link]
                        shifts[k] = (shifts[j] - there[j] + there[k]) % Fraction(period[k])
                        waiting.append(k)
    return shifts, references


def violations(
    rotations: Rotations, period: Mapping[int, Fraction], shifts: Mapping[int, Fraction]
) -> list[tuple[str, int, int]]:
    """(link, job, job) where the global shifts do not give the link's rotation (R24).

    Compared modulo the greatest common divisor of the two periods, which is exact by the Chinese
    remainder theorem; CASSINI's eq. 6 compares modulo the perimeter.
    """
    found = []
    for link in sorted(rotations):
        jobs = sorted(rotations[link])
        for i, a in enumerate(jobs):
            for b in jobs[i + 1 :]:
                wanted = rotations[link][a] - rotations[link][b]
                if (shifts[a] - shifts[b] - wanted) % _gcd(Fraction(period[a]), Fraction(period[b])):
                    found.append((link, a, b))
    return found


def _graph(links: Links, test: str) -> Links:
    if test not in LOOP_TESTS:
        raise ValueError(f"the loop test must be one of {LOOP_TESTS}, not {test!r}")
    if test == "cassini":
        return links
    return contended(links) if test == "contended" else reduce(links)


def _neighbours(graph: Links) -> dict[int | str, list[int | str]]:
    found: dict[int | str, list[int | str]] = {}
    for name in sorted(graph):
        for job in sorted(graph[name].phases):
            found.setdefault(name, []).append(job)
            found.setdefault(job, []).append(name)
    return found


def _gcd(a: Fraction, b: Fraction) -> Fraction:
    common = math.lcm(a.denominator, b.denominator)
    return Fraction(math.gcd(int(a * common), int(b * common)), common)


def _never_above(
    small: Sequence[tuple[int, int, int]], b_small: int, large: Sequence[tuple[int, int, int]], b_large: int
) -> bool:
    """small(t)/b_small <= large(t)/b_large at all t; phases canonical, of the same job."""
    for offset, duration, bandwidth in small:
        reached = offset  # covered so far by phases of `large` that are high enough
        for o, m, bw in large:
            if o <= reached < o + m and bandwidth * b_large <= bw * b_small:
                reached = o + m
        if reached < offset + duration:
            return False
    return True


def _biconnected(neighbours: Mapping[int | str, list[int | str]]) -> list[set[int | str]]:
    """Biconnected components as vertex sets (Hopcroft and Tarjan), without recursion."""
    number: dict[int | str, int] = {}
    low: dict[int | str, int] = {}
    parts: list[set[int | str]] = []
    for start in neighbours:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        edges: list[tuple[int | str, int | str]] = []
        stack: list[tuple[int | str, int | str | None, int]] = [(start, None, 0)]
        while stack:
            v, parent, i = stack.pop()
            if i < len(neighbours[v]):
                stack.append((v, parent, i + 1))
                w = neighbours[v][i]
                if w not in number:
                    edges.append((v, w))
                    number[w] = low[w] = len(number)
                    stack.append((w, v, 0))
                elif w != parent and number[w] < number[v]:
                    edges.append((v, w))
                    low[v] = min(low[v], number[w])
            elif parent is not None:
                low[parent] = min(low[parent], low[v])
                if low[v] >= number[parent]:
                    part: set[int | str] = set()
                    while True:
                        a, b = edges.pop()
                        part |= {a, b}
                        if (a, b) == (parent, v):
                            break
                    parts.append(part)
    return parts
