"""A frozen dataclass that is quickly made is what dataclasses makes of it."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field

import pytest

from rm.core.model.quickly_made import quickly_made


@dataclass(frozen=True, slots=True)
class Usual:
    kind: int
    made: str = "x"
    twin: list[int] = field(default_factory=list)
    only: int = field(default=2, kw_only=True)


@quickly_made
@dataclass(frozen=True, slots=True)
class Quick:
    kind: int
    made: str = "x"
    twin: list[int] = field(default_factory=list)
    only: int = field(default=2, kw_only=True)


@quickly_made
@dataclass(frozen=True)
class Open:
    a: int
    b: int = 2


def test_it_is_made_of_the_same_arguments() -> None:
    for words, named in [((1,), {}), ((1, "y"), {"only": 3}), ((), {"kind": 4, "twin": [5]})]:
        assert dataclasses.astuple(Quick(*words, **named)) == dataclasses.astuple(Usual(*words, **named))
    assert Quick(1).twin is not Quick(1).twin
    assert type(Quick(1)) is Quick
    assert Open(1) == Open(a=1, b=2)
    assert hash(Open(1)) == hash(Open(1))
    names = [list(inspect.signature(kind).parameters) for kind in (Usual, Quick)]
    assert names[0] == names[1]


def test_it_is_frozen() -> None:
    for made, name in [(Quick(1), "kind"), (Open(1), "a")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, 2)


def test_it_refuses_what_dataclasses_refuses() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'kind'"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Quick(1, other=2)  # type: ignore[call-arg]


def test_a_class_that_does_more_than_set_its_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="Checked is not only made of its own fields"):

        @quickly_made
        @dataclass(frozen=True)
        class Checked:
            a: int

            def __post_init__(self) -> None:
                assert self.a


def test_a_class_derived_from_a_dataclass_is_refused() -> None:
    with pytest.raises(TypeError, match="Grown is not only made of its own fields"):

        @quickly_made
        @dataclass(frozen=True)
        class Grown(Usual):
            more: int = 0


def test_nothing_is_derived_from_one_since_it_would_lose_its_kind() -> None:
    with pytest.raises(TypeError, match="Grown is derived from a class that is quickly made"):

        class Grown(Open):
            pass
