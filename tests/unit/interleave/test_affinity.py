"""Loops, blocks, global time-shifts and their consistency."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.interleave import LinkLoad
from rm.policies.interleave.affinity import bfs_shifts, blocks, dominated, has_cycle, violations
from tests.examples import examples

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = json.loads((GOLDEN / "affinity.json").read_text())


def fractions(numbers: dict[str, Any]) -> dict[int, Fraction]:
    return {int(job): Fraction(n) for job, n in numbers.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_worked_example(case: dict[str, Any]) -> None:
    given_, wanted = case["given"], case["wanted"]
    if case["kind"] in ("loop", "blocks"):
        links = {
            name: LinkLoad(link["capacity"], {int(j): ((0, 1, bw),) for j, bw in link["peaks"].items()})
            for name, link in given_["links"].items()
        }
        if case["kind"] == "blocks":
            assert blocks(links) == wanted
        else:
            assert {test: has_cycle(links, test) for test in wanted} == wanted
        return
    rotations = {link: fractions(w) for link, w in given_["rotations"].items()}
    period = fractions(given_["period"])
    if case["kind"] == "consistency":
        assert violations(rotations, period, fractions(given_["shifts"])) == wanted
        return
    rank = {int(job): (place, 0, "") for job, place in given_["rank"].items()}
    shifts, references = bfs_shifts(rotations, period, rank)
    assert shifts == fractions(wanted["shifts"])
    assert references == wanted["references"]
    assert violations(rotations, period, shifts) == wanted["violations"]


@settings(max_examples=examples(100))
@given(st.data())
def test_shifts_over_a_graph_without_loops_are_consistent(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 6))
    period = {j: Fraction(data.draw(st.sampled_from([40, 60, 90, 120]))) for j in range(count)}
    rotation = st.integers(0, 119)
    rotations = {  # each further job hangs on one earlier job by a link of its own: a tree
        f"l{j}": {
            data.draw(st.integers(0, j - 1)): Fraction(data.draw(rotation)),
            j: Fraction(data.draw(rotation)),
        }
        for j in range(1, count)
    }
    rank = {j: (data.draw(st.integers(-2, 0)), j, "") for j in range(count)}
    shifts, references = bfs_shifts(rotations, period, rank)
    assert references == [min(rank, key=lambda j: rank[j])]
    assert violations(rotations, period, shifts) == []
    assert all(0 <= shifts[j] < period[j] for j in shifts)


def test_moving_one_job_of_a_pair_is_a_violation() -> None:
    rotations = {"l": {1: Fraction(0), 2: Fraction(30)}}
    period = {1: Fraction(100), 2: Fraction(100)}
    assert violations(rotations, period, {1: Fraction(0), 2: Fraction(31)}) == [("l", 1, 2)]


def test_dominance_compares_shares_of_capacity_over_time() -> None:
    wide = LinkLoad(20, {1: ((0, 10, 10), (10, 10, 20)), 2: ((5, 10, 20),)})
    assert dominated(LinkLoad(10, {1: ((0, 20, 5),), 2: ((6, 2, 10),)}), wide)
    assert not dominated(LinkLoad(10, {1: ((0, 20, 6),), 2: ((6, 2, 10),)}), wide)
    assert not dominated(LinkLoad(10, {1: ((0, 5, 1),), 3: ((0, 1, 1),)}), wide)
