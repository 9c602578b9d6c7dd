"""The network in the terminal: grids, colours, letters, sparklines."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.cli.network.grid import SPARKS, draw, legend, mark, sparkline, worst
from rm.core.monitoring.cells import Status

HOSTS = {"a1": "east", "a2": "east", "a3": "east", "b1": "west"}
CELLS = {("a1", "a2"): 0, ("a2", "a1"): 1, ("a1", "a3"): 2, ("a3", "a1"): 3, ("a1", "b1"): 5, ("a2", "b1"): 0}


def test_each_zone_has_a_grid_and_the_zones_have_one() -> None:
    assert draw(HOSTS, CELLS, colour=False, width=80) == (
        "zone east\n"
        "     1 2 3\n"
        "1 a1 · o C\n"
        "2 a2 w ·\n"
        "3 a3 ?   ·\n"
        "\n"
        "between zones\n"
        "       1 2\n"
        "1 east · m\n"
        "2 west   ·"
    )


def test_what_is_too_wide_goes_on_below() -> None:
    hosts = {f"h{i:02}": "z" for i in range(12)}
    cells = dict.fromkeys(permutations(hosts, 2), 0)
    drawn = draw(hosts, cells, colour=False, width=30)
    assert max(map(len, drawn.splitlines())) <= 30
    assert drawn.count("o") == 12 * 11 + 1  # and the one of "zone"
    assert [line.split() for line in drawn.splitlines() if line.startswith("   ")] == [
        [str(n) for n in range(1, 8)],
        [str(n) for n in range(8, 13)],
    ]


def test_ten_thousand_cells() -> None:
    hosts = {f"h{i:03}": "z" for i in range(101)}
    cells = dict.fromkeys(permutations(hosts, 2), 2)
    assert draw(hosts, cells, colour=False, width=500).count("C") == 101 * 100


def test_colours_are_maddashs() -> None:
    codes = {"\x1b[32m": "green", "\x1b[33m": "yellow", "\x1b[31m": "red"}
    shown = [codes.get(mark(s, True)[:5], "grey") for s in Status]
    assert shown == ["green", "yellow", "red", "grey", "grey", "grey"]
    assert "".join(mark(s, False) for s in Status) == "owC?.m"


def test_a_pair_is_as_bad_as_its_worst_check() -> None:
    assert worst([0, 1, 2, 3]) == 2
    assert worst([0, 3]) == 3
    assert worst([0, 4]) == 0
    assert worst([]) == 4


values = st.lists(st.none() | st.floats(0, 1e12), max_size=300)


@given(values, st.integers(1, 80))
def test_a_sparkline_is_as_wide_as_it_may_be_and_shows_the_extremes(given_: list[Any], width: int) -> None:
    line = sparkline(given_, width)
    known = [v for v in given_ if v is not None]
    assert (line == "") == (not known)
    if known:
        assert len(line) == min(len(given_), width)
        assert set(line) <= set(SPARKS) | {" "}
        if len(given_) <= width and max(known) - min(known) > 1:
            assert line[given_.index(max(known))] == SPARKS[-1]
            assert line[given_.index(min(known))] == SPARKS[0]


@pytest.mark.parametrize(("given_", "line"), [([1, 1], "▁▁"), ([0, None, 7], "▁ █"), ([0, 9, 0, 0], "▁█▁▁")])
def test_sparklines(given_: list[Any], line: str) -> None:
    assert sparkline(given_) == line


def test_the_legend_has_every_sign_of_a_grid_and_what_an_empty_cell_is() -> None:
    assert legend(colour=False) == (
        "o ok  w warn  C critical  ? unknown  . not run  m maintenance  blank: not tested"
    )
