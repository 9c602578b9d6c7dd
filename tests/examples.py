"""How many generated examples and seeds a property test tries: `make test` all, `make check` a quarter."""

import os
from collections.abc import Sequence
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
