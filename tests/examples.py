"""How many generated examples a property test tries: all in `make test`, a quarter in `make check`."""

import os

SHARE = float(os.environ.get("RM_TEST_EXAMPLES", "1"))


def examples(whole: int) -> int:
    return max(5, round(whole * SHARE))
