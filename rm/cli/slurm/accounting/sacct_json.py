"""`sacct --json`: the fields that rm knows, where Slurm 22.05 has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rm.cli.shown import elapsed_us
from rm.cli.slurm.accounting.sacct_fields import Line, cpus, step_elapsed_us, tres
from rm.cli.slurm.users import group_of
from rm.units import fold_hosts, parse_hosts

if TYPE_CHECKING:
    from rm.api.job_steps import JobStep

Fields = dict[str, Any]
PARTS = ("seconds", "microseconds")


def document(lines: Iterable[Line]) -> Fields:
    """Each job with the lines of its script and its steps."""
    jobs: dict[int, Fields] = {}
    for line in lines:
        found = jobs.get(line.job.id) or jobs.setdefault(line.job.id, _job(line))
        if line.step:
            found["steps"].append(_step(line))
    return {"meta": {"plugin": {"name": "rm"}}, "errors": [], "jobs": list(jobs.values())}


def _seconds(us: int | None) -> int:
    return 0 if us is None else us // 1_000_000


def _exit(code: int, signal: int) -> Fields:
    if signal:
        return {"status": "SIGNALED", "return_code": code, "signal": {"signal_id": signal}}
    return {"status": "ERROR" if code else "SUCCESS", "return_code": code}


def _exit_of(text: str | None) -> Fields:
    code, _, signal = (text or "0:0").partition(":")
    return _exit(int(code), int(signal or 0))


def _tres(text: str) -> list[Fields]:
    found = []
    for part in filter(None, text.split(",")):
        name, _, count = part.partition("=")
        kind, _, what = name.partition("/")
        found.append(
            {"type": kind, "name": what or None, "count": int(count) if count.isdecimal() else count}
        )
    return found


def _job(line: Line) -> Fields:
    job, spec = line.job, line.job.spec
    limit_us = spec.time_limit_us
    task = job.array_task
    return {
        "job_id": job.id,
        "name": spec.name,
        "user": spec.user,
        "group": group_of(job.spec.user) or "",
        "account": job.account,
        "association": {"account": job.account, "cluster": "", "partition": None, "user": spec.user},
        "array": {
            "job_id": job.array_job or (job.id if job.array is not None else 0),
            "limits": {"max": {"running": {"tasks": job.array.limit if job.array is not None else 0}}},
            "task": None if job.array is None else job.array.waiting or job.array.dropped,
            "task_id": task,
        },
        "allocation_nodes": len(job.hosts),
        "nodes": fold_hosts(job.hosts) or "None assigned",
        "partition": job.partition or spec.partition,
        "priority": spec.priority,
        "qos": job.qos,
        "comment": {"administrator": None, "job": spec.comment, "system": None},
        "constraints": spec.constraint,
        "exit_code": _exit_of(job.exit),
        "derived_exit_code": _exit_of(job.exit),
        "required": {"CPUs": cpus(job), "memory": (spec.mem_bytes_per_host or spec.mem_bytes_per_task) >> 20},
        "state": {"current": job.state, "reason": job.reason.code if job.reason else "None"},
        "time": {
            "elapsed": _seconds(elapsed_us(job)),
            "eligible": _seconds(max(job.submitted_us, spec.begin_us or 0)),
            "end": _seconds(job.ended_us),
            "start": _seconds(job.started_us),
            "submission": _seconds(job.submitted_us),
            "limit": None if limit_us is None else -(-limit_us // 60_000_000),
        },
        "tres": {"allocated": _tres(tres(job)) if job.hosts else [], "requested": _tres(tres(job))},
        "working_directory": spec.chdir,
        "steps": [],
    }


def _step(line: Line) -> Fields:
    told, job = line.told, line.job
    hosts = parse_hosts(told.hosts) if told is not None else list(job.hosts)
    if told is None and _runs_once(line):
        hosts = hosts[:1]
    return {
        "step": {"job_id": job.id, "id": line.step, "name": line.step if told is None else told.name},
        "state": job.state if told is None else told.state,
        "exit_code": _exit_of(job.exit)
        if told is None
        else _exit(told.exit_code or 0, told.exit_signal or 0),
        "nodes": {"count": len(hosts), "range": fold_hosts(hosts), "list": hosts},
        "tasks": {"count": 1 if told is None else told.tasks},
        "time": {
            "elapsed": _seconds(elapsed_us(job) if told is None else step_elapsed_us(told)),
            "end": _seconds((told or job).ended_us),
            "start": _seconds((told or job).started_us),
            **_processors(told),
        },
    }


def _processors(told: JobStep | None) -> Fields:
    if told is None or told.used is None:
        return {}
    times = {"user": told.used.user_us, "system": told.used.system_us}
    times["total"] = sum(times.values())
    return {name: dict(zip(PARTS, divmod(us, 1_000_000), strict=True)) for name, us in times.items()}


def _runs_once(line: Line) -> bool:
    return line.job.spec.launch == "batch"
