"""Elements of job arrays under other policies: they get their ids as they are placed, so in another order
than in the journal, and are known by array and index. All other jobs keep their ids."""

from __future__ import annotations

from dataclasses import replace

from rm.core.jobs import events as ev
from rm.sim.recording import Element, Recording, Story

Request = ev.CancelRequested | ev.HoldRequested | ev.ReleaseRequested | ev.RequeueRequested


class Renamed:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._elements: dict[int, Element] = {}  # by the ids that they have here
        self._ids: dict[Element, int] = {}

    @property
    def first(self) -> int:
        """The first id for elements: behind all of the journal's."""
        return max(self._recording.jobs, default=0) + 1

    def add(self, placed: ev.JobPlaced) -> None:
        if placed.array_job:
            element = placed.array_job, placed.array_task
            self._elements[placed.job] = element
            self._ids[element] = placed.job

    def recorded(self, job: int) -> int | None:
        """The job's id in the journal; None: of an element that was not placed there."""
        element = self._elements.get(job)
        return job if element is None else self._recording.elements.get(element)

    def story(self, job: int) -> Story:
        """The job's; of an element that was not placed in the journal, its array's."""
        known = self.recorded(job)
        return self._recording.jobs[self._elements[job][0] if known is None else known]

    def here(self, request: Request, jobs: set[int]) -> Request:
        """What was asked of an element, asked of the same one here, which may still wait in its array. `jobs`
        were there when the journal began, and have its ids."""
        story = self._recording.jobs.get(request.job)
        if story is None or story.element is None or request.job in jobs:
            return request
        array, index = story.element
        if (mine := self._ids.get(story.element)) is not None:
            return replace(request, job=mine)
        return replace(request, job=array, array_tasks=str(index))
