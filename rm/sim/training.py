"""How running jobs spend their time: wait for the slot, compute, communicate, report, again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import Alignment
from rm.core.model.replacing import replace
from rm.core.ports import Transfer as Asked
from rm.core.ports import admits, looks_at_left, weighs
from rm.policies.regulate.controller import ControllerOptions, Inspect, Report
from rm.policies.regulate.desired import Learn
from rm.policies.regulate.gatekeeper import Gatekeeper, Verdict
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.verifying import Judgement
from rm.sim.attempt import Attempt
from rm.sim.following import Following, as_planned
from rm.sim.gpus import Device, GpuPool, Turn
from rm.sim.network.port import Network, Transfer
from rm.sim.program import Communicate, Compute
from rm.sim.regulation import Regulation
from rm.sim.slots import wait_rule
from rm.sim.weighing import Weighing

Handler = Callable[[Any, Any], None]


class Timeline(Protocol):
    """The world's clock and agenda."""

    now_us: float

    def at(self, at_us: float, handler: Handler, a: Any = None, b: Any = None) -> None: ...

    def inspect(self, command: Inspect) -> None: ...

    def learn(self, news: Learn) -> None: ...

    def judge(self, judgement: Judgement) -> None: ...


class Training:
    """All running attempts, by job id in `running`; `ended` is called at each one's last instant."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        host_bps: Mapping[str, float],
        comm: object,
        controller: ControllerOptions,
        regulated: bool,
        record: bool,
        ended: Callable[[Attempt], None],
    ) -> None:
        self.running: dict[int, Attempt] = {}
        self.gpu_busy_us = 0.0  # compute on all GPUs together
        self.joined = 0  # parts that ended in the same entry of the agenda as another one
        self.progressed: set[int] = set()  # jobs that made an iteration since somebody last looked
        self.regulation = Regulation(timeline.inspect, timeline.learn, controller, regulated, timeline.judge)
        self._iterating: dict[int, Iterating] = {}
        self._time = timeline
        self._network = network
        self._host_bps = host_bps
        self._following = Following()
        self._gate = Gatekeeper[Attempt](comm) if admits(comm) else None
        self._looks_at_left = looks_at_left(comm)
        self._network_us = -1.0  # up to when the network has certainly come
        self._weighing = Weighing(comm) if weighs(comm) else None
        self._begun = 0  # bursts
        self._record = record
        self._ended = ended
        self._gpus = GpuPool()
        self._wait = wait_rule()
        self._transfers = 0
        self._carrying: dict[int, Attempt] = {}

    # -- from the world ------------------------------------------------------------------------

    def begin(self, attempt: Attempt, alignment: Alignment) -> None:
        """All hosts of the attempt have started it: it goes to its slot, if it has one, and iterates."""
        now_us = self._time.now_us
        self.running[attempt.job] = attempt
        self._know(attempt, now_us)
        if attempt.story.start_us is None:
            attempt.story.start_us = now_us
        if alignment.schedules or alignment.together or alignment.paths:
            self.aligned(alignment)
        self._next_iteration(attempt)

    def aligned(self, alignment: Alignment) -> None:
        """Take a new alignment, or new attempts under the old one; jobs that have a plan need no slots."""
        planned = {job for plan in alignment.plans for job in plan.iterations}
        left_over = self._following.install(alignment.plans)
        if planned:
            slots = tuple(s for s in alignment.schedules if s.job not in planned)
            alignment = replace(alignment, schedules=slots, plans=())  # plans are followed above
        iterating = {
            job: replace(self._iterating[job], next_start_us=attempt.next_start_us)
            for job, attempt in self.running.items()
        }
        if self.regulation.aligned(alignment, iterating):
            for attempt in self.running.values():
                attempt.flows.clear()
        for attempt in left_over:
            if attempt.alive:
                self._next_iteration(attempt)

    def stop(self, attempt: Attempt) -> None:
        """The attempt is over, now: what it was doing is forgotten, finished iterations are kept."""
        attempt.alive = False
        self.running.pop(attempt.job, None)
        self._iterating.pop(attempt.job, None)
        if attempt.shared and attempt.busy:
            for device in attempt.devices:
                self._gpus.leave(device, attempt.job)
                self._choose([device])
        if attempt.transfer is not None and attempt.transfer in self._carrying:
            del self._carrying[attempt.transfer]
            self._network.suspend(attempt.transfer, self._time.now_us)
        if self._gate is not None and attempt.communicates:
            self._let(self._gate.end([attempt], self._asked))

    def profiled(self, attempt: Attempt, old: TrafficProfile | None) -> None:
        """The attempt was inspected; `old` is the profile that its plan was made for."""
        self._know(attempt, attempt.next_start_us)
        self.regulation.profiled(attempt.job, attempt.number, old, attempt.story.sim.spec.traffic)

    def _know(self, attempt: Attempt, next_start_us: float | None) -> None:
        """From now on regulation expects the attempt to compute as it does at present."""
        next_us = attempt.next_start_us = None if next_start_us is None else round(next_start_us)
        self._iterating[attempt.job] = Iterating(
            attempt.number,
            round(attempt.program.compute_us),
            next_us,
            round(attempt.program.alone_us) or None,
            attempt.story.sim.spec.is_high,
        )

    def carried(self, transfers: Iterable[int]) -> None:
        """The network has carried these, at this instant; those of stopped attempts are nobody's."""
        over: list[Attempt] = []
        for transfer in transfers:
            attempt = self._carrying.pop(transfer, None)
            if attempt is None:
                continue
            attempt.transfer = None
            stage = attempt.program.stages[attempt.stage]
            assert isinstance(stage, Communicate)
            if self._weighing is not None:
                stage = self._weighing.cut(stage)
            attempt.barrier += 1
            if attempt.barrier < stage.barriers:
                self._transmit(attempt, stage)
                continue
            attempt.comm_us += self._time.now_us - attempt.comm_from_us
            over.append(attempt)
        if self._gate is not None and over:
            self._let(self._gate.end(over, self._asked))
        for attempt in over:
            self._stage_done(attempt)

    # -- iterations ----------------------------------------------------------------------------

    def _next_iteration(self, attempt: Attempt) -> None:
        """Between two iterations: wait as planned, or for the slot, as the hosts' agents would."""
        now_us = self._time.now_us
        if attempt.boundary_us is None:
            attempt.boundary_us = now_us
        freed = self._following.arrive(attempt, now_us)
        if freed is not None:
            for one in freed:
                self._follow(one)
            return
        if attempt.planned is not None:
            attempt.planned = None
            attempt.flows.clear()
        schedule = self.regulation.schedule(attempt.job, attempt.number)
        wait_us = 0.0
        if schedule is not None:
            before = None if attempt.origin_us is None else round(attempt.origin_us)
            wait_us = float(self._wait(round(now_us), schedule, attempt.last_pause, before))
            attempt.last_pause = max(attempt.last_pause, schedule["pause_seq"])
        self._pause(attempt, wait_us)

    def _follow(self, attempt: Attempt) -> None:
        """To the next iteration of its plan, which may have begun later than the attempt got here."""
        if not attempt.alive:
            return
        wait_us, attempt.planned = self._following.begin(attempt.job, self._time.now_us)
        attempt.flows.clear()
        self._pause(attempt, wait_us)

    def _pause(self, attempt: Attempt, wait_us: float) -> None:
        """Let the next iteration begin after that time; what it has waited already counts as well."""
        now_us = self._time.now_us
        assert attempt.boundary_us is not None
        attempt.pause_us = now_us - attempt.boundary_us + wait_us
        attempt.boundary_us = None
        if wait_us > 0:
            self._time.at(now_us + wait_us, self._origin, attempt)
        else:
            self._origin(attempt)

    def _origin(self, attempt: Attempt, _: object = None) -> None:
        if not attempt.alive:
            return
        now_us = self._time.now_us
        if attempt.origin_us is not None:
            self._report(attempt, now_us)
        attempt.origin_us, attempt.comm_us = now_us, 0.0
        attempt.turn()
        attempt.story.chance.next_iteration()
        attempt.stage = -1
        self._stage_done(attempt)

    def _report(self, attempt: Attempt, until_us: float) -> None:
        """An iteration lasts until the next one's origin, so the wait before that is in it."""
        story, origin_us = attempt.story, attempt.origin_us
        assert origin_us is not None
        duration_us = until_us - origin_us
        if story.end_us is None:
            story.spent_us += duration_us
            story.paused_us += attempt.pause_us
            story.waits += attempt.pause_us > 0
            if self._record:
                story.durations_us.append(duration_us)
        attempt.next_start_us = round(until_us)
        if not self.regulation.follows(attempt.job):
            return
        report = Report(
            attempt.job,
            round(origin_us),
            round(until_us) - round(origin_us),
            round(attempt.pause_us),
            round(attempt.comm_us) if attempt.communicates else None,
        )
        self.regulation.report(attempt.number, report)

    def _stage_done(self, attempt: Attempt) -> None:
        stages = attempt.program.stages
        attempt.stage += 1
        while attempt.stage < len(stages):
            stage = stages[attempt.stage]
            if isinstance(stage, Compute):
                self._compute(attempt, stage)
                return
            if attempt.communicates:
                self._communicate(attempt, stage)
                return
            attempt.stage += 1
        story = attempt.story
        if story.end_us is None:
            story.done += 1
            attempt.note_done()
            self.progressed.add(attempt.job)
            if story.done >= attempt.program.iterations:
                attempt.pause_us = 0.0
                self._report(attempt, self._time.now_us)
                attempt.origin_us = None
                self._ended(attempt)
        if attempt.alive:
            self._next_iteration(attempt)

    # -- compute -------------------------------------------------------------------------------

    def _compute(self, attempt: Attempt, stage: Compute) -> None:
        chance, now_us = attempt.story.chance, self._time.now_us
        if not attempt.shared:
            length_us = sum([chance.compute_us(part) for part in stage.parts_us])
            self.gpu_busy_us += length_us * len(attempt.gpus)
            self._time.at(now_us + length_us, self._computed, attempt)
            return
        if not attempt.devices:
            attempt.devices = self._gpus.devices(attempt.gpus)
        attempt.parts_us = parts_us = tuple([chance.compute_us(part) for part in stage.parts_us])
        attempt.busy = len(attempt.gpus)
        self.gpu_busy_us += sum(parts_us) * attempt.busy
        turn = attempt.service_us, attempt.job, 0
        started = [device for device in attempt.devices if self._gpus.ask(device, turn)]
        if started:
            self._time.at(now_us + parts_us[0], self._parts_done, attempt, (0, started))

    def _computed(self, attempt: Attempt, _: object) -> None:
        if attempt.alive:
            self._stage_done(attempt)

    def _parts_done(self, attempt: Attempt, ended: tuple[int, list[Device]]) -> None:
        """The attempt has computed a part on GPUs where it began at one instant, one GPU after the other."""
        part, devices = ended
        self.joined += len(devices) - 1
        if not attempt.alive:
            return
        part += 1
        if part < len(attempt.parts_us):
            self._run(devices, self._gpus.go_on(devices, (attempt.service_us, attempt.job, part)))
            return
        self._gpus.done(devices)
        attempt.busy -= len(devices)
        if attempt.busy:
            self._choose(devices)
            return
        self._choose(devices[:-1])
        self._stage_done(attempt)
        self._choose(devices[-1:])

    def _choose(self, devices: Iterable[Device]) -> None:
        """Let those run on these GPUs that wait there."""
        wanted = [device for device in devices if device.waiting and device.running is None]
        if wanted:
            self._run(wanted, self._gpus.choose(wanted))

    def _run(self, devices: Sequence[Device], chosen: Sequence[Turn]) -> None:
        """On each GPU begins the chosen part. Where that is the same on GPUs in a row, it ends as one."""
        together: list[Device] = []
        before = None
        for device, one in zip(devices, chosen, strict=True):
            if one != before:
                _, job, part = before = one
                attempt, together = self.running[job], []
                end_us = self._time.now_us + attempt.parts_us[part]
                self._time.at(end_us, self._parts_done, attempt, (part, together))
            together.append(device)

    # -- communication -------------------------------------------------------------------------

    def _communicate(self, attempt: Attempt, stage: Communicate) -> None:
        now_us, late_us = self._time.now_us, attempt.story.chance.late_us()
        if late_us > 0:
            self._time.at(now_us + late_us, self._send, attempt, (stage, now_us))
        else:
            self._send(attempt, (stage, now_us))

    def _send(self, attempt: Attempt, ready: tuple[Communicate, float]) -> None:
        """`ready`: what is sent, and since when the job thinks that it communicates."""
        if not attempt.alive:
            return
        stage, since_us = ready
        attempt.barrier = 0
        attempt.asked_us, attempt.asked = self._time.now_us, None
        self._begun += 1
        attempt.burst = self._begun
        if self._gate is None:
            attempt.comm_from_us = since_us
            self._transmit(attempt, stage)
        else:
            self._let(self._gate.arrive(attempt, self._asked))

    def _transmit(self, attempt: Attempt, stage: Communicate) -> None:
        place = attempt.stage
        if self._weighing is not None:
            stage = self._weighing.cut(stage)
            place += attempt.barrier * len(attempt.program.stages)
        flows = attempt.flows.get(place)
        if flows is None:
            job, hosts = attempt.job, attempt.hosts
            burst = attempt.burst
            priorities = tuple(self.regulation.priority(job, host, burst) for host in hosts)
            flows = attempt.ring(stage, priorities)
            if attempt.planned is not None:
                flows = as_planned(flows, attempt.planned, attempt.operation, self._host_bps)
            flows = self.regulation.pinned(job, flows)
            if self._weighing is not None:
                flows = self._weighing.weighed(attempt, stage, flows)
            if not self.regulation.ordered(job):
                attempt.flows[place] = flows
        self._transfers += 1
        attempt.transfer = self._transfers
        self._carrying[attempt.transfer] = attempt
        size_bytes = stage.size_bytes / stage.barriers
        transfer = Transfer(attempt.transfer, attempt.job, attempt.hosts, flows, size_bytes)
        self._network.begin(transfer, self._time.now_us)

    def _let(self, verdict: Verdict[Attempt]) -> None:
        """Carry out what the admission policy said."""
        now_us = self._time.now_us
        for attempt in verdict.pause:
            if attempt.transfer is not None:
                self._network.suspend(attempt.transfer, now_us)
        for attempt in verdict.resume:
            if attempt.transfer is not None:
                self._network.resume(attempt.transfer, now_us)
        for attempt in verdict.start:
            stage = attempt.program.stages[attempt.stage]
            assert isinstance(stage, Communicate)
            attempt.comm_from_us = now_us
            self._transmit(attempt, stage)

    def _asked(self, attempts: Sequence[Attempt]) -> list[Asked]:
        """What the admission policy is told of their transfers."""
        asked = [attempt.asked or self._ask_for(attempt) for attempt in attempts]
        now_us = self._time.now_us
        if self._looks_at_left:
            return [self._with_left(*pair, now_us) for pair in zip(attempts, asked, strict=True)]
        if now_us != self._network_us:  # whatever a policy looks at, the network is then the same
            sent = next((attempt.transfer for attempt in attempts if attempt.transfer is not None), None)
            if sent is not None:
                self._network.left_bytes(sent, now_us)
                self._network_us = now_us
        return asked

    @staticmethod
    def _ask_for(attempt: Attempt) -> Asked:
        """Put down the transfer that the attempt is ready for."""
        stage = attempt.program.stages[attempt.stage]
        assert isinstance(stage, Communicate)
        attempt.asked = Asked(
            attempt.job,
            attempt.hosts,
            stage.size_bytes,
            stage.size_bytes,
            len(attempt.gpus),
            attempt.remaining_us,
            attempt.program.compute_us,
            attempt.asked_us,
        )
        return attempt.asked

    def _with_left(self, attempt: Attempt, asked: Asked, now_us: float) -> Asked:
        if attempt.transfer is None:
            return asked
        left = self._network.left_bytes(attempt.transfer, now_us)
        job, hosts, size, _, gpus, remaining_us, compute_us, since_us = asked
        return Asked(job, hosts, size, left, gpus, remaining_us, compute_us, since_us)
