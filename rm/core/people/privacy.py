"""What of a job its owner alone may see, apart from operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rm.core.model.job import Job, JobState

HIDDEN = "Only the job's owner may read this."
Visible = Callable[[int], bool]  # may the job of this number be known?
# as every sentence of rm names jobs: "job 7", "Job 7: its error", "jobs 3, 5", "job 36_4", "job array 36"
_ID = r"\d+(?:_\d+|_\[[^\]]*\])?"
_NAMED = re.compile(rf"\b([Jj])obs?(?: array)? ({_ID}(?:, {_ID})*)(?!\w)(: .*)?", re.DOTALL)


def veiled(job: Job) -> Job:
    """The job as other users see it: without its paths, comment, story and the texts of its errors. Why it
    waits stays: that concerns everybody in the queue."""
    spec = replace(
        job.spec, chdir="", output="", error="", deliver="", comment="", submit_host="", script="",
        script_args=(), env=(),
    )  # fmt: skip
    reason = job.reason
    if reason is not None and (job.state is not JobState.PENDING or job.launch_failures):
        reason = replace(reason, message=HIDDEN, numbers=())
    tasks = tuple(replace(task, note="") if task.note else task for task in job.tasks)
    return replace(job, spec=spec, reason=reason, tasks=tasks, history=(), earlier=())


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
