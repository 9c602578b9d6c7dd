"""Jobs as the rows of a queue, of which a long list costs a fraction of what whole jobs cost.

Standard library only: commands that scripts call in loops read it without the rest of the API.
"""

from __future__ import annotations

# of `collections.abc`, whose package is not needed; at run time, since msgspec reads the types of JobRow
from _collections_abc import Sequence
from itertools import repeat

from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Any


PENDING = "PENDING"
DROPPED = ("CANCELLED", "CA")  # elements that were cancelled before they started
HELD, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"


class JobRow(NamedTuple):
    """What a queue shows of a job. Times are microseconds since the epoch; `gpus` are those that it has, or
    asks for; `mem_each` is what has `mem_bytes` each: "host", "task", or "" for all memory of its hosts;
    `reason` is a code, "" = none. `array_job` and `array_task`: of an element of a job array. `array_rest`:
    of an array the elements without jobs of their own, "" = there are none; None: it is no array.
    `array_over`: none of these waits any more, so they were cancelled. `array_parts`: where they are not all
    in the state of the row, or for different reasons: of each kind its indices, state, short state and
    reason. `hosts_min`: on how many hosts it runs at least. `suspended_us`: since when it stands still, and
    `stood_us` for how long it did before."""

    id: int
    partition: str
    name: str
    user: str
    state: str
    short_state: str
    submitted_us: int
    started_us: int | None
    ended_us: int | None
    time_limit_us: int | None
    tasks: int
    cpus: int
    gpus: int
    mem_bytes: int
    mem_each: str
    priority: int
    hosts: Sequence[str]
    reason: str
    chdir: str
    comment: str
    array_job: int
    array_task: int | None
    array_rest: str | None
    array_limit: int
    hosts_min: int
    suspended_us: int | None = None
    stood_us: int = 0
    account: str = ""
    qos: str = ""
    array_over: bool = False
    array_parts: Sequence[Sequence[str]] = ()

    def lines(self) -> Sequence[JobRow]:
        """The lines of a list that stand for it: of an array, one for each kind of its elements without jobs
        of their own, none where there are none."""
        if not self.array_rest:
            return (self,) if self.array_rest is None else ()
        parts = self.array_parts
        if not parts:
            if self.state == PENDING and not self.array_over:
                return (self,)
            parts = ((self.array_rest, *DROPPED, self.reason),)  # as an older daemon tells it
        return [self._line(*part) for part in parts]

    def _line(self, rest: str, state: str, short_state: str, reason: str) -> JobRow:
        waits = state == PENDING
        return self._replace(
            array_rest=rest, state=state, short_state=short_state, reason=reason, array_over=not waits,
            array_limit=self.array_limit if waits else 0, started_us=None, array_parts=(),
        )  # fmt: skip

    def partition_in(self, named: Container[str]) -> bool:
        """Whether the partition that the job runs in is among these, or one of those that it waits for."""
        return any(one in named for one in self.partition.split(","))


def by_name(columns: Sequence[str], lists: Iterable[Sequence[Any]]) -> list[JobRow]:
    """The rows of lists that have these columns: a newer daemon has more, an older one fewer, or they come in
    another order.

    Raises:
        ValueError: a column of `JobRow` that has no default is not among them, or a list is of another
            length.
    """
    if tuple(columns) == JobRow._fields:
        rows: list[JobRow] = list(map(tuple.__new__, repeat(JobRow), lists))  # half of what `_make` takes
        if not set(map(len, rows)) <= {len(JobRow._fields)}:
            raise ValueError("a row does not have a value for each column")
        return rows
    from operator import itemgetter  # a daemon of another version

    known = [name for name in JobRow._fields if name in columns or name not in JobRow._field_defaults]
    mine = itemgetter(*(list(columns).index(name) for name in known))
    return [JobRow(**dict(zip(known, mine(one), strict=True))) for one in lists]


def row_of(
    job: Any,
    state: str,
    short_state: str,
    hosts: Sequence[str],
    reason: str,
    partition: str = "",
    dropped_for: str = "",
) -> JobRow:
    """The row of a job of the core, or of `rm.api.jobs`: both name the fields alike. `partition`: of several
    the one that it runs in, "" = those that it asked for. `dropped_for`: why elements of an array were
    cancelled before they started."""
    return JobRow._make(values_of(job, state, short_state, hosts, reason, partition, dropped_for))


def values_of(
    job: Any,
    state: str,
    short_state: str,
    hosts: Sequence[str],
    reason: str,
    partition: str,
    dropped_for: str,
) -> tuple[Any, ...]:
    """Those of its row, as `row_of`: who only writes ten thousand of them needs no `JobRow` of each."""
    spec, array = job.spec, job.array
    # GPUs counted by host: before it is placed on as many hosts as it needs
    gpus = spec.gpus_per_task * spec.ntasks + spec.gpus_per_host * (len(hosts) or spec.hosts_min or 1)
    each = "" if spec.mem_all else "host" if spec.mem_bytes_per_host else "task"
    return (
        job.id,
        partition or spec.partition,
        spec.name,
        spec.user,
        state,
        short_state,
        job.submitted_us,
        job.started_us,
        job.ended_us,
        spec.time_limit_us,
        spec.ntasks,
        spec.cpus_per_task * spec.ntasks,
        gpus,
        spec.mem_bytes_per_host or spec.mem_bytes_per_task,
        each,
        spec.priority,
        hosts,
        reason,
        spec.chdir,
        spec.comment,
        job.array_job,
        job.array_task,
        None if array is None else array.waiting or array.dropped,
        array.limit if array is not None and array.waiting else 0,
        spec.hosts_min or (-(-spec.ntasks // spec.tasks_per_host) if spec.tasks_per_host else 1),
        job.suspended_us,
        job.stood_us,
        job.account,
        job.qos,
        array is not None and not array.waiting and bool(array.dropped),
        () if array is None else _parts(array, reason, dropped_for),
    )


def _parts(array: Any, reason: str, dropped_for: str) -> Sequence[Sequence[str]]:
    """`JobRow.array_parts`: what waits, what somebody holds, and what was cancelled before it started."""
    waiting, held, dropped = array.waiting, array.held, array.dropped
    last = ((dropped, *DROPPED, dropped_for),) if dropped else ()
    if not held or held == waiting:
        return ((waiting, PENDING, "PD", reason), *last) if waiting and last else last
    from rm.arrays import mask, text_of

    free, kept = mask(waiting) & ~mask(held), mask(held) & mask(array.admin_held)
    by = HELD_BY_ADMIN if kept == mask(held) else HELD
    return ((text_of(free), PENDING, "PD", reason), (held, PENDING, "PD", by), *last)
