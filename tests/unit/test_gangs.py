"""What is reckoned for large gangs at once, against the same found by looking at each case."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from rm.policies.placement.steps import zones as joining
from rm.policies.placement.steps.gang import Filling, Gang
from rm.policies.placement.steps.measured import Readings
from rm.policies.placement.steps.zones import spill_zones
from tests.builders import linkstats
from tests.examples import seeds


def fits_after(gang: Gang, caps: list[int], given: list[int]) -> bool:
    """Is there a way for the rest of the gang? Found by trying all sets of hosts."""
    used = [n for n, tasks in enumerate(given) if tasks]
    for size in range(max(len(used), gang.hosts_min, 1), min(gang.most_hosts, len(caps)) + 1):
        for chosen in combinations(range(len(caps)), size):
            left = sum(given[n] == 0 for n in chosen)  # each of these gets one task at least
            if set(used) <= set(chosen) and all(caps[n] for n in chosen):
                room = sum(caps[n] for n in chosen) - sum(given)
                if left <= gang.tasks - sum(given) <= room:
                    return True
    return False


@pytest.mark.parametrize("seed", seeds(60))
def test_a_task_may_go_wherever_the_rest_of_the_gang_still_fits(seed: int) -> None:
    chance = random.Random(seed)
    caps = [chance.choice((0, 1, 2, 3, 5)) for _ in range(5)]
    gang = Gang(chance.randint(1, 8), chance.choice((0, 0, 2, 3)), chance.choice((0, 0, 3, 4)))
    if not gang.fits(np.array(caps)):
        return
    filling, given = Filling(gang, np.array(caps)), [0] * len(caps)
    while filling.left:
        may = filling.may_take()
        for host, cap in enumerate(caps):
            then = [tasks + (n == host) for n, tasks in enumerate(given)]
            assert may[host] == (given[host] < cap and fits_after(gang, caps, then))
        host = chance.choice(np.flatnonzero(may).tolist())
        filling.give(host)
        given[host] += 1
    assert filling.counts.tolist() == given


@pytest.mark.parametrize("seed", seeds(60))
def test_the_fewest_and_nearest_zones_are_joined(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By full search, and where that is too long by growing from each zone."""
    chance = random.Random(seed)
    names = [f"z{i}" for i in range(chance.randint(1, 7))]
    room = {name: chance.choice((0, 1, 2, 4)) for name in names}
    users = {name: float(chance.choice((0, 1, 5))) for name in names}
    delay = {(a, b): float(chance.choice((1, 2, 3))) for a, b in combinations(names, 2)}
    delay |= {(b, a): value for (a, b), value in delay.items()} | {(a, a): 0.5 for a in names}
    tasks, most = chance.randint(1, 12), chance.choice((0, 100))
    monkeypatch.setattr(joining, "COMBINATIONS_MAX", most)

    def rank(group: tuple[str, ...]) -> tuple[float, float, tuple[str, ...]]:
        worst = max((delay[pair] for pair in combinations(group, 2)), default=0)
        return worst, sum(users[z] for z in group), group

    def grown(group: list[str], size: int) -> tuple[str, ...]:
        while len(group) < size:
            rest = (z for z in usable if z not in group)
            group = [*group, min(rest, key=lambda z: (max(delay[z, g] for g in group), z))]
        return tuple(sorted(group))

    usable = [name for name in names if room[name]]
    expected: list[str] = []
    for size in range(1, len(usable) + 1):
        groups = list(combinations(usable, size)) if most else [grown([z], size) for z in usable]
        if found := [group for group in groups if sum(room[z] for z in group) >= tasks]:
            expected = sorted(min(found, key=rank), key=lambda z: (users[z], z))
            break
    assert expected == spill_zones(
        room,
        users,
        lambda zones: np.array([[delay[a, b] for b in zones] for a in zones]),
        tasks,
        lambda zones: sum(room[z] for z in zones) >= tasks,
    )


def test_what_was_measured_meanwhile_is_read_and_nothing_else() -> None:
    names = ("a", "b", "c")
    pairs = {(x, y): linkstats(0, 0.1) for x in names for y in names if x != y}
    readings = Readings()
    assert readings.follow(pairs)
    assert not readings.follow(dict(pairs))
    pairs["b", "a"] = linkstats(3.0, 0.4)
    assert readings.follow(pairs)
    fresh = Readings()
    fresh.follow(pairs)
    kept, anew = readings.between(names, 0), fresh.between(names, 0)
    assert kept.values.tolist() == anew.values.tolist()
    assert kept.values[:, 0].tolist() == [3.0, 0.0, 0.0]
    assert readings.between((None, "b", "c"), 0).first.tolist() == [1]
