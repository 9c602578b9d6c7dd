"""`squeue --steps`: the scripts and steps of the jobs that run, one a line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rm import arrays
from rm.cli.array_elements import tasks_of
from rm.cli.formats import Column, by_letters, by_names
from rm.cli.shown import elapsed_us
from rm.cli.slurm.jobs import NONE, hosts_of, moment
from rm.cli.slurm.queue.squeue_columns import uid
from rm.cli.slurm.queue.squeue_sort import sorted_by, sorting
from rm.units import fold_hosts, format_elapsed, parse_hosts

if TYPE_CHECKING:
    from rm.api.job_rows import JobRow
    from rm.api.job_steps import JobStep
    from rm.cli.slurm.words import Given

USUAL = "%.15i %.8j %.9P %.8u %.9M %N"
STATES = "RUNNING,SUSPENDED"
BATCH = "batch"
NOT_ASKED = "N/A"


class Shown(NamedTuple):
    """A job's script, or what its `srun` runs, as it is `told`."""

    job: JobRow
    whole: Any
    told: JobStep | None = None

    @property
    def number(self) -> str:
        return BATCH if self.told is None else str(self.told.step)

    @property
    def elapsed_us(self) -> int:
        return elapsed_us(self.job) if self.told is None else time.time_ns() // 1000 - self.told.started_us


def _hosts(one: Shown) -> str:
    if one.told is not None:
        return one.told.hosts
    first_alone = one.whole.spec.launch == BATCH
    return fold_hosts(one.job.hosts[:1]) if first_alone else hosts_of(one.job)


def _ref(one: Shown) -> str:
    job = one.job
    ref = job.id if job.array_task is None else f"{job.array_job}_{job.array_task}"
    return f"{ref}.{one.number}"


# Source: squeue(1) of Slurm 22.05, "-o", the letters that are "Valid for job steps"
COLUMNS = {
    "i": Column("STEPID", _ref, "StepID"),
    "A": Column("TASKS", lambda one: one.told.tasks if one.told else 1, "NumTasks"),
    "j": Column("NAME", lambda one: one.number if one.told is None else one.told.name, "StepName"),
    "l": Column("TIME_LIMIT", lambda one: "UNLIMITED", "TimeLimit"),
    "P": Column("PARTITION", lambda one: one.job.partition or NONE, "Partition"),
    "u": Column("USER", lambda one: one.job.user, "UserName"),
    "U": Column("UID", lambda one: uid(one.job), "UserID"),
    "M": Column("TIME", lambda one: format_elapsed(one.elapsed_us), "TimeUsed",
                order=lambda one: one.elapsed_us),
    "S": Column("START_TIME", lambda one: moment(one.told.started_us if one.told else one.job.started_us),
                "StartTime"),
    "N": Column("NODELIST", _hosts, "Nodes"),
}  # fmt: skip
# those of -O alone
NAMED = {
    "array": Column("ARRAY_JOB_ID", lambda one: one.job.array_job or NOT_ASKED, "ArrayJobID"),
    "element": Column(
        "ARRAY_TASK_ID", lambda one: NOT_ASKED if one.job.array_task is None else one.job.array_task,
        "ArrayTaskID",
    ),
    "job": Column("JOB_ID", lambda one: one.job.id, "JobID"),
    "state": Column("STATE", lambda one: one.told.state if one.told else one.job.state, "StepState"),
    "cpus": Column("NUM_CPUS", lambda one: one.told.cpus if one.told else one.job.cpus, "NumCPUs"),
}  # fmt: skip


def lines(given: Given, running: Sequence[Any]) -> list[str]:
    """The header, unless it is not wanted, and a line each. `running`: whole jobs."""
    from rm.client import Client

    options = given.options
    if long := options.get("Format"):
        form = by_names(long, {**COLUMNS, **NAMED})
    else:
        form = by_letters(options.get("format") or USUAL, COLUMNS)
    sort = options.get("sort", "")
    sorting(sort, COLUMNS)  # it is refused before anything is asked
    named = options.get("steps", "")
    steps = dict.fromkeys(word.strip() for word in named.split(",") if word.strip())
    jobs = {job.id: job for job in running if _wanted(job, given, list(steps))}
    with Client() as client:
        told = client.job_steps(list(jobs)) if jobs else []
    found = [Shown(job.row, job.job) for job in jobs.values()]
    found += [
        Shown(jobs[one.job].row, jobs[one.job].job, one)
        for one in told
        if one.ended_us is None and one.attempt == jobs[one.job].job.attempt
    ]
    found.sort(key=lambda one: (one.job.id, one.told is None, one.told.step if one.told else 0))
    if "nodelist" in options:
        hosts = frozenset(parse_hosts(options["nodelist"]))
        found = [one for one in found if not hosts.isdisjoint(parse_hosts(_hosts(one)))]
    shown = [one for one in found if not steps or _ref(one) in steps or f"{one.job.id}.{one.number}" in steps]
    shown = sorted_by(shown, sort, COLUMNS)
    head = [] if "noheader" in options else [form.header()]
    if head and "long" in options:
        head.insert(0, time.strftime("%a %b %d %H:%M:%S %Y"))
    return [*head, *form.lines(shown)]


def _wanted(job: Any, given: Given, steps: Sequence[str]) -> bool:
    named = given.options.get("job") or ""
    words = [*arrays.split_ids(named), *(step.partition(".")[0] for step in steps)]
    ids = [arrays.parse_id(word) for word in words]
    users, partitions = given.words("user"), given.words("partition")
    return (
        tasks_of(job, ids) is not None
        and (not users or job.user in users)
        and (not partitions or job.partition_in(partitions))
    )
