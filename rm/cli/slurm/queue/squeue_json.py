"""`squeue --json`: the fields of a job that rm knows, under the names and with the values of Slurm 22.05."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rm.cli.shown import ends_by_us
from rm.cli.slurm.jobs import dependency_of, gpus_on, hosts_of, output_path, spec_of
from rm.cli.slurm.queue.squeue_columns import gid, group, tres, uid, waited
from rm.units import fold_hosts

Fields = dict[str, Any]
VERSION = {"major": 22, "minor": 5, "micro": 8}  # of the fields
MIB = 1 << 20


def document(jobs: Sequence[Any]) -> Fields:
    """Of whole jobs."""
    return {
        "meta": {"plugin": {"name": "rm"}, "Slurm": {"version": VERSION, "release": "22.05.8"}},
        "errors": [],
        "jobs": [_job(job) for job in jobs],
    }


def _second(us: int | None) -> int:
    return 0 if us is None else us // 1_000_000


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _minutes(us: int | None) -> int | None:
    return None if us is None else -(-us // 60_000_000)


def _known(path: str) -> str:
    return "" if path == "(null)" else path


def _job(job: Any) -> Fields:
    spec, limit_us = spec_of(job), job.time_limit_us
    output = _known(output_path(spec.output, job.job))
    rest = job.array_rest or ""
    started = bool(job.hosts)
    dependency = dependency_of(job.job)
    return {
        "account": job.account,
        "array_job_id": job.array_job or (job.id if job.array_rest is not None else 0),
        "array_task_id": job.array_task,
        "array_max_tasks": job.array_limit,
        "array_task_string": f"{rest}%{job.array_limit}" if rest and job.array_limit else rest,
        "batch_flag": True,
        "batch_host": job.hosts[0] if started else "",
        "comment": job.comment,
        "cpus": job.cpus,
        "cpus_per_task": spec.cpus_per_task,
        "current_working_directory": job.chdir,
        "deadline": _second(spec.deadline_us),
        "dependency": "" if dependency == "(null)" else dependency,
        "eligible_time": _second(max(job.submitted_us, spec.begin_us or 0)),
        "end_time": _second(ends_by_us(job, limit_us)),
        "excluded_nodes": fold_hosts(spec.hosts_excluded),
        "exit_code": waited(job),
        "features": spec.constraint,
        "gres_detail": [gres for _, gres in gpus_on(job.job)],
        "group_id": _number(gid(job)),
        "group_name": group(job),
        "hold": job.job.held,
        "job_id": job.id,
        "job_resources": _resources(job) if started else {},
        "job_state": job.state,
        "licenses": spec.licenses,
        "max_nodes": spec.hosts_max,
        "memory_per_cpu": spec.mem_bytes_per_task // spec.cpus_per_task // MIB or None,
        "memory_per_node": spec.mem_bytes_per_host // MIB or None,
        "name": job.name,
        "nice": spec.nice or None,
        "node_count": len(job.hosts) or job.hosts_min,
        "nodes": hosts_of(job),
        "partition": job.partition,
        "prefer": spec.prefer,
        "priority": job.priority,
        "qos": job.qos,
        "requeue": spec.requeue,
        "required_nodes": fold_hosts(spec.hosts_only),
        "restart_cnt": job.job.restarts,
        "resv_name": spec.reservation,
        "standard_error": _known(output_path(spec.error, job.job)) if spec.error else output,
        "standard_input": spec.input or "/dev/null",
        "standard_output": output,
        "start_time": _second(job.started_us),
        "state_description": "",
        "state_reason": job.reason or "None",
        "submit_time": _second(job.submitted_us),
        "suspend_time": _second(job.suspended_us),
        "tasks": job.tasks,
        "tasks_per_node": spec.tasks_per_host,
        "time_limit": _minutes(limit_us),
        "time_minimum": _minutes(spec.time_min_us) or 0,
        "tres_alloc_str": tres(job) if started else "",
        "tres_per_node": f"gres:gpu:{spec.gpus_per_host}" if spec.gpus_per_host else "",
        "tres_per_task": f"gres:gpu:{spec.gpus_per_task}" if spec.gpus_per_task else "",
        "tres_req_str": tres(job),
        "user_id": _number(uid(job)),
        "user_name": job.user,
    }


def _resources(job: Any) -> Fields:
    spec = spec_of(job)
    tasks_on = {host: sum(task.host == host for task in job.job.tasks) for host in job.hosts}
    return {
        "nodes": hosts_of(job),
        "allocated_cpus": job.cpus,
        "allocated_hosts": len(job.hosts),
        "allocated_nodes": [
            {"nodename": host, "cpus_used": tasks * spec.cpus_per_task} for host, tasks in tasks_on.items()
        ],
    }
