"""Named tuples of the quick commands are those of `typing`, and their JSON is that of `json`."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any, NamedTuple, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm import quick_tuple
from rm.client.quick_json import dumps, loads


class Usual(NamedTuple):
    """What it is."""

    a: int
    b: str = "b"
    c: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.a


class Quick(quick_tuple.NamedTuple):
    """What it is."""

    a: int
    b: str = "b"
    c: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.a


def test_it_is_as_the_usual_one() -> None:
    calls = [((1,), {}), ((1, "x"), {}), ((1, "x", (2,)), {}), ((), {"a": 1}), ((1,), {"c": (3,)}), ((), {})]
    calls += [((1, 2, 3, 4), {}), ((1,), {"a": 2}), ((1,), {"d": 2}), ((), {"b": "x"}), ((1, 2), {"b": 3})]
    for values, named in calls:
        try:
            expected = tuple(Usual(*values, **named))
        except TypeError:
            with pytest.raises(TypeError):
                Quick(*values, **named)
        else:
            assert tuple(Quick(*values, **named)) == expected
    usual, quick = Usual(1, "x"), Quick(1, "x")
    assert (quick.a, quick.b, quick.c, quick.double) == (usual.a, usual.b, usual.c, usual.double)
    assert repr(quick) == repr(usual).replace("Usual", "Quick")
    assert (quick._asdict(), quick._replace(a=2)) == (usual._asdict(), usual._replace(a=2))
    assert (Quick._fields, Quick._field_defaults) == (Usual._fields, Usual._field_defaults)
    assert Quick._make([1, 2, (3,)]) == Usual._make([1, 2, (3,)])
    assert (Quick.__doc__, get_type_hints(Quick)) == (Usual.__doc__, get_type_hints(Usual))
    for wrong in (lambda: quick._replace(z=1), lambda: Quick._make([1]), lambda: setattr(quick, "a", 1)):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            wrong()
    assert copy.copy(quick) == copy.deepcopy(quick) == pickle.loads(pickle.dumps(quick)) == quick
    assert msgspec.json.decode(msgspec.json.encode(quick), type=Quick) == quick  # type: ignore[misc]
    match quick:
        case Quick(a, b):
            assert (a, b) == (1, "x")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_json_is_as_usual(value: Any) -> None:
    assert dumps(value) == json.dumps(value)
    assert loads(f" {json.dumps(value)}\n") == value


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "1 2", '{"a" 1}', "\x00", "nul", '"\n"', "{'a': 1}"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        loads(text)
