"""A running job in the simulated world: where it is in its program."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.model.job import Placement
from rm.core.model.network.routes import PlannedIteration
from rm.core.ports import Transfer as Asked
from rm.sim.gpus import Device, Gpu
from rm.sim.network.port import Flow
from rm.sim.program import Communicate, Program
from rm.sim.workload import Chance, SimJob


@dataclass(slots=True, eq=False)
class Story:
    """What outlives an attempt: iterations done are kept (a checkpoint) when a job moves."""

    sim: SimJob
    chance: Chance
    then: SimJob | None = None  # what it will do from its next iteration on
    job: int = 0
    element: int | None = None  # of a job array, which gets its job when it is placed
    start_us: float | None = None
    end_us: float | None = None
    done: int = 0  # iterations
    spent_us: float = 0.0  # in them
    paused_us: float = 0.0
    waits: int = 0  # iterations that waited for their slot
    attempts: int = 0
    hosts: tuple[str, ...] = ()
    durations_us: list[float] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Attempt:
    """One launch of a job. Compared by identity: an event of a stopped attempt finds `alive` False."""

    story: Story
    number: int
    placement: Placement
    hosts: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    shared: bool  # may other jobs run on its GPUs?
    waiting_for: int  # hosts that have not got their start yet
    alive: bool = True
    stage: int = 0
    origin_us: float | None = None  # of the iteration under way
    boundary_us: float | None = None  # since when it is between two iterations
    pause_us: float = 0.0  # the wait before the origin to come
    planned: PlannedIteration | None = None  # what a plan says of this iteration
    last_pause: int = 0  # number of the last pause obeyed
    busy: int = 0  # GPUs that have not finished the compute stage
    devices: tuple[Device, ...] = ()  # its GPUs, where others may run there, once it has begun
    parts_us: tuple[float, ...] = ()  # how long the parts of the compute stage take
    transfer: int | None = None
    barrier: int = 0  # steps of the communication stage that are done
    asked_us: float = 0.0  # when the transfer was ready
    asked: Asked | None = None  # by which the admission policy was asked for it, once it was
    comm_us: float = 0.0  # communication in this iteration
    comm_from_us: float = 0.0
    burst: int = 0  # which of all bursts it began last
    flows: dict[int, tuple[Flow, ...]] = field(default_factory=dict)  # by stage and part
    job: int = field(init=False)
    program: Program = field(init=False)
    communicates: bool = field(init=False)
    iteration_us: float = field(init=False)  # undisturbed: on one host communication is free
    remaining_us: float = field(init=False)  # as `note_done` says
    service_us: float = field(init=False)  # that, on all its GPUs together
    next_start_us: int | None = None  # when its next iteration is expected to begin

    def __post_init__(self) -> None:
        self.job = self.story.job
        self.communicates = len(self.hosts) > 1
        self._follow()

    def turn(self) -> None:
        """Between two iterations: from now on do what the story says next, if it says anything."""
        if self.story.then is not None:
            self.story.sim, self.story.then = self.story.then, None
            self.flows.clear()
            self._follow()

    def _follow(self) -> None:
        self.program = self.story.sim.program
        self.iteration_us = self.program.alone_us if self.communicates else self.program.compute_us
        self.note_done()

    def note_done(self) -> None:
        """Count the undisturbed time that the job still needs, now that an iteration is done: compute and
        communication (Ada-SRSF Sec. IV-A). Times the GPUs it is the remaining service, SRSF's order."""
        self.remaining_us = (self.program.iterations - self.story.done) * self.iteration_us
        self.service_us = self.remaining_us * len(self.gpus)

    @property
    def operation(self) -> int:
        """The ordinal of the communication stage that it is in, among those of the iteration."""
        return sum(isinstance(stage, Communicate) for stage in self.program.stages[: self.stage])

    def ring(self, stage: Communicate, priorities: tuple[int, ...]) -> tuple[Flow, ...]:
        """The flows of one step of a ring collective, one from each host to the next."""
        hosts, bits = self.hosts, stage.bits / stage.barriers
        return tuple(
            Flow(host, hosts[(i + 1) % len(hosts)], bits, stage.cap_bps, priorities[i])
            for i, host in enumerate(hosts)
        )
