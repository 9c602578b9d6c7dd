"""Edge colouring of bipartite multigraphs: proper, and never more colours than the greatest degree."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.foresight import edge_colouring, max_degree
from tests.examples import examples

SETTINGS = settings(max_examples=examples(200))
Edges = Sequence[tuple[int | str, int | str]]


def check(edges: Edges) -> None:
    colours = edge_colouring(edges)
    assert len(colours) == len(edges)
    assert set(colours) <= set(range(max_degree(edges)))
    for side in (0, 1):
        seen = [(ends[side], colour) for ends, colour in zip(edges, colours, strict=True)]
        assert len(set(seen)) == len(seen), "two edges of one colour meet"


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=80))
def test_any_multigraph_needs_as_many_colours_as_its_greatest_degree(edges: Edges) -> None:
    check(edges)


@SETTINGS
@given(st.lists(st.permutations(range(6)), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_regular_multigraphs_too_in_any_order(rounds, chance) -> None:  # type: ignore[no-untyped-def]
    """The union of d perfect matchings has degree d everywhere: no colour is ever to spare."""
    edges = [(a, b) for matching in rounds for a, b in enumerate(matching)]
    chance.shuffle(edges)
    assert max_degree(edges) == len(rounds)
    check(edges)


def test_known_graphs() -> None:
    complete = [(a, b) for a in range(3) for b in range(3)]
    assert max_degree(complete) == 3
    check(complete)
    path = [("b", "x"), ("a", "x"), ("a", "y"), ("c", "y")]  # the first colour that is free needs three
    assert max_degree(path) == 2
    check(path)
    assert edge_colouring([]) == []


def test_some_thousand_edges() -> None:
    edges = [(i % 50, (i * i + i // 50) % 50) for i in range(4000)]
    check(edges)
