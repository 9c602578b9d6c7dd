"""`replace` of the core does what that of dataclasses does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rm.core.model.job import JobState
from rm.core.model.replacing import replace
from tests import builders


@dataclasses.dataclass(frozen=True)
class Open:
    a: int
    b: int = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    a: int
    b: int = 2

    def __post_init__(self) -> None:
        assert self.a >= 0


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    a: int


@dataclasses.dataclass(frozen=True)
class Grown(Closed):
    b: int = 2


@dataclasses.dataclass(slots=True)
class Counted:
    a: int
    b: int = dataclasses.field(default=0, init=False)


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (builders.job(), {}),
        (builders.job(), {"state": JobState.RUNNING, "attempt": 3}),
        (builders.spec(), {"ntasks": 4}),
        (Open(1), {"b": 3}),
        (Checked(1), {"a": 3}),
        (Grown(1), {"b": 3}),
        (Counted(1), {"a": 3}),
    ],
)
def test_a_new_value_is_the_same_but_for_the_changes(value: Any, changes: dict[str, Any]) -> None:
    made = replace(value, **changes)
    assert (made, type(made)) == (dataclasses.replace(value, **changes), type(value))
    assert made is not value
    assert made == value or changes


def test_a_copy_of_what_is_frozen_is_frozen() -> None:
    made = replace(builders.job(), attempt=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.attempt = 4  # type: ignore[misc]


@pytest.mark.parametrize("value", [builders.job(), Open(1)])
def test_a_field_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        replace(value, no_such_field=1)


def test_what_a_class_checks_is_checked() -> None:
    with pytest.raises(AssertionError):
        replace(Checked(1), a=-1)
