"""The jobs that submissions name in their dependencies, which may have left the leader's memory long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from rm.arrays import each, mask, text_of
from rm.arrays import parse as parse_array
from rm.core.jobs.dependents import PastJob, counts_from_elements
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobSpec
from rm.dependencies import AFTERCORR, Condition, parse
from rm.errors import Conflict, NotFound, Refusal, UsageError


@dataclass(frozen=True, slots=True)
class NamedJobs:
    """`ids` of each list of dependencies, by its text; those of `past` had ended when they were looked up, or
    are arrays with elements from whose start a delay counts."""

    ids: dict[str, frozenset[int]]
    past: dict[int, PastJob]

    def of(self, spec: JobSpec, state: ClusterState) -> tuple[PastJob, ...]:
        """Those that the state does not have, or not all of whose elements it has.

        Raises:
            Conflict: one that had not ended when it was looked up has left the state since.
        """
        ids = self.ids.get(spec.dependency)
        if ids is None:
            return ()
        gone = {job_id for job_id in ids if job_id not in state.jobs}
        ended = {job_id for job_id, job in self.past.items() if job.state.final}
        if missing := sorted(gone - ended):
            raise Conflict(f"Job {missing[0]} has ended in this very moment.", "Submit the job again.")
        known = {job_id for job_id in ids & self.past.keys() if self.past[job_id].starts_us}
        return tuple(self.past[job_id] for job_id in sorted(gone | known))


NONE = NamedJobs({}, {})


async def named_jobs(
    specs: Iterable[JobSpec],
    job_of: Callable[[int], Awaitable[Job]],
    elements_of: Callable[[int, list[int]], Awaitable[Iterable[Job]]],
    may_know: Callable[[str], bool],
) -> NamedJobs:
    """Look them up, each once. `job_of` raises NotFound; `elements_of`: the jobs of an array's elements, by
    indices, as far as they have got any; `may_know`: of the jobs of this user?

    Raises:
        UsageError: there is no such job, or none that the caller may know of, or no such element of an array.
    """
    kinds = {(spec.dependency, spec.array): spec.name for spec in specs if spec.dependency}
    if not kinds:
        return NONE
    names = {text: name for (text, _), name in kinds.items()}
    ids = {text: frozenset(one.job for one in parse(text).of if one.job) for text in names}
    found: dict[int, Job] = {}
    for text, wanted in ids.items():
        for job_id in sorted(wanted - found.keys()):
            try:
                job = await job_of(job_id)
            except NotFound:
                job = None
            if job is None or not may_know(job.spec.user):
                raise UsageError(
                    f"Job '{names[text]}' depends on job {job_id}, which there is not.",
                    "`rmx queue --all` lists all jobs that are kept.",
                    Refusal.BAD_DEPENDENCY,
                )
            found[job_id] = job
    for (text, array), name in kinds.items():
        for one in parse(text).of:
            if one.job:
                _refuse_elements_that_are_not(name, array, one, found[one.job])
    counted: dict[int, int] = {}  # the elements from whose start a delay counts, by their array
    for text in names:
        for one in parse(text).of:
            if counts_from_elements(one.kind, one.delay_us, one.tasks):
                counted[one.job] = counted.get(one.job, 0) | mask(one.tasks)
    starts_us: dict[int, dict[int, int]] = {}
    for array_id, tasks in counted.items():
        of_array = [(job.array_task, job.started_us) for job in await elements_of(array_id, each(tasks))]
        starts_us[array_id] = {task: at for task, at in of_array if task is not None and at is not None}
    past = {
        i: PastJob.of(job, starts_us.get(i, {}))
        for i, job in found.items()
        if job.state.final or starts_us.get(i)
    }
    return NamedJobs(ids, past)


def _refuse_elements_that_are_not(name: str, array: str, one: Condition, named: Job) -> None:
    """`array` is the new job's array."""
    wanted = mask(one.tasks)
    if one.kind == AFTERCORR and array:
        wanted = parse_array(array).mask
    if not wanted:
        return
    said = f"Job '{name}' depends on {one}"
    if named.array is None:
        raise UsageError(
            f"{said}, and job {one.job} is no job array.",
            "Name the job alone, by afterok.",
            Refusal.BAD_DEPENDENCY,
        )
    if missing := wanted & ~parse_array(named.spec.array).mask:
        raise UsageError(
            f"{said}, and job array {one.job} has no element {text_of(missing)[:80]}.",
            f"It has {named.spec.array[:80]}.",
            Refusal.BAD_DEPENDENCY,
        )
