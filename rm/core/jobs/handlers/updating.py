"""What changes of a job after its submission: `rmx set`, on the job's own record or its array's.

Before the event comes, its maker has checked that some state of the cluster could take the changed job; what
depends on the moment is checked here.
"""

from __future__ import annotations

from rm.arrays import JobId, each
from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.dependents import asked_for
from rm.core.jobs.elements import chosen_of, element_of, short
from rm.core.jobs.handlers.allowed import let_run
from rm.core.jobs.handlers.circles import refuse_circle
from rm.core.jobs.handlers.submitted_limits import refuse_moved
from rm.core.jobs.state import ClusterState, touch
from rm.core.model.acceptance import accept
from rm.core.model.asked.job_update import GIVEN, SAID_ONLY, WHILE_RUNNING, JobUpdate
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.replacing import replace
from rm.core.sharing.accounts import account_for
from rm.core.sharing.partitions import refuse_closed, taking
from rm.core.sharing.qos import qos_for
from rm.errors import IllegalTransition, UsageError

OWN_MOST = 1_000  # elements of an array that wait as jobs of their own, as long as changes make some of them


def update(ctx: Context, job: Job, e: ev.JobUpdated) -> None:
    """Change a job that waits, or of one that runs what may still change; an element of an array by itself.

    Raises:
        IllegalTransition: the job's state or a limit does not allow it, or the job would wait for itself.
    """
    _take(ctx, job, _renewed(ctx.state, job, e, ctx.now_us), e)


def update_array(ctx: Context, record: Job, e: ev.JobUpdated) -> None:
    """Change a whole array: its elements share the specification. What had been changed of some of them
    alone is as of the others where this change sets the same.

    Raises:
        IllegalTransition: the array has ended, elements run that could not have got the change, or the array
            would wait for itself.
    """
    array = record.array
    assert array is not None
    if not array.unfinished:
        raise IllegalTransition(f"Job {record.id} has ended already.")
    own = [ctx.state.jobs[i] for i in ctx.state.elements.get(record.id, {}).values() if i in ctx.state.jobs]
    placed = [job for job in own if job.occupies]
    fixed = sorted(GIVEN & e.update.changed.keys())
    if placed and fixed:
        raise IllegalTransition(
            f"Elements {short(array.has('running'))} of job {record.id} run, with what was asked for: "
            f"{', '.join(fixed)} cannot change now.",
            "Hold the array, and change it when they have ended.",
        )
    if e.update.dependency is not None and any(job.attempt and not job.state.final for job in own):
        raise IllegalTransition(f"Elements of job {record.id} have started: its dependencies are settled.")
    for job in placed:
        _refuse_raise(job, e)
    whole = _new_version(ctx.state, record, _changed(record.spec, e), e, ctx.now_us)
    renewed = [(job, _shared(ctx.state, job, whole.spec, e, ctx.now_us)) for job in own]
    refuse_moved(ctx.state, [(record, whole), *renewed])
    _put(ctx, record, whole, e)
    for job, new in renewed:
        _take(ctx, job, new, e)


def refuse_many(record: Job, leave: int) -> None:
    """Of an array from which these waiting elements are to leave. A change of the whole array goes through
    all that wait as jobs of their own, in one step.

    Raises:
        IllegalTransition: they would be too many.
    """
    assert record.array is not None
    own = record.array.has("requeued") | leave
    if leave and own.bit_count() > OWN_MOST:
        raise IllegalTransition(
            f"{own.bit_count()} elements of job array {record.id} would wait as jobs of their own, as those "
            f"that were requeued do, and at most {OWN_MOST} may.",
            f"Change the whole array, {record.id}, or fewer elements.",
        )


def update_elements(ctx: Context, record: Job, e: ev.JobUpdated) -> None:
    """Change some elements of an array alone. One that waits in the array's record leaves it, and pends as a
    job of its own from then on. Elements that cannot take the change do not keep others from it.

    Raises:
        IllegalTransition: none of them can take it, or too many would wait so.
    """
    array, chosen = record.array, chosen_of(record, e.array_tasks)
    assert array is not None
    refuse_many(record, array.has("waiting") & chosen)
    leave = enumerate(each(array.has("waiting") & chosen), e.first_job)
    split = [
        replace(
            element_of(record, task, job_id),
            held=bool(array.has("held") >> task & 1),
            admin_held=bool(array.has("admin_held") >> task & 1),
        )
        for job_id, task in leave
    ]
    stay = each((array.has("requeued") | array.has("running")) & chosen)
    own = [ctx.state.jobs[ctx.state.elements[record.id][task]] for task in stay]
    refused, done = None, 0
    for job in [*split, *own]:
        try:
            new = _renewed(ctx.state, job, e, ctx.now_us)
        except IllegalTransition as error:
            refused = refused or error
            continue
        done += 1
        ctx.state.next_job = max(ctx.state.next_job, job.id + 1)
        _take(ctx, job, new, e)
    if not done:
        raise refused or IllegalTransition(f"Job {JobId(record.id, e.array_tasks)} has ended already.")


def _renewed(state: ClusterState, job: Job, e: ev.JobUpdated, now_us: int) -> Job:
    """The job as it is after the change."""
    spec = _changed(job.spec, e)
    if job.state is not JobState.PENDING:
        _refuse_fixed(job, e)
        _refuse_raise(job, e)
    new = _new_version(state, job, spec, e, now_us)
    refuse_moved(state, [(job, new)])
    if job.array_task is None:
        return new
    own = e.update if e.update.partition is None else replace(e.update, partition=new.spec.partition)
    return replace(new, own=own if job.own is None else job.own.and_then(own))


def _shared(state: ClusterState, job: Job, spec: JobSpec, e: ev.JobUpdated, now_us: int) -> Job:
    """An element as it is after a change of its array."""
    own = None if job.own is None else job.own.without(e.update)
    if job.state.final and job.spec.dependency != spec.dependency:
        # it shows for what it waited, or was cancelled
        own = (own or JobUpdate()).and_then(JobUpdate(dependency=job.spec.dependency))
        return replace(job, spec=own.applied(spec), own=own)
    told = (e.update.dependency, e.update.account, e.update.qos, e.update.partition)
    if own is None and (job.state is not JobState.PENDING or not any(one is not None for one in told)):
        return replace(job, spec=spec, own=None)
    if own is not None:
        spec = own.applied(spec)
        _accept(spec)
    new = replace(job, spec=spec, own=own)
    if job.state is JobState.PENDING:
        new = _accounted(state, new, e)
    if e.update.dependency is not None and job.state is JobState.PENDING:
        new = _depending(state, new, e, now_us)
    return new


def _take(ctx: Context, old: Job, new: Job, e: ev.JobUpdated) -> None:
    changed = _put(ctx, old, new, e)
    if changed.occupies:
        if e.update.time_limit_us is not None:
            changed = let_run(ctx, changed)
        ctx.state.see_again(changed)


def _changed(spec: JobSpec, e: ev.JobUpdated) -> JobSpec:
    spec = e.update.applied(spec)
    _accept(spec)
    return spec


def _accept(spec: JobSpec) -> None:
    try:
        accept(spec, runs=False)  # another change may have come between the question and this
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint, error.refusal) from None


def _refuse_fixed(job: Job, e: ev.JobUpdated) -> None:
    fixed = sorted(e.update.changed.keys() - WHILE_RUNNING)
    if fixed:
        raise IllegalTransition(
            f"Job {job.ref} is {job.state}: {', '.join(fixed)} cannot change any more.",
            f"Of a job that runs {', '.join(sorted(WHILE_RUNNING))} can.",
        )


def _refuse_raise(job: Job, e: ev.JobUpdated) -> None:
    """Source: scontrol(1), "TimeLimit": only administrators raise the limit of a job that runs."""
    new, old = e.update.time_limit_us, job.spec.time_limit_us
    if new is None or e.may_raise or job.state is JobState.PENDING or old is None:
        return
    if new == 0 or new > old:
        raise IllegalTransition(
            f"Job {job.ref} runs: only an administrator may raise its time limit.",
            "Its user may lower it, or requeue the job and raise it then.",
        )


def _new_version(state: ClusterState, job: Job, spec: JobSpec, e: ev.JobUpdated, now_us: int) -> Job:
    """The job with another specification, and with what was derived from the old one.

    Raises:
        IllegalTransition: it would wait for itself.
    """
    new = touch(job, now_us, f"changed by {e.by}: {e.update}", spec=spec, updates=job.updates + 1)
    if e.update.dependency is not None:
        new = _depending(state, new, e, now_us)
    if job.traffic is job.spec.traffic:
        new = replace(new, traffic=spec.traffic)
    return _accounted(state, new, e)


def _accounted(state: ClusterState, job: Job, e: ev.JobUpdated) -> Job:
    """The job for the account, in the QOS and in the partitions that it names now, where they were changed.

    Raises:
        IllegalTransition: its user is not in the account, the QOS is not for it, or no partition takes it.
    """
    spec, account, qos = job.spec, job.account, job.qos
    update = e.update
    if update.account is None and update.qos is None and update.partition is None:
        return job
    try:
        if e.update.account is not None:
            account = account_for(state.accounts, spec.user, spec.account)
        if e.update.account is not None or e.update.qos is not None:
            qos = qos_for(state.accounts, account, spec.qos)
        if update.partition is None:  # it waits there already
            refuse_closed(state.accounts, spec.partitions, account, qos)
        else:
            spec = taking(state.accounts, spec, account, qos)
        return replace(job, spec=spec, account=account, qos=qos)
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint, error.refusal) from None


def _depending(state: ClusterState, job: Job, e: ev.JobUpdated, now_us: int) -> Job:
    """The job with the dependencies that its specification has now; of an element changed with its array it
    is known that it does not come to wait for itself."""
    asked = asked_for(job.spec, e.past, now_us)
    if job.array_task is not None:
        asked = tuple(one.of_element(job.array_task) for one in asked)
    new = replace(job, dependencies=asked)
    if job.id == e.job or e.array_tasks:
        refuse_circle(state, new)
    return new


def _put(ctx: Context, job: Job, new: Job, e: ev.JobUpdated) -> Job:
    """The new version of the job takes the old one's place."""
    state = ctx.state
    ctx.put(new)
    if new.state is JobState.PENDING:
        state.pending[new.id] = None  # an element may have left its array
    state.dependents.changed(job, new)
    if new.state is JobState.PENDING or new.array is not None:
        if not e.update.changed.keys() <= SAID_ONLY:
            state.changed[new.id] = None
            if new.id in state.aside:
                state.capacity_version += 1  # what was set aside for it may be for others now
        state.reasons.pop(new.id, None)
        if new.id in state.pending:
            state.enqueue(new.id)
    return new
