"""What of a job its owner alone may see, apart from operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.replacing import replace

HIDDEN = "Only the job's owner may read this."
# of what a job asks for everybody sees these: who asks, for how much of what, and when. A field that is not
# here is its owner's: paths, programs, whatever a user wrote for himself.
SHOWN = frozenset(
    {
        "name", "user", "launch", "hosts_min", "hosts_max", "ntasks", "tasks_per_host", "cpus_per_task",
        "distribution", "mem_bytes_per_task", "mem_bytes_per_host", "mem_all", "gpus_per_task",
        "gpus_per_host", "gpu_bind", "ntasks_per_gpu", "gpu_type", "gpu_mem_bytes", "time_limit_us",
        "expected_us", "iterations", "partition", "priority", "nice", "begin_us", "deadline_us",
        "time_min_us", "dependency", "kill_on_invalid_dep", "array", "hold", "requeue", "warn_signal",
        "warn_before_us", "warn_batch", "fence_us", "chdir_required", "open_mode", "zone", "constraint",
        "prefer", "licenses", "reservation", "account", "qos", "hosts_only", "hosts_excluded", "exclusive",
        "exclusive_user", "switches", "switches_wait_us", "low_comm", "traffic",
    }
)  # fmt: skip
_EMPTY: dict[str, Any] = {
    field.name: "" if field.name == "script" else field.default
    for field in fields(JobSpec)
    if field.init and field.name not in SHOWN
}
Visible = Callable[[int], bool]  # may the job of this number be known?
# as every sentence of rm names jobs: "job 7", "Job 7: its error", "jobs 3, 5", "job 36_4", "job array 36"
_ID = r"\d+(?:_\d+|_\[[^\]]*\])?"
_NAMED = re.compile(rf"\b([Jj])obs?(?: array)? ({_ID}(?:, {_ID})*)(?!\w)(: .*)?", re.DOTALL)


def veiled(job: Job) -> Job:
    """The job as other users see it: without its paths, comment, story and the texts of its errors. Why it
    waits stays: that concerns everybody in the queue."""
    spec = replace(job.spec, **_EMPTY)
    reason = job.reason
    if reason is not None and (job.state is not JobState.PENDING or job.launch_failures):
        reason = replace(reason, message=HIDDEN, numbers=())
    tasks = tuple(replace(task, note="") if task.note else task for task in job.tasks)
    job = replace(job, used=(), slowed=(), saved_us=0, history=(), earlier=())
    return replace(job, spec=spec, reason=reason, tasks=tasks)


def without_others(text: str, visible: Visible) -> str:
    """The sentence without the numbers of jobs that may not be known, and without what it quotes of them."""

    def told(found: re.Match[str]) -> str:
        numbers = found[2].split(", ")
        known = [number for number in numbers if visible(int(number.partition("_")[0]))]
        if len(known) == len(numbers):
            return found[0]
        first = f"{'an' if found[1] == 'j' else 'An'}other job" if len(numbers) == 1 else ""
        if known:
            first = f"{found[1]}ob{'s' * (len(known) > 1)} {', '.join(known)} and others"
        return first or f"{'o' if found[1] == 'j' else 'O'}ther jobs"

    return _NAMED.sub(told, text) if "ob" in text else text
