"""What a busy machine has spoiled is measured once more, when there is less to do for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from rm.errors import RmError

QUIET_SHARE = 0.6  # of the processors' time that is idle
LOOK_S = 3.0
PATIENCE_S = 90.0  # for a quieter moment; then it is measured all the same
STAT = "/proc/stat"
IDLE_FIELDS = slice(3, 5)  # of its line `cpu`: idle, and idle while the disk works
TIME_FIELDS = slice(0, 8)  # what follows is part of the first


class Spoiled(RmError):
    """A measurement that shows the machine's other work instead of the jobs' traffic."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "Try again while this machine is less busy.")


def measured_again(
    measure: Callable[[], None], begin_again: Callable[[], None], say: Callable[[str], None]
) -> None:
    """`measure`; if that is spoiled, `begin_again` and once more.

    Raises:
        Spoiled: the second one is spoiled, too.
    """
    try:
        measure()
        return
    except Spoiled as problem:
        say(f"{problem.what} All is measured once more, as soon as this machine is less busy")
    begin_again()
    measure()


def await_quiet(
    now: Callable[[str], None],
    ticks: Callable[[], tuple[int, int]] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Until most of the processors' time is idle: whether it was so before patience ended.

    Args:
        now: shows what is waited for.
        ticks: the idle and the whole time of all processors since they were started, in any unit.
    """
    read = ticks or processor_ticks
    idle, whole = read()
    for look in range(1, round(PATIENCE_S / LOOK_S) + 1):
        sleep(LOOK_S)
        idle_then, whole_then = idle, whole
        idle, whole = read()
        share = (idle - idle_then) / max(1, whole - whole_then)
        if share >= QUIET_SHARE:
            return True
        left_s = PATIENCE_S - look * LOOK_S
        idle_pct = f"{100 * share:.0f} % of the processors is idle"
        now(f"waiting for a quieter moment: {idle_pct}, {left_s:.0f} s left")
    return False


def processor_ticks() -> tuple[int, int]:
    with open(STAT, encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    return sum(fields[IDLE_FIELDS]), sum(fields[TIME_FIELDS])
