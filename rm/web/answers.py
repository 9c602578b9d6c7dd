"""The core's values as answers of the HTTP API (`rm.api`), and those as responses.

What the daemon hands over as mappings is made an answer by `respond`: a field that the type lacks is not
sent, and a value that does not fit its type is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from rm.api.answer import Answer, Problem, Refused
from rm.api.hosts import Free, Gpu, Host, Nic
from rm.api.job_rows import JobRow, values_of
from rm.api.jobs import (
    Array,
    Dependency,
    EarlierAttempt,
    FullJob,
    FullSpec,
    HostUsed,
    Job,
    JobRows,
    Jobs,
    Progress,
    Spec,
    Task,
    Traffic,
)
from rm.api.reasons import (
    Alignment,
    Choice,
    Compared,
    JobAhead,
    Link,
    Plan,
    QueuePosition,
    Reason,
    Schedule,
    Start,
    Verdict,
    Why,
)
from rm.collector import uncollected
from rm.core.jobs.array_state import shown
from rm.core.model import choice as core_choice
from rm.core.model import host as core_host
from rm.core.model import job as core_job
from rm.core.model import progress as core_progress
from rm.core.model import reasons as core_reasons
from rm.core.model import snapshot as core_snapshot
from rm.core.model.described import Described
from rm.core.model.network import alignment as core_alignment
from rm.errors import RmError
from rm.typed import convert

T = TypeVar("T")
Explained = TypeVar("Explained", Plan, Why)
_encoder = msgspec.json.Encoder()
_STATES = {state: (state.value, state.short) for state in core_job.JobState}  # asked of each job of a list


def respond(answer: Answer, status: int = 200) -> web.Response:
    return web.Response(body=_encoder.encode(answer), status=status, content_type="application/json")


def respond_jobs(found: Iterable[Job], more: bool) -> web.Response:
    """As `Jobs`, each job written as soon as it is made: ten thousand at once would take tens of megabytes,
    which the daemon would keep."""
    head, _, tail = _encoder.encode(Jobs(jobs=(), more=more)).partition(b"[]")
    written = bytearray(head + b"[")
    for job in found:
        _encoder.encode_into(job, written, -1)
        written += b","
    if written.endswith(b","):
        del written[-1:]
    written += b"]" + tail
    return web.Response(body=bytes(written), content_type="application/json")


def respond_as(kind: type[Answer], fields: Mapping[str, Any], status: int = 200) -> web.Response:
    """With an answer of this kind out of mappings, dataclasses and plain values."""
    return respond(typed(fields, kind), status)


def refuse(status: int, kind: str, message: str, hint: str) -> web.Response:
    return respond(Refused(error=Problem(kind=kind, message=message, hint=hint)), status)


def refused(error: RmError) -> web.Response:
    told = Problem(
        kind=type(error).__name__, message=error.what, hint=error.hint, refusal=error.refusal or ""
    )
    return respond(Refused(error=told), error.http_status)


def typed(value: Any, kind: type[T]) -> T:
    """`kind` is a class: of those msgspec remembers how to make them."""
    return convert(value, kind, from_attributes=True)


# -- reasons


def reason_of(reason: core_reasons.Reason | None) -> Reason | None:
    if reason is None:
        return None
    return Reason(code=reason.code, message=reason.message, numbers=dict(reason.numbers))


def verdict_of(verdict: core_reasons.HostVerdict) -> Verdict:
    return Verdict(host=verdict.host, refused=reason_of(verdict.refused), scores=verdict.scores)


def alignment_of(alignment: core_alignment.Alignment | None) -> Alignment | None:
    if alignment is None:
        return None
    told = typed(replace(alignment, rejected=None), Alignment)
    return msgspec.structs.replace(told, rejected=reason_of(alignment.rejected))


def choice_of(choice: core_choice.Choice | None) -> Choice | None:
    if choice is None:
        return None
    return Choice(
        at_us=choice.at_us,
        placement_policy=choice.placement_policy,
        chosen_hosts=choice.chosen_hosts,
        refused_hosts=choice.refused_hosts,
        passed_over_hosts=choice.passed_over_hosts,
        compared=[
            Compared(
                hosts=one.hosts,
                host_count=one.host_count,
                score=one.score,
                alignment_score=one.alignment_score,
                note=one.note,
                taken=one.taken,
                rejected=reason_of(one.rejected),
            )
            for one in choice.compared
        ],
        compared_candidates=choice.compared_candidates,
    )


def explanation(answer: Mapping[str, Any], kind: type[Explained]) -> Explained:
    """The answers of why and plan, of core values."""
    fields = {
        **answer,
        "reasons": [reason_of(reason) for reason in answer["reasons"]],
        "verdicts": [verdict_of(verdict) for verdict in answer["verdicts"]],
        "alignment": alignment_of(answer["alignment"]),
    }
    if (start := answer.get("start")) is not None:
        fields["start"] = typed(start, Start)
    if "choice" in answer:
        fields["choice"] = choice_of(answer["choice"])
    if (place := answer.get("queue_position")) is not None:
        ahead = [JobAhead(job=job.id, user=job.spec.user) for job in place.ahead]
        fields["queue_position"] = QueuePosition(
            position=place.position, jobs_ahead=place.jobs_ahead, ahead=ahead
        )
    if "chain" in answer:
        chain = answer["chain"]
        fields |= {"chain": [typed(one, Link) for one in chain.links], "chain_left_out": chain.left_out}
    return typed(fields, kind)


# -- jobs


def job_of(job: core_job.Job, progress: core_progress.Progress | None = None, partition: str = "") -> Job:
    """As the caller may see it: `rm.web.callers.sight`. `partition`: of several the one that it runs in, "" =
    it has no hosts or did not ask for several."""
    state = shown(job)
    return Job(
        id=job.id,
        spec=typed(job.spec, Spec),
        submitted_us=job.submitted_us,
        state=state.value,
        held=job.held,
        attempt=job.attempt,
        tasks=[typed(task, Task) for task in job.tasks],
        go=job.go,
        allowed_us=job.allowed_us,
        mailed_share=job.mailed_share,
        suspended_us=job.suspended_us,
        stood_us=job.stood_us,
        yields_to=job.yields_to,
        account=job.account,
        qos=job.qos,
        started_us=job.started_us,
        ended_us=job.ended_us,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        reason=reason_of(job.reason),
        traffic=None if job.traffic is None else typed(job.traffic, Traffic),
        cooperative=job.cooperative,
        ending=None if job.ending is None else job.ending.value,
        launch_failures=job.launch_failures,
        losses=job.losses,
        requeues=job.requeues,
        not_before_us=job.not_before_us,
        served_us=job.served_us,
        avoid=job.avoid,
        history=job.history,
        earlier=[typed(one, EarlierAttempt) for one in job.earlier] if job.earlier else (),
        dependencies=[typed(one, Dependency) for one in job.dependencies] if job.dependencies else (),
        array=None if job.array is None else typed(job.array, Array),
        array_job=job.array_job,
        array_task=job.array_task,
        updates=job.updates,
        preempted_by=job.preempted_by,
        waited=job.waited,
        slowed=job.slowed,
        saved_us=job.saved_us,
        used=[typed(one, HostUsed) for one in job.used] if job.used else (),
        restarts=job.restarts,
        short_state=state.short,
        exit=None if job.exit_code is None else f"{job.exit_code}:{job.exit_signal or 0}",
        hosts=list(dict.fromkeys(task.host for task in job.tasks)) if job.tasks else (),
        progress=UNSET if progress is None else _progress(progress),
        partition=partition or UNSET,
    )


def respond_rows(
    found: Iterable[tuple[core_job.Job, core_reasons.Reason | None, str]], more: bool
) -> web.Response:
    """Of each job, as the caller may see it, the newest reason and the partition, as of `job_of`."""
    with uncollected():
        rows = [row_values(job, reason, partition) for job, reason, partition in found]
        # written as rows are, of which making ten thousand takes longer than writing them
        return respond(JobRows(columns=JobRow._fields, rows=cast(list[JobRow], rows), more=more))


def respond_written_rows(rows: Iterable[bytes], more: bool) -> web.Response:
    """The same of rows that are written already."""
    head, _, tail = _encoder.encode(JobRows(columns=JobRow._fields, rows=(), more=more)).partition(b"[]")
    body = b"".join((head, b"[", b",".join(rows), b"]", tail))
    return web.Response(body=body, content_type="application/json")


def row_values(job: core_job.Job, reason: core_reasons.Reason | None, partition: str) -> tuple[Any, ...]:
    """What is written of a job as a row."""
    hosts = list(dict.fromkeys(task.host for task in job.tasks)) if job.tasks else ()
    state, short_state = _STATES[shown(job)]
    # as `value`, which takes 3 ms more for ten thousand rows
    code = "" if reason is None else reason.code._value_
    dropped_for = "" if job.reason is None else job.reason.code._value_
    return values_of(job, state, short_state, hosts, code, partition, dropped_for)


def full_job_of(
    found: Described,
    private: bool,
) -> FullJob:
    """One job; `private`, for its owner and administrators: environments carry secrets."""
    told = msgspec.structs.asdict(job_of(found.job, found.progress, partition=found.partition))
    spec = msgspec.structs.asdict(told["spec"])
    if private:
        own = found.job.spec
        spec |= {"script": own.script, "script_args": own.script_args, "env": dict(own.env)}
        spec["submit_line"] = own.submit_line
    aligned = UNSET if found.schedule is None else typed(found.schedule, Schedule)
    return FullJob(**told | {"spec": FullSpec(**spec), "schedule": aligned})


def _progress(progress: core_progress.Progress) -> Progress | UnsetType:
    if progress.remaining_us is None:
        return UNSET
    return Progress(served_us=progress.served_us, remaining_us=progress.remaining_us)


# -- hosts


def host_of(host: core_host.Host, variables: bool = False) -> Host:
    """Inventory variables are for administrators: they may hold passwords."""
    return Host(
        name=host.name,
        zone=host.zone,
        address=host.address,
        port=host.port,
        login=host.login,
        cpus=host.cpus,
        mem_bytes=host.mem_bytes,
        gpus=[typed(gpu, Gpu) for gpu in host.gpus],
        nic_bps=host.nic_bps,
        interface=host.interface,
        found=host.found,
        nics=[typed(nic, Nic) for nic in host.nics],
        partitions=host.partitions,
        features=sorted(host.all_features),
        state=host.state.value,
        drained_by=host.drained_by,
        drained_us=host.drained_us,
        unwritable=host.unwritable,
        reason=host.reason,
        boot_id=host.boot_id,
        agent_version=host.agent_version,
        unenforced=host.unenforced,
        unshaped=host.unshaped,
        containers=host.containers,
        machine=host.machine,
        kernel=host.kernel,
        booted_us=host.booted_us,
        since_us=host.since_us,
        schedulable=host.schedulable,
        variables=dict(host.variables) if variables else UNSET,
    )


def listed_host(
    host: core_host.Host, free: core_snapshot.Free | None, jobs: Sequence[int], variables: bool
) -> Host:
    room = None if free is None else typed(free, Free)
    return msgspec.structs.replace(host_of(host, variables), free=room, jobs=tuple(jobs))
