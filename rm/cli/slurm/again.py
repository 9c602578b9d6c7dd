"""`--iterate=SECONDS` of `squeue` and `sinfo`: the list again and again, under the time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rm.errors import UsageError
from rm.submission import place
from rm.units import number_of

LATEST_S = 1 << 32  # the clock takes no more than twice that


def again_and_again(text: str, once: Callable[[], int]) -> int:
    """Until somebody interrupts it, or it fails; the code of `once`. `text`: the seconds between two."""
    seconds = number_of(text)
    if not seconds:
        raise UsageError(f"--iterate={text:.80} is not a number of seconds.", "Write --iterate=5.")
    while True:
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
        if code := once():
            return code
        print(flush=True)
        sys.stdout.flush()
        place.here.pause(min(seconds, LATEST_S))
