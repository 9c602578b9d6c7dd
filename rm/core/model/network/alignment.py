"""What a communication policy decides: rotations, time-shifts, injected idle time, shaping."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rm.core.model.network.paths import JobPath
from rm.core.model.network.routes import CommPlan
from rm.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Rotation:
    """Job `job` is rotated by `slots` of `circle_slots` on `link` (Metronome Sec. II-B)."""

    link: str
    job: int
    slots: int
    circle_slots: int


@dataclass(frozen=True, slots=True)
class LinkAlignment:
    """One contended link: score 100*(1 - excess/(B*D)), 100 = no contention (R7).

    `gap_us` is the smallest cushion between contending phases; None when nothing contends.
    """

    link: str
    score: float
    perimeter_us: int
    jobs: tuple[int, ...]
    rotations: tuple[Rotation, ...] = ()
    gap_us: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one job keeps its place in time.

    An iteration of the job starts at epoch + shift_us + n*period_us. `period_us` is the
    effective period T/mul; `inject_us` is the idle time each iteration gains to reach it;
    `reference` jobs are never paused, injected or gated. `component` names the connected
    affinity component (its smallest job id) whose members share one epoch. `mul` iterations
    make one hyper-period.

    What keeps the job there: `gate`, an early iteration waits for its slot, at every iteration;
    `adjust`, an iteration off its slot by more than this share of the period, early or late, waits
    for the next one (CASSINI Sec. 5.7; 0 = never); `regulated`, the controller watches the job's
    iterations and commands pauses. Without any the job is moved to its slot once, when the schedule
    is installed, and then left to itself.
    """

    job: int
    component: int
    shift_us: int
    period_us: int
    base_period_us: int
    inject_us: int = 0
    mul: int = 1
    cushion_us: int = 0
    reference: bool = False
    high: bool = False
    gate: bool = False  # only where the scheme is perfect
    adjust: float = 0.0
    regulated: bool = True


@dataclass(frozen=True, slots=True)
class Bursts:
    """Whoever begins a burst earlier has the link until it ends: after a silence of `gap_us`; one longer than
    `longest_us` goes behind those that wait."""

    gap_us: int
    longest_us: int


@dataclass(frozen=True, slots=True)
class ShapingRule:
    """Traffic class of one job on one host: HTB priority (0 = first) and ceiling.

    With `bursts` the job has no class of its own: its bursts are ordered among those of the others that
    have such a rule there, and all of priority 0 come before them.
    """

    job: int
    host: str
    priority: int
    rate_bps: int
    ceil_bps: int
    bursts: Bursts | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Jobs that share links and are left to do so without rotations and classes.

    `managed` is by how much the slowest job's iterations took longer than its profile says while they were
    managed (1.2: a fifth longer), `unmanaged` the same since; None while that is measured, and then they are
    managed again at `until_us`. `times`: how often in a row they were slower managed than since.
    """

    jobs: tuple[int, ...]
    managed: float
    unmanaged: float | None = None
    until_us: int | None = None
    times: int = 1


PERFECT = 100.0  # the score of jobs that never meet on a link


@dataclass(frozen=True, slots=True)
class Alignment:
    """A communication policy's whole answer for a set of placed jobs.

    `score` ranks candidates: the worst link's, or as the policy says; 100 when nothing contends. `unmatched`
    jobs share a contended link but have no rotation (periods do not match, or no room): they are not
    controlled. `plans` say more than the schedules do: delays, throttles and routes of single iterations,
    each for jobs that share links. A placement whose alignment is `rejected` is not taken, whatever else
    there is; of jobs that are placed already it says nothing. `together` are the jobs that share contended
    links or classes, by group, where it is to be verified that managing makes them faster; `released` those
    of them that are left alone. `paths` are the spines that jobs keep to. `unsettled` are the links on which
    a recomputation may find more. `grounds` are the policy's own, from which its next answer goes on: what it
    could also work out from the jobs and the rest of the alignment.
    """

    score: float
    links: tuple[LinkAlignment, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    shaping: tuple[ShapingRule, ...] = ()
    unmatched: tuple[int, ...] = ()
    recompute: bool = False  # stage 3 (offline recomputation) would improve the cushions
    rejected: Reason | None = None
    plans: tuple[CommPlan, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    released: tuple[Released, ...] = ()
    paths: tuple[JobPath, ...] = ()
    unsettled: tuple[str, ...] = ()
    grounds: object = field(default=None, compare=False, repr=False)


NOTHING_TO_ALIGN = Alignment(PERFECT)


@dataclass(frozen=True, slots=True)
class Difference:
    """What an alignment no longer says that the one before said: schedules of jobs, links, classes on
    hosts."""

    jobs: tuple[int, ...] = ()
    links: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def differing(before: Alignment, after: Alignment) -> tuple[Alignment, Difference]:
    """Of a large alignment the part that differs from the one before."""
    links, schedules, rules = _parts(before)
    new_links, new_schedules, new_rules = _parts(after)
    part = replace(
        after,
        links=tuple(one for name, one in new_links.items() if links.get(name) != one),
        schedules=tuple(one for job, one in new_schedules.items() if schedules.get(job) != one),
        shaping=tuple(rule for host, on in new_rules.items() if rules.get(host) != on for rule in on),
    )
    return part, Difference(
        tuple(sorted(schedules.keys() - new_schedules.keys())),
        tuple(sorted(links.keys() - new_links.keys())),
        tuple(sorted(rules.keys() - new_rules.keys())),
    )


def combined(before: Alignment, part: Alignment, gone: Difference) -> Alignment:
    """The alignment of which these are what differs from the one before."""
    links, schedules, rules = _parts(before)
    new_links, new_schedules, new_rules = _parts(part)
    links = {name: one for name, one in (links | new_links).items() if name not in gone.links}
    schedules = {job: one for job, one in (schedules | new_schedules).items() if job not in gone.jobs}
    rules = {host: on for host, on in (rules | new_rules).items() if host not in gone.hosts}
    return replace(
        part,
        links=tuple(links[name] for name in sorted(links)),
        schedules=tuple(schedules[job] for job in sorted(schedules)),
        shaping=tuple(rule for host in sorted(rules) for rule in rules[host]),
    )


def _parts(
    alignment: Alignment,
) -> tuple[dict[str, LinkAlignment], dict[int, Schedule], dict[str, list[ShapingRule]]]:
    rules: dict[str, list[ShapingRule]] = {}
    for rule in alignment.shaping:
        rules.setdefault(rule.host, []).append(rule)
    return {one.link: one for one in alignment.links}, {one.job: one for one in alignment.schedules}, rules


def in_words(released: Released) -> str:
    """For users: what was measured, and that the job is left alone."""
    managed = f"the slowest job took {released.managed:.2f} times as long as alone while links were managed"
    if released.unmanaged is None:
        return f"{managed}: what it takes without is measured"
    return f"{managed}, and {released.unmanaged:.2f} times since: they are left alone"
