"""How many generated examples and seeds a property test tries: `make test` all, `make check` a quarter."""

import os

SHARE = float(os.environ.get("RM_TEST_EXAMPLES", "1"))


def examples(whole: int) -> int:
    return max(5, round(whole * SHARE))


def seeds(whole: int, least: int = 2) -> range:
    """`least` where the first few seeds are different cases."""
    return range(max(least, round(whole * SHARE)))
