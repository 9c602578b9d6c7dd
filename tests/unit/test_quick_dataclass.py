"""Quick dataclasses are as those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from rm import quick_dataclass


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    """What it is."""

    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, compare=False)
    d: str = field(default="secret", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", self.d.upper())


@quick_dataclass.dataclass(frozen=True, slots=True)
class Quick:
    """What it is."""

    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, compare=False)
    d: str = field(default="secret", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", self.d.upper())


@quick_dataclass.dataclass(frozen=True, slots=True)
class Longer(Quick):
    """With one field more, and its own word for itself."""

    e: int = 5

    def __repr__(self) -> str:
        return f"longer by {self.e}"


@quick_dataclass.dataclass(slots=True)
class Changing:
    """One that may change."""

    a: int
    b: list[int] = field(default_factory=list)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return dataclasses.asdict(call())
    except TypeError:
        return TypeError


def test_they_are_made_of_the_same_arguments() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}), ((1,), {}), ((1, "x"), {}), ((1, "x", [2], "y"), {}), ((1, 2, 3, 4, 5), {}),
        ((), {"a": 1}), ((1,), {"c": [3]}), ((1,), {"a": 2}), ((1,), {"z": 2}), ((), {"b": "x"}),
        ((1, 2), {"b": 3}),
    ]  # fmt: skip
    for values, named in calls:
        made = outcome(lambda values=values, named=named: Quick(*values, **named))  # type: ignore[misc]
        assert made == outcome(lambda values=values, named=named: Usual(*values, **named))  # type: ignore[misc]
    first, second = Quick(1), Quick(1)
    assert first.c is not second.c
    assert (Longer(1, e=2).e, Longer(1).d, repr(Longer(1))) == (2, "SECRET", "longer by 5")


def test_they_are_compared_shown_copied_and_taken_apart_the_same() -> None:
    quick, usual = Quick(1, "x", [2]), Usual(1, "x", [2])
    assert repr(quick) == repr(usual).replace("Usual", "Quick")
    assert (quick == Quick(1, "x", [3]), quick == Quick(2, "x"), quick == usual, quick == Longer(1, "x")) == (
        True, False, False, False,
    )  # fmt: skip
    assert hash(quick) == hash(Quick(1, "x", [3])) == hash(usual)
    for made in (quick, Longer(1, "x"), Changing(1, [2])):
        for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert (other, type(other)) == (made, type(made))
    assert dataclasses.replace(quick, a=2).a == 2
    assert [one.name for one in dataclasses.fields(Quick)] == ["a", "b", "c", "d"]
    match quick:
        case Quick(a, b):
            assert (a, b) == (1, "x")
    assert not hasattr(quick, "__dict__")


def test_only_those_that_are_not_frozen_change() -> None:
    for name in ("a", "unknown"):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            setattr(Quick(1), name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Quick(1).a
    changing = Changing(1)
    changing.b.append(2)
    changing.a = 3
    assert changing == Changing(3, [2])
    assert Changing(1).b == []
    with pytest.raises(TypeError):
        hash(changing)


def test_none_has_its_signature_worked_out_for_a_missing_description(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(made: Any) -> None:
        raise AssertionError(f"the signature of {made} takes longer than all else")

    monkeypatch.setattr("inspect.signature", asked)

    @quick_dataclass.dataclass(frozen=True, slots=True)
    class Plain:
        a: int

    assert Plain(1).a == 1
