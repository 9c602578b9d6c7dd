"""One decision of a pass: a job, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.model.job import Placement
from rm.core.model.network.alignment import Alignment
from rm.core.model.quickly_made import quickly_made
from rm.core.scheduling.choosing import Grounds


@quickly_made
@dataclass(frozen=True, slots=True)
class Decision:
    job: int
    placement: Placement
    alignment: Alignment
    note: str
    grounds: Grounds = field(compare=False, repr=False)
    array_job: int = 0  # of an element that gets its id, `job`, with this decision
    array_task: int = 0
    slice_of: int = 0
    partition: str = ""  # of several that the job may run in

    @property
    def event(self) -> ev.JobPlaced:
        return ev.JobPlaced(
            self.job,
            self.placement,
            self.note,
            self.array_job,
            self.array_task,
            self.slice_of,
            self.partition,
        )
