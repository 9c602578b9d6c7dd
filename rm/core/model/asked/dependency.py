"""What a job waits for of other jobs, and what has come of it. Slurm's names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import and_, or_

from rm.arrays import mask
from rm.dependencies import Condition

ALL = -1  # as a set of indices


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
    ended, a JobState, once that decided; "" where nobody knows it any more. `tasks`: the elements of an array
    that are named, "" = all; `array`: the named job is an array.

    `aftercorr` of an array is one condition for each of the array's own elements, which are in exactly one of
    `undecided`, `met` and `lost` (it never will be); `standing` judges all together.
    """

    kind: str
    job: int = 0
    delay_us: int = 0
    standing: Standing = Standing.UNFULFILLED
    from_us: int = 0
    ended: str = ""
    tasks: str = ""
    undecided: str = ""
    met: str = ""
    lost: str = ""
    array: bool = False

    def __str__(self) -> str:
        return str(Condition(self.kind, self.job, self.delay_us, self.tasks))

    @property
    def by_element(self) -> bool:
        return bool(self.undecided or self.met or self.lost)

    def of_element(self, task: int) -> Dependency:
        """As one element of the array has it."""
        if not self.by_element:
            return self
        standing = Standing.UNFULFILLED
        if mask(self.met) >> task & 1:
            standing = Standing.FULFILLED
        elif mask(self.lost) >> task & 1:
            standing = Standing.FAILED
        return replace(self, standing=standing, tasks=str(task), undecided="", met="", lost="")


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


def free_elements(dependencies: tuple[Dependency, ...], any_of: bool) -> int:
    """The elements of an array whose dependencies are fulfilled, as a set of indices; others may be in it."""
    if not dependencies:
        return ALL
    sets = (_share(one, Standing.FULFILLED, one.met) for one in dependencies)
    return reduce(or_ if any_of else and_, sets)


def lost_elements(dependencies: tuple[Dependency, ...], any_of: bool) -> int:
    """Those whose dependencies can never be fulfilled."""
    if not dependencies:
        return 0
    sets = (_share(one, Standing.FAILED, one.lost) for one in dependencies)
    return reduce(and_ if any_of else or_, sets)


def _share(one: Dependency, standing: Standing, elements: str) -> int:
    if one.by_element:
        return mask(elements)
    return ALL if one.standing is standing else 0


def fulfilled_from_us(dependencies: tuple[Dependency, ...], any_of: bool) -> int:
    """When the delays of those that are fulfilled are over; 0 = at once."""
    times = (one.from_us for one in dependencies if one.standing is Standing.FULFILLED)
    return (min if any_of else max)(times, default=0)
