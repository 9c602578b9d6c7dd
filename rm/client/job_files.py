"""The files in which the output of a job lies, by what the API tells of it."""

from __future__ import annotations

import os

from rm.file_patterns import Letters, for_each_element, for_each_task, replaced, values_of
from rm.units import fold_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rm.api.jobs import Job, Spec, Task


def writers(spec: Spec) -> int:
    """How many tasks have an output of their own."""
    return 1 if spec.launch == "batch" else spec.ntasks


def output_of(job: Job) -> str:
    """Where the output is or will be; "" where `rmx logs` alone has it."""
    return _written(job, job.spec.output) or _delivered(job)


def errors_of(job: Job) -> str:
    """Where the errors are, if the job keeps them apart."""
    return _written(job, job.spec.error)


def _written(job: Job, pattern: str) -> str:
    """The file in which tasks write and the host that has it; of several files the pattern, and the hosts."""
    tasks = job.tasks[: writers(job.spec)]
    if not pattern or not tasks:
        return pattern
    files = {os.path.join(job.spec.chdir, _named(job, pattern, task)) for task in tasks}
    name = files.pop() if len(files) == 1 else pattern
    if name.startswith("/dev/"):
        return name
    return f"{name} on {fold_hosts(list(dict.fromkeys(task.host for task in tasks)))}"


def _delivered(job: Job) -> str:
    """The file into which the daemon copies the log of a job without --output, as soon as it has ended."""
    spec = job.spec
    if not (spec.deliver and spec.chdir):
        return ""
    pattern = spec.deliver if job.array_task is None else for_each_element(spec.deliver)
    several = writers(spec) > 1
    pattern = for_each_task(pattern) if several else pattern
    name = _named(job, pattern, None if several or not job.tasks else job.tasks[0])
    path = os.path.join(spec.chdir, name.replace("/", "_"))
    return f"{path} on {spec.submit_host} (a copy of the log, made at the end)"


def _named(job: Job, pattern: str, task: Task | None) -> str:
    """The pattern with what is the same for all of the job's tasks, and with what is the task's own."""
    spec = job.spec
    letters: Letters = values_of(job.id, job.array_job, job.array_task, spec.name, spec.user)
    if task is not None:
        letters |= {"N": task.host, "n": job.hosts.index(task.host), "t": task.rank}
    return replaced(pattern, letters)
