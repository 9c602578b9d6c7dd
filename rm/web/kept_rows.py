"""The rows of a queue as they were written last, until their jobs change: a list of ten thousand is joined
from them, which takes a fraction of what making and writing each row anew does.

A row follows from its job, of which a change makes a new version; from the code of the newest reason and the
partition, which are no part of its record; and from whether the job is shown as it is or as others see it.
Nothing in it depends on the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from rm.api.routes import JOBS_MOST
from rm.core.model.asked.demand import Demand
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.web.answers import row_values
from rm.web.callers.sight import Sight
from rm.web.ports import Reasons

IDLE_S = 60.0  # rows that nobody asked for in so long, or in twice that, are forgotten
MOST = 2 * JOBS_MOST  # rows: two full lists in turn come whole from what was kept
ROW_BYTES = 1 << 10  # a usual row has 350; a user may make one a hundred times as long
Row = tuple[Job, Demand | None, ReasonCode | None, str, bytes]  # what it was made of, and its text
_encode = msgspec.json.Encoder().encode


class KeptRows:
    """From any thread, but for `stay`. Of 2 * `most` rows at most, of `ROW_BYTES` each at most: a longer one
    is written anew each time. With the rows their jobs are kept alive, so that what is not asked for is
    forgotten soon."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # those used since the last turn, and of those used before the others; by the job's id as its owner
        # sees it, and by two negative numbers as others do, with its hosts and without
        self._new: dict[int, Row] = {}
        self._old: dict[int, Row] = {}
        self._timer: asyncio.TimerHandle | None = None

    def texts(self, found: Iterable[Job], reasons: Reasons, sight: Sight) -> list[bytes]:
        """The row of each job, as the caller may see it."""
        all_whole, user = sight.caller.operates, sight.caller.user
        new, old, most = self._new, self._old, self._most
        code_of, partition_of = reasons.codes(), reasons.partitions.get
        made: list[bytes] = []
        for job in found:
            key = number = job.id
            if not (all_whole or job.spec.user == user):
                key = -2 * number - sight.hosts
            row, is_new = new.get(key), False
            if row is None:
                row, is_new = old.get(key), True
            if (
                row is None
                or row[0] is not job
                or (row[1] is not None and code_of(job, row[1]) is not row[2])
                or partition_of(number, "") != row[3]
            ):
                row, is_new = _row(job, reasons, sight), True
            made.append(row[4])
            if not is_new:
                continue
            if len(row[4]) > ROW_BYTES:
                new.pop(key, None)  # an earlier one may have been short
                continue
            if len(new) >= most and key not in new:
                self._turn()
                new, old = self._new, self._old
            new[key] = row
        return made

    def stay(self) -> None:
        """They were used: in the event loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._turn()
        if self._old:
            self.stay()

    def _turn(self) -> None:
        self._new, self._old = {}, self._new


def _row(job: Job, reasons: Reasons, sight: Sight) -> Row:
    reason, partition = reasons.of_job(job), reasons.partitions.get(job.id, "")
    demand = job.demand if job.state is JobState.PENDING else None
    text = _encode(row_values(sight.job(job), reason, partition))
    return job, demand, None if reason is None else reason.code, partition, text
