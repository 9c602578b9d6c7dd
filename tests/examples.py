"""How many generated examples and seeds a test tries (RM_TEST_EXAMPLES), and many cases in one test."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
SHARE = float(os.environ.get("RM_TEST_EXAMPLES", "1"))


def examples(whole: int) -> int:
    return max(5, round(whole * SHARE))


def seeds(whole: int, least: int = 1) -> range:
    """`least` where the first few seeds are different cases."""
    return range(max(least, round(whole * SHARE)))


def some(cases: Sequence[T]) -> Sequence[T]:
    """Of a list whose cases show the same: the first, and each that is that far behind the one before."""
    return cases[:: max(1, round(1 / SHARE))]


def try_each(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], str] = str) -> None:
    """Check hundreds of short cases in one test: pytest takes longer to collect and report a test, in each
    worker, than such a case takes.

    Raises:
        ExceptionGroup: what failed, each with a note of its case; the other cases were checked, too.
    """
    failed: list[Exception] = []
    count = 0
    for count, case in enumerate(cases, 1):  # noqa: B007
        try:
            check(case)
        except Exception as error:
            error.add_note(f"case: {name(case)}")
            failed.append(error)
    assert count, "there is no case"
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {count} cases failed", failed)
