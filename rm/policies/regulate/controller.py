"""The stop-and-wait controller: keeps jobs in their time slots by pausing the low ones.

Source: Metronome Sec. III-D, resolved as R25 to R28. A state machine over reports: time enters
only as an argument, and the outcome is a list of commands. Times are integer ticks of the
caller's (the product uses microseconds on the daemon's clock).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from statistics import median

from rm.core.model.network.alignment import Schedule
from rm.errors import ConfigError


class Phase(StrEnum):
    MONITOR = "MONITOR"
    INSPECT = "INSPECT"  # waits for new profiles and a new plan; commands nothing


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Thresholds: `slow` is A_T, `overs` O_T; counts in reports, shares of the effective period. Those that
    begin with `verify` say when jobs are left alone (verifying.py)."""

    window: int = 10
    slow: float = 1.10
    overs: int = 5
    cooldown: int = 10
    dead_band: float = 0.05
    fast: float = 0.90
    compute: float = 0.10
    frequent: int = 3
    frequent_window: int = 100
    verify: bool = True
    verify_periods: int = 50
    verify_slow: float = 1.05
    verify_margin: float = 0.03
    verify_again_min: float = 30.0

    def __post_init__(self) -> None:
        if self.verify_periods < 10:
            raise ConfigError(
                f"The option verify_periods of [regulate] is {self.verify_periods}.",
                "Fewer than 10 iterations tell nothing.",
            )
        if self.verify_slow < 1 or self.verify_margin < 0 or self.verify_again_min <= 0:
            raise ConfigError(
                "An option of [regulate] is out of range.",
                "verify_slow is 1 or more, verify_margin 0 or more, and verify_again_min more than 0.",
            )


@dataclass(frozen=True, slots=True)
class Member:
    """One controlled job. `shift` and `period` as in its schedule; `rank` sorts, least first.

    `compute` is the profile's compute time per iteration, None when unknown; `cushion` the
    least distance to a contending phase, None when unknown. `adjust` is the drift from which on the
    agent moves the job back by itself, 0 = never; a job that is not `regulated` is moved to its slot
    once and not judged.
    """

    job: int
    rank: tuple[int, ...]
    high: bool
    shift: int
    period: int
    mul: int = 1
    compute: int | None = None
    cushion: int | None = None
    inject: int = 0
    gate: bool = False
    reference: bool = False
    adjust: int = 0
    regulated: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """One finished iteration: from its origin to the next, `paused` of it spent waiting."""

    job: int
    start: int
    duration: int
    paused: int = 0
    comm: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Make `job` wait `length` once, at its iteration boundary expected at `at`.

    The agent recomputes the wait at the real boundary from epoch, shift and period.
    """

    job: int
    at: int
    length: int
    epoch: int
    shift: int
    period: int


@dataclass(frozen=True, slots=True)
class Retime:
    """Iterations of `job` start at epoch + shift + n*period from now on."""

    job: int
    epoch: int
    shift: int
    period: int
    inject: int
    tolerance: int
    gate: bool
    adjust: int = 0


@dataclass(frozen=True, slots=True)
class Inspect:
    """Profile these jobs anew, one by one, then solve and install the component again."""

    component: int
    jobs: tuple[int, ...]
    why: str  # faster, compute, frequent, aligned-but-slow


@dataclass(frozen=True, slots=True)
class Recalculate:
    """Solve the component again. It follows an inspection, whose results are what a new plan starts from."""

    component: int


Command = Pause | Retime | Inspect | Recalculate
# Inspections that admit that pausing does not help, and what to call that.
GIVEN_UP = {
    "frequent": "it had to be moved back again and again",
    "aligned-but-slow": "it is slow although it is in its slot",
}


@dataclass(slots=True)
class _Sample:
    slow: bool
    fast: bool
    compute: int | None


@dataclass(slots=True)
class _Track:
    """What is remembered of one job."""

    member: Member
    samples: deque[_Sample]
    end: int | None = None
    cool: int = 0
    retimed: int | None = None  # the epoch that was last sent to its agent
    moved: bool = False  # to its slot, once


@dataclass(slots=True)
class _Component:
    name: int
    tracks: dict[int, _Track]  # in rank order
    links: tuple[frozenset[int], ...]
    phase: Phase = Phase.MONITOR
    epoch: int | None = None
    origin: int | None = None  # the newest start of a hyper-period that is known; agents get this one
    seen: int = 0  # reports of the reference
    readjusted: list[int] = field(default_factory=list)  # `seen` at each readjustment

    @property
    def reference(self) -> Member:
        return next(iter(self.tracks.values())).member


class Controller:
    """Regulates any number of components; each is the unit of one plan and one epoch."""

    def __init__(self, options: ControllerOptions | None = None) -> None:
        self.options = options or ControllerOptions()
        self._slow = Fraction(str(self.options.slow))
        self._fast = Fraction(str(self.options.fast))
        self._compute = Fraction(str(self.options.compute))
        self._dead_band = Fraction(str(self.options.dead_band))
        self._components: dict[int, _Component] = {}
        self._of: dict[int, _Component] = {}
        self._doubted: set[int] = set()  # given up once: what makes a host slow for seconds does that
        self._given_up: dict[int, str] = {}  # again, without a good window in between

    def install(
        self,
        component: int,
        members: Iterable[Member],
        links: Iterable[Iterable[int]],
        next_start: Mapping[int, int] | None = None,
    ) -> list[Command]:
        """Start from a new plan: forget all windows, and rotate every job to its slot once.

        Args:
            links: the jobs of each contended link of the component.
            next_start: when each job's next iteration is expected; without the reference's the
                epoch is its first report, and nothing is paused before.
        """
        self._remove(component)
        ranked = sorted(members, key=lambda m: (not m.reference, m.rank, m.job))
        made = _Component(
            component,
            {m.job: _Track(m, deque(maxlen=self.options.window)) for m in ranked},
            tuple(frozenset(jobs) for jobs in links),
        )
        self._components[component] = made
        for member in ranked:
            self._of[member.job] = made
        self._forget()
        starts = next_start or {}
        made.epoch = made.origin = starts.get(made.reference.job)
        if made.epoch is None:
            return []
        commands = self._retime(made)
        for track in list(made.tracks.values())[1:]:
            at = starts.get(track.member.job)
            if at is not None:
                track.moved = True
                commands += self._pause(made, track, at)
        return commands

    def remove(self, component: int) -> None:
        """Forget a component; unknown ones are no error."""
        self._remove(component)
        self._forget()

    def _remove(self, component: int) -> None:
        gone = self._components.pop(component, None)
        for job in gone.tracks if gone else ():
            if self._of.get(job) is gone:
                del self._of[job]

    def _forget(self) -> None:
        self._doubted &= self._of.keys()
        self._given_up = {job: why for job, why in self._given_up.items() if job in self._of}

    def standings(self) -> dict[int, str | None]:
        """Of each regulated job: "" = it keeps its slot, None = not known yet, else why pausing it was
        given up twice: it was inspected after the first time, which may find a new plan for it. That stays,
        over new plans too, until a whole window of its reports is good."""
        return {
            track.member.job: self._given_up.get(track.member.job)
            or ("" if len(track.samples) == self.options.window else None)
            for part in self._components.values()
            for track in part.tracks.values()
            if track.member.regulated
        }

    @property
    def components(self) -> tuple[int, ...]:
        return tuple(sorted(self._components))

    def phase(self, component: int) -> Phase:
        return self._components[component].phase

    def epoch(self, component: int) -> int | None:
        """When the last hyper-period of the reference began; None = not heard, or no such component."""
        part = self._components.get(component)
        return None if part is None else part.epoch

    def report(self, report: Report) -> list[Command]:
        """Take one iteration report; jobs that are not controlled are ignored."""
        part = self._of.get(report.job)
        if part is None:
            return []
        track = part.tracks[report.job]
        commands: list[Command] = []
        if track.member is part.reference:
            if part.seen % track.member.mul == 0:
                part.epoch = part.origin = report.start
            part.seen += 1
            if part.seen % track.member.mul == 0:
                # a report ends where the next iteration begins: one that took longer must not leave
                # the others waiting for instants that have passed
                part.origin = report.start + report.duration
        track.end = report.start + report.duration
        if part.phase is Phase.INSPECT:
            return []
        if track.member is part.reference:
            commands = self._retime(part)
        if not track.member.regulated:
            return commands + self._move_once(part, track)
        if track.cool > 0:
            track.cool -= 1
            return commands
        net, period = report.duration - report.paused, track.member.period
        computed = None if report.comm is None else net - report.comm
        track.samples.append(_Sample(net > self._slow * period, net < self._fast * period, computed))
        return commands + self._judge(part, track)

    def _judge(self, part: _Component, track: _Track) -> list[Command]:
        limit = self.options.overs
        if part.epoch is None:
            return []
        if sum(s.fast for s in track.samples) > limit:
            return self._inspect(part, [track.member.job], "faster")
        slow = sum(s.slow for s in track.samples) > limit
        full = len(track.samples) == self.options.window
        if full and not slow:
            self._doubted.discard(track.member.job)
            self._given_up.pop(track.member.job, None)
        # a changed job need not be slow: its gate, or contention, may fill the time it no longer needs
        if (slow or full) and self._computes_differently(track):
            return self._inspect(part, [track.member.job], "compute")
        if not slow:
            return []
        reference = part.reference
        sharing = {j for link in part.links if track.member.job in link for j in link}
        near = [
            t
            for t in part.tracks.values()
            if (t.member.job in sharing or t is track) and t.member is not reference
        ]
        everyone = [reference.job, *(t.member.job for t in near)]
        recent = [at for at in part.readjusted if part.seen - at < self.options.frequent_window]
        if len(recent) + 1 >= self.options.frequent:
            return self._give_up(part, track, everyone, "frequent")
        commands: list[Command] = []
        for y in [t for t in near if not t.member.high] or near:
            if y.end is not None and track.end is not None:
                behind = -(-max(0, track.end - y.end) // y.member.period)
                commands += self._pause(part, y, y.end + behind * y.member.period)
        if not commands:
            return self._give_up(part, track, everyone, "aligned-but-slow")
        part.readjusted = [*recent, part.seen]
        for t in part.tracks.values():
            t.samples.clear()
            t.cool = self.options.cooldown
        return commands

    def _computes_differently(self, track: _Track) -> bool:
        usual = track.member.compute
        measured = [s.compute for s in track.samples if s.compute is not None]
        if not usual or not measured:
            return False
        return abs(Fraction(median(measured)) - usual) > self._compute * usual

    def _pause(self, part: _Component, track: _Track, at: int) -> list[Command]:
        member = track.member
        if part.epoch is None or part.origin is None:
            return []
        length = (part.epoch + member.shift - at) % member.period
        tolerance = self._tolerance(member)
        if length <= tolerance or length >= member.period - tolerance:
            return []
        return [Pause(member.job, at, length, part.origin, member.shift, member.period)]

    def _move_once(self, part: _Component, track: _Track) -> list[Command]:
        """The rotation itself, of a job that nothing else would bring to its slot."""
        member = track.member
        by_itself = member.gate or member.adjust
        if track.moved or by_itself or member is part.reference or part.epoch is None or track.end is None:
            return []
        track.moved = True
        return self._pause(part, track, track.end)

    def _tolerance(self, member: Member) -> Fraction:
        band = self._dead_band * member.period
        return band if member.cushion is None else min(band, Fraction(member.cushion, 2))

    def _retime(self, part: _Component) -> list[Command]:
        """Tell the agents the epoch when the reference has moved by half of their tolerance."""
        commands: list[Command] = []
        for track in list(part.tracks.values())[1:]:
            member = track.member
            if part.origin is None or not (member.gate or member.inject or member.adjust):
                continue
            tolerance = self._tolerance(member)
            if track.retimed is not None:
                moved = (part.origin - track.retimed) % member.period
                if min(moved, member.period - moved) <= tolerance / 2:
                    continue
            track.retimed = part.origin
            commands.append(
                Retime(
                    member.job,
                    part.origin,
                    member.shift,
                    member.period,
                    member.inject,
                    int(tolerance),
                    member.gate,
                    member.adjust,
                )
            )
        return commands

    def _give_up(self, part: _Component, track: _Track, jobs: Sequence[int], why: str) -> list[Command]:
        if track.member.job in self._doubted:
            self._given_up[track.member.job] = GIVEN_UP[why]
        self._doubted.add(track.member.job)
        return self._inspect(part, jobs, why)

    def _inspect(self, part: _Component, jobs: Sequence[int], why: str) -> list[Command]:
        part.phase = Phase.INSPECT
        for track in part.tracks.values():
            track.samples.clear()
        order = tuple(job for job in part.tracks if job in jobs)
        return [Inspect(part.name, order, why), Recalculate(part.name)]


def member_of(schedule: Schedule, rank: tuple[int, ...], compute_us: int | None = None) -> Member:
    """A controlled job from its schedule, in microseconds.

    The dead band is kept at 2 % of the period or more: a job that is late can only wait for its
    next slot, so a band below the noise of start times would cost it whole periods.
    """
    cushion = max(schedule.cushion_us, schedule.period_us // 25) if schedule.cushion_us else None
    return Member(
        job=schedule.job,
        rank=rank,
        high=schedule.high,
        shift=schedule.shift_us,
        period=schedule.period_us,
        mul=schedule.mul,
        compute=compute_us,
        cushion=cushion,
        inject=schedule.inject_us,
        gate=schedule.gate,
        reference=schedule.reference,
        adjust=round(schedule.adjust * schedule.period_us),
        regulated=schedule.regulated,
    )
