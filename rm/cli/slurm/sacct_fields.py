"""The fields of `sacct`, with Slurm's names, widths and meanings. What rm does not measure is empty."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rm.cli.shown import elapsed_us, job_ref, moment
from rm.cli.slurm.jobs import clock, clock_limit, size
from rm.units import fold_hosts

if TYPE_CHECKING:
    from rm.api.jobs import Job


class Line(NamedTuple):
    """A job, or with `step` its script: of that the fields of a job alone are empty."""

    job: Job
    step: str = ""


class Field(NamedTuple):
    """`width` as Slurm prints it: to the left where it is negative."""

    name: str
    width: int
    text: Callable[[Line], Any]


def _of_job(text: Callable[[Job], Any]) -> Callable[[Line], Any]:
    """Empty for a step."""
    return lambda line: "" if line.step else text(line.job)


def _of_both(text: Callable[[Job], Any]) -> Callable[[Line], Any]:
    return lambda line: text(line.job)


def _shown(line: Line) -> str:
    return _with_step(job_ref(line.job), line)


def _with_step(text: str, line: Line) -> str:
    return f"{text}.{line.step}" if line.step else text


def nodes(job: Job) -> int:
    return len(job.hosts) or job.spec.hosts_min or 1


def cpus(job: Job) -> int:
    return job.spec.cpus_per_task * job.spec.ntasks


def _allocated(number: Callable[[Job], int]) -> Callable[[Job], int]:
    return lambda job: number(job) if job.hosts else 0


def tres(job: Job) -> str:
    spec = job.spec
    mem_bytes = spec.mem_bytes_per_host * nodes(job) or spec.mem_bytes_per_task * spec.ntasks
    gpus = spec.gpus_per_task * spec.ntasks + spec.gpus_per_host * nodes(job)
    parts = [f"billing={cpus(job)}", f"cpu={cpus(job)}"]
    parts += [f"gres/gpu={gpus}"] if gpus else []
    parts += [f"mem={size(mem_bytes)}"] if mem_bytes else []
    return ",".join([*parts, f"node={nodes(job)}"])


def memory(job: Job) -> str:
    spec = job.spec
    if spec.mem_bytes_per_host:
        return size(spec.mem_bytes_per_host * nodes(job))
    return size(spec.mem_bytes_per_task * spec.ntasks)


def _uid(job: Job) -> Any:
    try:
        return pwd.getpwnam(job.spec.user).pw_uid
    except KeyError:
        return ""


def _waited(job: Job) -> str:
    since_us = max(job.submitted_us, job.spec.begin_us or 0)
    until_us = job.started_us or job.ended_us or time.time_ns() // 1000
    return clock(max(0, until_us - since_us))


def _nothing(_: Line) -> str:
    return ""


FIELDS = (
    Field("Account", 10, _nothing),
    Field("AllocCPUS", 10, _of_both(_allocated(cpus))),
    Field("AllocNodes", 10, _of_both(_allocated(nodes))),
    Field("AllocTRES", 10, _of_both(lambda j: tres(j) if j.hosts else "")),
    Field("AveCPU", 10, _nothing),
    Field("AveRSS", 10, _nothing),
    Field("Cluster", 10, _nothing),
    Field("Comment", 14, _of_job(lambda j: j.spec.comment)),
    Field("Constraints", 19, _of_job(lambda j: j.spec.constraint)),
    Field("CPUTime", 10, _of_both(lambda j: clock(elapsed_us(j) * cpus(j)))),
    Field("CPUTimeRAW", 10, _of_both(lambda j: elapsed_us(j) * cpus(j) // 1_000_000)),
    Field("DerivedExitCode", 15, _of_job(lambda j: j.exit or "0:0")),
    Field("Elapsed", 10, _of_both(lambda j: clock(elapsed_us(j)))),
    Field("ElapsedRaw", 10, _of_both(lambda j: elapsed_us(j) // 1_000_000)),
    Field("Eligible", 19, _of_job(lambda j: moment(max(j.submitted_us, j.spec.begin_us or 0)))),
    Field("End", 19, _of_both(lambda j: moment(j.ended_us, "Unknown"))),
    Field("ExitCode", 8, _of_both(lambda j: j.exit or "0:0")),
    Field("JobID", -12, _shown),
    Field("JobIDRaw", -12, lambda line: _with_step(str(line.job.id), line)),
    Field("JobName", 10, lambda line: line.step or line.job.spec.name),
    Field("MaxRSS", 10, _nothing),
    Field("MaxVMSize", 10, _nothing),
    Field("NCPUS", 10, _of_both(cpus)),
    Field("NNodes", 8, _of_both(nodes)),
    Field("NodeList", 15, _of_both(lambda j: fold_hosts(j.hosts) or "None assigned")),
    Field("NTasks", 8, lambda line: 1 if line.step else ""),
    Field("Partition", 10, _of_job(lambda j: j.spec.partition)),
    Field("Planned", 10, _of_job(_waited)),
    Field("Priority", 10, _of_job(lambda j: j.spec.priority)),
    Field("QOS", 10, _nothing),
    Field("Reason", 22, _of_job(lambda j: j.reason.code if j.reason else "None")),
    Field("ReqCPUS", 8, _of_both(cpus)),
    Field("ReqMem", 10, _of_job(memory)),
    Field("ReqNodes", 8, _of_both(lambda j: j.spec.hosts_min or 1)),
    Field("ReqTRES", 10, _of_job(tres)),
    Field("Reserved", 10, _of_job(_waited)),
    Field("Restarts", 8, _of_job(lambda j: j.restarts)),
    Field("Start", 19, _of_both(lambda j: moment(j.started_us, "Unknown"))),
    Field("State", 10, _of_both(lambda j: j.state)),
    Field("Submit", 19, _of_both(lambda j: moment(j.submitted_us))),
    Field("SubmitLine", 20, _nothing),
    Field("SystemCPU", 10, _nothing),
    Field("Timelimit", 10, _of_job(lambda j: clock_limit(j.spec.time_limit_us))),
    Field("TimelimitRaw", 10, _of_job(
        lambda j: "UNLIMITED" if j.spec.time_limit_us is None else -(-j.spec.time_limit_us // 60_000_000))),
    Field("TotalCPU", 10, _nothing),
    Field("UID", 6, _of_job(_uid)),
    Field("User", 9, _of_job(lambda j: j.spec.user)),
    Field("UserCPU", 10, _nothing),
    Field("WorkDir", 20, _of_job(lambda j: j.spec.chdir)),
)  # fmt: skip
BY_NAME = {field.name.lower(): field for field in FIELDS}
