"""Many cases in one test are all checked, and those that fail are named."""

from __future__ import annotations

import pytest

from tests.examples import try_each


def is_even(number: int) -> None:
    assert number % 2 == 0


def test_cases_that_hold_are_silent() -> None:
    try_each([2, 4], is_even)


def test_each_case_that_fails_is_named_with_what_failed() -> None:
    checked: list[int] = []

    def check(number: int) -> None:
        checked.append(number)
        is_even(number)

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed") as caught:
        try_each([1, 2, 3, 4], check, lambda number: f"of {number}")
    assert checked == [1, 2, 3, 4]
    assert [error.__notes__ for error in caught.value.exceptions] == [["case: of 1"], ["case: of 3"]]
    assert all(isinstance(error, AssertionError) for error in caught.value.exceptions)


def test_no_case_at_all_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="there is no case"):
        try_each([], is_even)
