"""What a job waits for of other jobs, and what has come of it. Slurm's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rm.dependencies import Condition


class Standing(StrEnum):
    """Of a dependency, or of all those of a job together."""

    UNFULFILLED = "unfulfilled"  # not yet
    FULFILLED = "fulfilled"
    FAILED = "failed"  # and it never will be, unless the job that it names is requeued


@dataclass(frozen=True, slots=True)
class Dependency:
    """One condition of a job's list. `job` is 0 for `singleton`.

    A fulfilled one stays so, whatever becomes of the job that it names; only `singleton` is asked until the
    job starts. `from_us`: when the delay of `after` is over, 0 without one. `ended`: how the named job
    ended, a JobState, once that decided; "" where nobody knows it any more.
    """

    kind: str
    job: int = 0
    delay_us: int = 0
    standing: Standing = Standing.UNFULFILLED
    from_us: int = 0
    ended: str = ""

    def __str__(self) -> str:
        return str(Condition(self.kind, self.job, self.delay_us))


def together(dependencies: tuple[Dependency, ...], any_of: bool) -> Standing:
    """Of all conditions, or of alternatives."""
    if len(dependencies) == 1:
        return dependencies[0].standing
    standings = {one.standing for one in dependencies}
    decisive, otherwise = (
        (Standing.FULFILLED, Standing.FAILED) if any_of else (Standing.FAILED, Standing.FULFILLED)
    )
    if decisive in standings:
        return decisive
    if Standing.UNFULFILLED in standings:
        return Standing.UNFULFILLED
    return otherwise if standings else Standing.FULFILLED


def fulfilled_from_us(dependencies: tuple[Dependency, ...], any_of: bool) -> int:
    """When the delays of those that are fulfilled are over; 0 = at once."""
    times = (one.from_us for one in dependencies if one.standing is Standing.FULFILLED)
    return (min if any_of else max)(times, default=0)
