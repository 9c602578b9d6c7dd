"""The elements of job arrays: how one becomes a job of its own, and how the array follows what becomes of it.

The array's record is PENDING while elements wait, RUNNING until all have ended, and then as they have ended.
So whatever waits for a job (a dependency, a user) waits for an array the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rm.arrays import each, mask, parse, text_of
from rm.core.jobs.array_state import state_of
from rm.core.jobs.state import ClusterState, touch
from rm.core.model.asked.array import Array
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot
from rm.errors import IllegalTransition, Refusal
from rm.shown_ids import SHOWN

S = JobState
START_US = 5_000  # what a host takes beside the run time, at least
_ENDED_AS = {S.COMPLETED: "completed", S.CANCELLED: "cancelled"}


class Changing(Protocol):
    """What changes the state: `rm.core.jobs.changes.Context`."""

    @property
    def state(self) -> ClusterState: ...

    @property
    def now_us(self) -> int: ...

    def put(self, job: Job) -> Job: ...


def array_of(spec: JobSpec) -> Array | None:
    """The array that is submitted with this specification, all of whose elements wait."""
    if not spec.array:
        return None
    asked = parse(spec.array)
    waiting = text_of(asked.mask)
    return Array(waiting=waiting, held=waiting if spec.hold else "", limit=asked.limit)


def element_of(array: Job, task: int, job_id: int) -> Job:
    """An element as a job of its own that is about to be placed."""
    return replace(
        array,
        id=job_id,
        array=None,
        array_job=array.id,
        array_task=task,
        dependencies=tuple(one.of_element(task) for one in array.dependencies),
        held=False,
        admin_held=False,
        key="",
        started_us=None,
        reason=None,
        history=array.history[:1],
        touched_us=0,
    )


def shown_element(array: Job, task: int) -> Job | None:
    """An element without a job of its own, as users see it; None: the array has none of this index."""
    assert array.array is not None
    of = array.array.set_of(task)
    if not of:
        return None
    waits = of == "waiting"
    held = waits and bool(array.array.has("held") >> task & 1)
    state = S.PENDING if waits else S.CANCELLED
    ended_us = None if waits else array.ended_us or array.submitted_us
    return replace(
        array,
        array=None,
        array_job=array.id,
        array_task=task,
        dependencies=tuple(one.of_element(task) for one in array.dependencies),
        held=held,
        admin_held=held and bool(array.array.has("admin_held") >> task & 1),
        state=state,
        started_us=None,
        ended_us=ended_us,
        exit_code=None,
        exit_signal=None,
    )


def begin(ctx: Changing, array_id: int, task: int, job_id: int) -> Job:
    """Let a waiting element have a job of its own."""
    array = ctx.state.jobs.get(array_id)
    if array is None or array.array is None or not array.ready >> task & 1:
        raise IllegalTransition(f"Job {array_id}_{task} does not wait to be placed.")
    ctx.state.next_job = max(ctx.state.next_job, job_id + 1)
    waited = ctx.state.waits.of(array, ctx.now_us)
    job = ctx.put(replace(element_of(array, task, job_id), waited=waited))
    left = ctx.state.jobs[array_id]
    if not left.ready and array_id in ctx.state.pending:
        # the others wait for something else than room: the next pass says for what
        ctx.state.enqueue(array_id)
    return job


def follow(ctx: Changing, old: Job | None, job: Job) -> None:
    """Keep the array in step with one of its elements, which has changed."""
    assert job.array_task is not None
    ctx.state.elements.setdefault(job.array_job, {})[job.array_task] = job.id
    record = ctx.state.jobs.get(job.array_job)
    array = record.array if record is not None else None
    if record is None or array is None:
        return  # its row was damaged, and set aside: the element goes on as a job of its own
    to, was = _set_of(job), None if old is None else _set_of(old)
    if to == was:
        return
    array = array.moved(1 << job.array_task, to)
    if job.state.final and job.started_us is not None:
        array = array.measured(_turn_us(ctx.state, job))
    if job.state.final and to != "completed":
        array = _with_exit(array, job)
    elif not (array.failed or array.cancelled):
        array = replace(array, exit_code=0, exit_signal=0)
    put_array(ctx, record, array, ended_us=job.ended_us)
    if was == "running" and array.limit:
        let_look(ctx, job.array_job)


def let_look(ctx: Changing, array_id: int) -> None:
    """One more of the elements may run: those that wait are looked at again. Hundreds end in a turn, and
    100,000 may wait as jobs of their own."""
    state = ctx.state
    if array_id in state.fresh_arrays:
        return
    state.fresh_arrays.add(array_id)
    array = state.jobs[array_id].array
    assert array is not None
    if array.waiting:
        state.enqueue(array_id)
    if array.requeued:
        jobs = state.elements[array_id]
        for task in each(array.has("requeued")):
            if jobs.get(task) in state.pending:
                state.enqueue(jobs[task])


def put_array(ctx: Changing, record: Job, array: Array, story: str = "", ended_us: int | None = None) -> Job:
    """A new version of an array's record, in the state that its elements make it."""
    now_us, state = ctx.now_us, state_of(array)
    admin_held = array.all_held and array.kept == array.has("held")
    record = replace(record, array=array, held=array.all_held, admin_held=admin_held)
    if story:
        record = touch(record, now_us, story)
    if state is not record.state:
        if state.final:
            code = (array.exit_code, array.exit_signal) if array.completed or array.failed else (None, None)
            ended_us = max(now_us, ended_us or 0)
            record = touch(
                record, now_us, f"ended {state}", ended_us=ended_us, exit_code=code[0], exit_signal=code[1]
            )
        elif record.state.final:
            record = replace(record, ended_us=None, exit_code=None, exit_signal=None, reason=None)
        record = replace(record, state=state)
    if not array.waiting:
        # `after` asks when all have started: when the last of them has got its hosts
        if record.started_us is None and (array.running or array.completed or array.failed):
            record = replace(record, started_us=now_us)
        ctx.state.pending.pop(record.id, None)
        ctx.state.fresh.pop(record.id, None)
        ctx.state.reasons.pop(record.id, None)
    elif record.id not in ctx.state.pending:
        ctx.state.enqueue(record.id)
    return ctx.put(record)


def drop(ctx: Changing, record: Job, waiting: int, reason: Reason) -> None:
    """End these waiting elements before they have started. The record keeps why the last ones were ended so:
    why others wait is no part of it."""
    assert record.array is not None
    array = record.array.moved(waiting, "dropped")
    put_array(ctx, replace(record, reason=reason), array, f"{reason.message}: elements {short(waiting)}")


def at_once(array_id: int, array: Array, behind: Mapping[int, int]) -> int:
    """How many elements of an array can run at the same time now: each that is placed, but of a slice one."""
    return array.has("running").bit_count() - behind.get(array_id, 0)


def limited(job: Job, snapshot: Snapshot, more: int = 0) -> Reason | None:
    """Why the limit of its array keeps a job from starting, of which `more` are about to run beside it; None:
    it does not."""
    record = job if job.array_task is None else snapshot.jobs.get(job.array_job)
    array = record.array if record is not None else None
    if array is None or not array.limit:
        return None
    assert record is not None
    running = at_once(record.id, array, snapshot.behind) + more
    if running < array.limit:
        return None
    said = f"{running} elements of job array {record.id} run, and at most {array.limit} may at a time"
    return Reason(ReasonCode.ARRAY_LIMIT, said, (("running", running), ("limit", array.limit)))


def chosen_of(record: Job, array_tasks: str) -> int:
    """The elements that a request names.

    Raises:
        IllegalTransition: the array has not all of them.
    """
    assert record.array is not None
    whole = parse(record.spec.array).mask
    if not array_tasks:
        return whole
    chosen = mask(array_tasks)
    if beyond := chosen & ~whole:
        raise IllegalTransition(
            f"Job array {record.id} has no element {text_of(beyond)[:80]}.", refusal=Refusal.UNKNOWN_JOB
        )
    return chosen


def short(indices: int) -> str:
    """For a sentence."""
    text = text_of(indices)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({indices.bit_count()})"


def _turn_us(state: ClusterState, job: Job) -> int:
    """How long an ended element kept its place: in a slice, since the one before it had ended."""
    ended_us, before = job.ended_us or 0, state.jobs.get(job.id - 1)
    began_us = (job.started_us or ended_us) - START_US
    if job.slice_of and before is not None and before.slice_of == job.slice_of and before.ended_us:
        began_us = min(job.started_us or ended_us, before.ended_us)
    return max(0, ended_us - began_us)


def _set_of(job: Job) -> str:
    if job.state is S.PENDING:
        return "requeued"
    if job.occupies:
        return "running"
    return _ENDED_AS.get(job.state, "failed")


def _with_exit(array: Array, job: Job) -> Array:
    """Source: sbatch(1), --wait: the exit code of an array is the highest of its elements'."""
    code, signal = job.exit_code or 0, job.exit_signal or 0
    if (128 + signal if signal else code) <= (
        128 + array.exit_signal if array.exit_signal else array.exit_code
    ):
        return array
    return replace(array, exit_code=code, exit_signal=signal)
