"""The cycle: record -> decide -> commit -> submit. Daemon and simulator run this very code.

`step` takes a batch of events and the time, changes the state through the lifecycle, lets the
engine decide, and returns what must be committed and then carried out. It does neither.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Intent
from rm.core.jobs.instants import Instants
from rm.core.jobs.lifecycle import Changes, Rules, apply, go_on, note_waits
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, Released, differing
from rm.core.model.network.links import NetworkView
from rm.core.model.network.paths import JobPath
from rm.core.model.planned import gives_way
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Aligned, PlacedJob, Snapshot
from rm.core.model.switches import insists_until_us
from rm.core.ports import CommPolicy, QueuePolicy, aligns, aligns_unprofiled, goes_on
from rm.core.scheduling.after import lending
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.choosing import Taken
from rm.core.scheduling.due import due, in_time, instants, loses_more
from rm.core.scheduling.engine import Policies, Tuning, decide, tries_of
from rm.core.scheduling.gates import by_tier, within
from rm.core.scheduling.held import not_yet
from rm.core.scheduling.limits.limiting import LimitedJobs
from rm.core.scheduling.neighbours import Neighbourhood
from rm.core.scheduling.paths import job_paths
from rm.core.scheduling.preemption import Found, Preemption, Victim
from rm.core.scheduling.releasing import is_verified, left_alone
from rm.core.scheduling.rescheduling import rule_of, to_move
from rm.core.scheduling.rest import firsts_of
from rm.core.scheduling.waiting import noted
from rm.errors import IllegalTransition

LATER = frozenset({ReasonCode.BEGIN_TIME, ReasonCode.DEPENDENCY})  # may end when the clock says so
MANY_LINKS = 100  # in an alignment: of a larger one only what differs is sent
WAITS_WRITTEN = 20  # records of waiting jobs that a step writes since the reason has changed
BEGIN_AT_ONCE = 1_000  # jobs whose time has come that a step begins to try: the next ones follow at once
RETRY_US = 1_000_000  # a reservation that is overdue is looked at again so much later


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Stage 3 to be done outside the cycle, because it may take long: Metronome, Sec. III-C.

    `run` is pure and works on its own copies; its event comes back like any other.
    """

    comm: CommPolicy
    placed: tuple[PlacedJob, ...]
    snapshot: Snapshot
    placed_version: int
    released: Mapping[tuple[int, ...], Released] = field(default_factory=dict)
    paths: tuple[JobPath, ...] = ()  # stay

    def run(self) -> ev.AlignmentRecomputed:
        raw = self.comm.align(self.placed, self.snapshot, offline=True)
        found = left_alone(raw, self.released) if is_verified(self.comm) else raw
        found, before = replace(found, grounds=None, paths=self.paths), self.snapshot.aligned
        if before is None or len(found.links) < MANY_LINKS:
            return ev.AlignmentRecomputed(self.placed_version, found)
        return ev.AlignmentRecomputed(self.placed_version, *differing(before.alignment, found))


@dataclass(slots=True)
class Outcome:
    """What one step did. `recorded` are the events as they took effect, in order, decisions
    included; `refused` pairs the index of a refused event with its error; `taken` notes by job how each
    placement came about, for a record that is to be made before the next step; `looked` says whether
    any pending job was tried, dependents were judged or the alignment asked for, with any result."""

    changes: Changes
    intents: list[Intent] = field(default_factory=list)
    recorded: list[ev.Event] = field(default_factory=list)
    refused: dict[int, IllegalTransition] = field(default_factory=dict)
    taken: dict[int, Taken] = field(default_factory=dict)
    realigned: bool = False
    looked: bool = False
    recompute: Recomputation | None = None


@dataclass(slots=True)
class Cycle:
    """The leader's loop body with what it keeps between steps."""

    state: ClusterState
    policies: Policies
    rules: Rules = field(default_factory=Rules)
    tuning: Tuning = field(default_factory=Tuning)
    blocked: Blocked = field(default_factory=Blocked)
    _seen_capacity: int = -1
    _begins_us: Instants = field(default_factory=Instants)  # of jobs that may not begin yet, or not anywhere
    _begun: list[int] = field(default_factory=list)  # jobs that may, in order, and that are still to be tried
    _seen_placed: int = -1
    _untried: list[int] = field(default_factory=list)  # pending jobs that the last pass came not to
    _whole: bool = False  # the next pass is to try everybody
    _moves: int = 0  # passes that try everybody since a planned job may move, after the last news
    _limited: LimitedJobs = field(default_factory=LimitedJobs)
    _preemption: Preemption = field(default_factory=Preemption)
    _fresh: tuple[int, ...] = ()  # new since preemption looked last
    _near: Neighbourhood = field(default_factory=Neighbourhood)
    _aligned: Aligned | None = None  # what the next alignment goes on from

    def step(self, events: Sequence[ev.Event], now_us: int) -> Outcome:
        """One turn; `events` in the order in which they arrived."""
        out = Outcome(Changes())
        before = self.state.alignment
        came = due(self.state, self.rules, events, now_us)
        for event in came:
            if isinstance(event, ev.DeadlineMissed) and event.job not in self.state.deadlines:
                continue  # it went with the job that it waited for
            if isinstance(event, ev.SharePassed) and event.job not in self.state.marks:
                continue  # it lost its host
            self._record(event, now_us, out)
        for index, event in enumerate(events):
            try:
                self._record(event, now_us, out)
            except IllegalTransition as refusal:
                out.refused[index] = refusal
        renewed = self.state.alignment is not before
        go_on(self.state, now_us, self.rules, out.changes)
        out.looked = out.changes.judged > 0
        fresh = (*(number for number in self._fresh if number in self.state.pending), *self.state.fresh)
        jobs, pending = self.state.jobs, self.state.pending
        if self.state.claims:
            for number in [n for n in self.state.claims if n not in pending or not_yet(jobs[n], now_us)]:
                del self.state.claims[number]
                self.state.capacity_version += 1
        later = loses_more(came, self.state, self.rules, now_us)
        self._decide(now_us, out, later)
        self._fresh = fresh if later else ()
        if not later:
            self._preempt(fresh, now_us, out)
            if self.state.freed:  # a gang went that had not begun
                self._decide(now_us, out, later)
        note_waits(self.state, now_us, self.rules, out.changes, WAITS_WRITTEN)
        self._align(now_us, out, renewed)
        self._move(now_us, out)
        out.realigned = self.state.alignment is not before and self.state.alignment != before
        for action in out.changes.actions:
            out.intents.append(Intent(self.state.next_action, action))
            self.state.next_action += 1
        return out

    def start_over(self, aligned: bool) -> None:
        """Forget what earlier steps found beyond the state: the next one tries every pending job.
        `aligned`: the state's alignment is for the jobs that are placed now."""
        self.blocked.came_to_all()
        self.blocked.clear()
        self.state.judge_dependencies()
        self._begins_us.clear()
        self._begun.clear()
        self._untried.clear()
        self._whole = False
        self._moves = 0
        self._limited.clear()
        self._preemption.clear()
        self._fresh = ()
        self._near = Neighbourhood()
        self._seen_capacity = -1
        self._seen_placed = self.state.placed_version if aligned else -1
        placed = {p.job: p for p in self._to_align()} if aligned else {}
        self._aligned = Aligned(self.state.alignment, placed) if aligned else None

    def reason_of(self, job: Job) -> Reason | None:
        """Why a pending job pends, as of the last pass that looked at it or its like."""
        return self.state.reasons.get(job.id) or self.blocked.reason_of(job)

    def next_due_us(self) -> int | None:
        """When the clock alone will change something: a begin time, a reservation that was not met, or
        a host given up. 0: at once, since the last step has left jobs untried, or dependents to be judged."""
        if self._untried or self._begun or self._whole or self.blocked.rest or self.state.dependents.to_judge:
            return 0
        due = [*instants(self.state, self.rules)]
        if (begins_us := self._begins_us.first_us()) is not None:
            due.append(begins_us)
        if (retry_us := self._limited.retry_us(self.state.pending)) is not None:
            due.append(retry_us)
        if self.blocked.retry_us is not None:
            due.append(self.blocked.retry_us)
        if (look_us := self._preemption.due_us()) is not None:
            due.append(look_us)
        return min(due, default=None)

    def _record(self, event: ev.Event, now_us: int, out: Outcome) -> None:
        apply(self.state, event, now_us, self.rules, out.changes)
        out.recorded.append(event)

    def _decide(self, now_us: int, out: Outcome, later: bool) -> None:
        """A pass. `later`: the next step is to try those whose turn it is."""
        state = self.state
        fresh, freed, changed = state.take_news()
        untried, self._untried = dict.fromkeys(self._untried), []
        limited = self._limited.released(state, now_us)
        begin = self._begin(now_us)
        self.blocked.overdue(begin, changed)
        most = self.tuning.placements if not self.tuning.patience else 0  # that tells between those alike
        firsts = firsts_of(state, self.policies.queue, most, now_us)
        if state.capacity_version != self._seen_capacity:
            self._seen_capacity = state.capacity_version
            behind = self.blocked.clear_but_rest(untried | fresh, state, firsts)
            alone = state.reasons.keys() | fresh  # whose own reasons may be gone
            chosen, whole = [j for j in self._all(fresh) if j not in behind or j in alone], True
        else:  # those that were refused before are refused still, unless what came free is for them
            again = dict.fromkeys(self.blocked.again_now(untried | fresh, freed, state, firsts))
            chosen = [j for j in untried | fresh | again | begin | limited if j in state.pending]
            renewed = self._whole or self._plan_changed(now_us)
            if (renewed or limited) and self.blocked.midway:
                self.blocked.again = True
            whole = renewed or not state.planned.keys().isdisjoint(chosen)
            if whole:
                self.blocked.retry(state)
                chosen = self._all(dict.fromkeys(chosen))
            elif state.planned:
                chosen = self._in_turn(chosen, now_us)
            chosen = chosen if whole else self._limited.with_those_ahead(chosen, state)
        if state.claims and (chosen or freed):
            # the planned ones, too, or the plan would end with this pass
            first = (j for j in (*state.claims, *state.planned) if j in state.pending)
            chosen = list(dict.fromkeys([*first, *chosen]))
        self._whole = False
        chosen = in_time(chosen, state, now_us)
        if later:
            self._untried, self._whole = chosen, whole
            return
        if not chosen:
            self._whole = self.blocked.came_to_all()
            state.planned = {} if whole else state.planned
            return
        out.looked = True
        snapshot = replace(state.snapshot(now_us), near=self._near)
        trying = (state.jobs[j] for j in chosen)
        result = decide(trying, snapshot, self.policies, self.tuning, self.blocked, whole)
        self.blocked.rest.refused(self.blocked.waiting, state.pending)
        for job_id in chosen:
            state.reasons.pop(job_id, None)
        state.reasons |= result.reasons
        noted(state, self.blocked, chosen, result.reasons, now_us)
        self._untried = result.untried
        started = {one.array_job or one.job for one in result.decisions}
        # who is the next one, and may one that had its turn before start sooner now?
        self._whole = result.again or (not whole and not started.isdisjoint(state.planned))
        # two of them may change places for ever: without news they move as often as it takes each of them
        if gives_way(state.planned, result.planned, started) and self._moves < len(state.planned):
            self._moves += 1
            self._whole = True
        if started or out.recorded:
            self._moves = 0
        if state.tally.rules:
            tried = set(chosen).difference(result.untried)
            self._limited.set_aside(state, tried, started, result.aside, result.planned)
        state.planned = result.planned
        self._limited.note(result.limited, now_us)
        for job_id, reason in result.reasons.items():
            if reason.code in LATER and state.jobs[job_id].begin_us > now_us:
                self._begins_us[job_id] = state.jobs[job_id].begin_us
        for decision in result.decisions:
            pending = decision.array_job or decision.job
            if not_yet(state.jobs[pending], now_us) is not None:
                # one before it stands against it: what it was given is free for all, at once
                state.capacity_version += 1
                self._untried.append(pending)
                result.taken.pop(decision.job, None)
                continue
            self._record(decision.event, now_us, out)
        for job_id in (j for j in chosen if j in state.pending and state.jobs[j].spec.switches):
            if (until_us := insists_until_us(state.jobs[job_id], snapshot)) > now_us:
                self._begins_us[job_id] = self._begins_us.get(job_id, until_us)
        if self.tuning.patience:
            for job_id, at_us in self.blocked.again_us().items():
                self._begins_us[job_id] = min(at_us, self._begins_us.get(job_id, at_us))
        out.taken = result.taken
        known = (one.at_us for one in state.planned.values() if one.at_us is not None)
        starts_us = min(known, default=None)
        self.blocked.retry_us = None if starts_us is None else max(starts_us, now_us + RETRY_US)

    def _begin(self, now_us: int) -> dict[int, None]:
        """Of the jobs whose time has come those to try now: the first ones by the queue policy, as many as a
        step begins to try, since a user may have 100,000 of one instant."""
        state, come = self.state, self._begins_us.take_before(now_us + 1)
        if come and len(self._begun) + len(come) > BEGIN_AT_ONCE:
            jobs = (state.jobs[number] for number in [*self._begun, *come] if number in state.pending)
            self._begun = [job.id for job in in_order(jobs, self.policies.queue, state.snapshot(now_us))]
        else:
            self._begun += come
        first, self._begun = self._begun[:BEGIN_AT_ONCE], self._begun[BEGIN_AT_ONCE:]
        return dict.fromkeys(first)

    def _preempt(self, fresh: Sequence[int], now_us: int, out: Outcome) -> None:
        """Let running jobs go for a pending one that stands above them. One that could not be placed although
        all have gone keeps nothing from others any more."""
        state = self.state
        for number in [n for n, gone in state.claims.items() if not self._any_goes(gone)]:
            lenders = state.claims.pop(number)
            state.capacity_version += 1
            self._untried.append(number)
            if not lenders.keys().isdisjoint(state.placed):  # the others have gone, and now these stand still
                follows = self._preemption.follow(state, number, self.policies, self.tuning, now_us)
                if follows is not None:
                    self._place_over(follows, now_us, out)
        due_us = self._preemption.due_us()
        found = self._preemption.look(state, fresh, self.policies, self.tuning, now_us)
        # who was looked at in vain is passed over for a while, so that a replay has to look then, too
        out.looked = out.looked or self._preemption.due_us() != due_us
        if found is None:
            return
        if found.at_once:
            self._place_over(found, now_us, out)
            return
        self._preempted(found, (one for one in found.victims if not one.stands), now_us, out)
        standing = (job for victim in found.victims if victim.stands for job in victim.jobs)
        state.claims[found.job].update(dict.fromkeys(standing))

    def _any_goes(self, gone: Iterable[int]) -> bool:
        jobs, placed = self.state.jobs, self.state.placed
        return any(number in placed and jobs[number].state is JobState.COMPLETING for number in gone)

    def _preempted(self, found: Found, victims: Iterable[Victim], now_us: int, out: Outcome) -> None:
        for job in (job for victim in victims for job in victim.jobs):
            self._record(ev.JobPreempted(job, found.job, found.as_asked.spec.partition), now_us, out)

    def _place_over(self, found: Found, now_us: int, out: Outcome) -> None:
        """Place a job over those that stand still for it: it alone has their processors."""
        state, numbers = self.state, [job for one in found.victims for job in one.jobs]
        tries = tries_of(self.policies, self.tuning)
        lent = lending(state.snapshot(now_us), tries, numbers)
        lent = replace(lent, claims={found.job: ()}, planned={})  # of an array one element
        asked, partition = state.jobs[found.job], found.as_asked.spec.partition
        named = "," in asked.spec.partition and "," not in partition
        if named:
            asked = within(asked, partition)
        result = decide([asked], lent, self.policies, self.tuning, Blocked())
        for decision in result.decisions[:1]:
            self._preempted(found, found.victims, now_us, out)
            if named:
                decision = replace(decision, partition=partition)
            self._record(decision.event, now_us, out)
            out.taken |= result.taken
            out.looked = True
        self._preemption.tried(found.job, placed=bool(result.decisions), now_us=now_us)

    def _all(self, fresh: Container[int]) -> list[int]:
        """The pending jobs but those of which it is known that they wait for others."""
        state, waiting = self.state, self.state.dependents.waiting
        if not waiting:
            return list(state.pending)
        return [j for j in state.pending if j not in waiting or j in fresh or j not in state.reasons]

    def _plan_changed(self, now_us: int) -> bool:
        """Has a planned job gone, or may it not start yet? Everybody is to be tried then, as where a planned
        job is tried: only among all that wait does it show whose turn is next."""
        state = self.state
        jobs = [state.jobs[job] for job in state.planned if job in state.pending]
        return len(jobs) < len(state.planned) or any(not_yet(job, now_us) is not None for job in jobs)

    def _in_turn(self, chosen: list[int], now_us: int) -> list[int]:
        """Whom to try beside the chosen, since jobs are planned: those, which stand ahead still, and those
        behind them."""
        due = self.blocked.retry_us
        if not chosen and (due is None or now_us < due):
            return []
        return list(dict.fromkeys([*self.state.planned, *self.blocked.retry(self.state), *chosen]))

    def _align(self, now_us: int, out: Outcome, renewed: bool) -> None:
        """Align everything that is placed, whenever that set or a profile has changed. From an alignment that
        is `renewed` by another thread it goes on, and where more is to be found, so does another thread."""
        state = self.state
        current = state.placed_version == self._seen_placed
        if renewed:
            self._aligned = self._aligned and replace(self._aligned, alignment=state.alignment, renewed=True)
            if current and state.alignment.recompute:
                out.recompute = self._recomputation(self._to_align(), state.snapshot(now_us))
        if current:
            return
        self._seen_placed, out.looked = state.placed_version, True
        placed = self._to_align() if aligns(self.policies.comm) else []
        if not placed:
            state.alignment = self._with_paths(NOTHING_TO_ALIGN)
            state.released = {}
            self._aligned = None
            return
        snapshot = state.snapshot(now_us)
        if goes_on(self.policies.comm):
            snapshot = replace(snapshot, aligned=self._aligned)
        raw = self.policies.comm.align(placed, snapshot)
        found = left_alone(raw, state.released) if is_verified(self.policies.comm) else raw
        state.alignment = self._with_paths(replace(found, grounds=None))
        kept = {one.jobs: one for one in state.alignment.released}
        state.released = kept  # of others some have gone, or more have come: they are managed
        self._aligned = Aligned(state.alignment, {p.job: p for p in placed}, raw.grounds)
        if state.alignment.recompute:
            out.recompute = self._recomputation(placed, snapshot)

    def _with_paths(self, alignment: Alignment) -> Alignment:
        state = self.state
        paths = job_paths(state.placed.values(), state.fabric, state.hosts, alignment.paths)
        return alignment if paths == alignment.paths else replace(alignment, paths=paths)

    def _to_align(self) -> list[PlacedJob]:
        unprofiled = aligns_unprofiled(self.policies.comm)
        known = self._aligned.jobs if self._aligned is not None else {}
        return [
            p
            for p in self.state.placed.values()
            if known.get(p.job) is p or p.communicates or (unprofiled and p.may_communicate)
        ]

    def _recomputation(self, placed: Sequence[PlacedJob], snapshot: Snapshot) -> Recomputation:
        state = self.state
        own = replace(
            snapshot,
            hosts=dict(state.hosts),
            zones=dict(state.zones),
            jobs={},
            network=NetworkView(),
            aligned=self._aligned,
        )
        released, paths = dict(state.released), state.alignment.paths
        return Recomputation(self.policies.comm, tuple(placed), own, state.placed_version, released, paths)

    def _move(self, now_us: int, out: Outcome) -> None:
        """Take a job off its hosts that a new profile has made incompatible with its neighbours."""
        rule = rule_of(self.policies.comm)
        if rule is None:
            return
        measured = {e.job for e in out.recorded if isinstance(e, ev.ProfileMeasured)}
        found = to_move(self.state, measured, self.policies, self.tuning, rule, now_us) if measured else None
        if found is not None:
            self._record(ev.JobMoved(*found), now_us, out)


def in_order(pending: Iterable[Job], queue: QueuePolicy, snapshot: Snapshot) -> list[Job]:
    """The pending jobs in the order in which they would be tried now; last those that may not be yet."""
    ready: list[Job] = []
    later: list[Job] = []
    for job in pending:
        (ready if not_yet(job, snapshot.now_us) is None else later).append(job)
    return [*by_tier(queue.order(ready, snapshot), snapshot), *later]
