"""A journal under other policies: the same submissions, requests, hosts and measurements, and jobs
that run as long as they really ran, wherever and whenever these policies place them.

What the users and the machines did is taken from the journal at its time: submissions, requests,
hosts that fell silent, came back or booted, measurements. What followed from the decisions of then
is not: starts and ends are made anew by the model hosts (`rm.sim.replayed_hosts`), after the
job's own time from placement to start and its own run times; none is handed out in a slice. How much
faster or slower a job would have run beside other neighbours is not in a journal; the links' scores
hint at it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from rm.core.jobs import events as ev
from rm.core.journal.journal import Chosen, Setup, Start
from rm.core.model.host import HostState
from rm.core.model.job import JobState
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.store import Entry
from rm.sim.recording import Recording, score_of
from rm.sim.renamed import Renamed, Request
from rm.sim.replay import policies_of, records
from rm.sim.replayed_hosts import ReplayedHosts

# Facts of the outside; all other events follow from decisions.
REQUESTS = get_args(Request)
OUTSIDE = (
    ev.JobSubmitted, ev.ArrayLimitSet, ev.HostAdded, ev.HostRemoved, ev.HostDrained, ev.HostResumed,
    ev.Measured, ev.ZoneMeasured, ev.ReservationSet, ev.ReservationDeleted, ev.ReservationRenewed,
)  # fmt: skip
RESTARTED = "it has not answered since the daemon started"


@dataclass(frozen=True, slots=True)
class Decider:
    """The journal's policies, but `changed` ones by kind; a bare name keeps the options that the
    policy had in the journal, if it was in force, and its defaults otherwise."""

    changed: Mapping[str, Chosen | str]
    tuning: Tuning | None

    def choose(self, setup: Setup) -> dict[str, Chosen]:
        made = dict(setup.policies)
        for kind, wanted in self.changed.items():
            if isinstance(wanted, Chosen):
                made[kind] = wanted
            elif wanted.replace("_", "-") != made[kind].name.replace("_", "-"):
                made[kind] = Chosen(wanted)
        return made

    def decide(self, setup: Setup) -> tuple[Policies, Tuning]:
        """Raises:
        ConfigError: there is no such policy, or it has no such option.
        """
        tuning = replace(self.tuning or setup.tuning, slice_us=0)
        return policies_of(replace(setup, policies=self.choose(setup))), tuning


@dataclass(slots=True)
class Fate:
    """What became of one job; `start_us`, `hosts` and `score` of its first attempt that started."""

    start_us: int | None = None
    hosts: tuple[str, ...] = ()
    score: float | None = None
    end_us: int | None = None
    state: JobState = JobState.PENDING


class WhatIf:
    """One play. Build it, call `play` once with the journal's entries."""

    def __init__(self, recording: Recording, decider: Decider) -> None:
        self._recording = recording
        self._decider = decider
        self._heap: list[tuple[int, int, Callable[[int], list[ev.Event]]]] = []
        self._number = 0  # of the next heap entry: equal times keep their order
        self._now_us = 0
        self._renamed = Renamed(recording)
        self._hosts = ReplayedHosts(recording, self._renamed, self._at)
        self._cycle: Cycle | None = None
        self._scores: dict[int, float | None] = {}
        self._kept: set[int] = set()  # the jobs with which the journal begins
        self.fates: dict[int, Fate] = {}  # by the jobs' ids in the journal

    @property
    def assumed(self) -> set[int]:
        """Jobs that ran although their run time is not in the journal."""
        return self._hosts.assumed

    def play(self, entries: Iterable[tuple[int, Entry]]) -> dict[int, Fate]:
        """From the journal's first start to the end of its last job, if that can end.

        Raises:
            StoreError, ConfigError: see `rm.sim.replay`.
        """
        for seq, record in records(entries):
            if seq > self._recording.last_seq:
                break  # a running daemon writes on
            if self._cycle is not None:
                self._pass_until(record.at_us)
            if isinstance(record, Start):
                self._start(record)
            else:
                self._turn(self._outside(record.events, record.at_us), record.at_us)
        self._pass_until(None)
        return self.fates

    # -- time ----------------------------------------------------------------------------------

    def _at(self, at_us: int, handler: Callable[[int], list[ev.Event]]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (at_us, self._number, handler))

    def _pass_until(self, until_us: int | None) -> None:
        """All that is due before that time."""
        cycle = self._cycle
        while cycle is not None:
            due = [self._heap[0][0]] if self._heap else []
            if (clock_us := cycle.next_due_us()) is not None:
                due.append(clock_us)
            if not due or (until_us is not None and min(due) >= until_us):
                return
            now_us = max(self._now_us, min(due))
            events: list[ev.Event] = []
            while self._heap and self._heap[0][0] <= now_us:
                events += heapq.heappop(self._heap)[2](now_us)
            self._turn(events, now_us)

    def _turn(self, events: list[ev.Event], now_us: int) -> None:
        """One step of the cycle, and what it asks of the hosts."""
        cycle = self._cycle
        assert cycle is not None
        self._now_us = now_us
        outcome = cycle.step(events, now_us)
        self._note(cycle, outcome, now_us)
        for intent in outcome.intents:
            self._hosts.obey(intent.action, now_us)
        self._hosts.repeat(now_us)
        cycle.state.forget_finished()

    # -- what the journal tells ----------------------------------------------------------------

    def _outside(self, told: Iterable[ev.Event], now_us: int) -> list[ev.Event]:
        assert self._cycle is not None
        state = self._cycle.state
        events: list[ev.Event] = []
        for event in told:
            if isinstance(event, ev.HostUp):
                events += self._hosts.hello(state, event, now_us)
            elif isinstance(event, ev.HostSilent):
                self._hosts.silence(event.host)
                events.append(event)
            elif isinstance(event, REQUESTS):
                events.append(self._renamed.here(event, self._kept))
            elif isinstance(event, OUTSIDE):
                events.append(event)
        return events

    def _start(self, start: Start) -> None:
        policies, tuning = self._decider.decide(start.setup)
        if self._cycle is None:
            self._cycle = Cycle(start.state, policies, start.setup.rules, tuning)
            self._cycle.start_over(aligned=False)
            self._kept = set(start.state.jobs)
            # elements get ids behind all of the journal, whose jobs keep theirs
            self._cycle.state.next_job = self._renamed.first
            for job in start.state.jobs.values():
                self.fates[job.id] = Fate(state=job.state, end_us=job.ended_us)
                if job.occupies and job.placement is not None:
                    self.fates[job.id].start_us = job.started_us
                    self.fates[job.id].hosts = job.placement.hosts
            self._hosts.adopt(start)
            self._turn([], start.at_us)
        elif not start.resumed:
            state = self._cycle.state
            self._cycle = Cycle(state, policies, start.setup.rules, tuning)
            self._cycle.start_over(aligned=False)
            self._turn(self._restarted(start), start.at_us)

    def _restarted(self, start: Start) -> list[ev.Event]:
        """A new daemon: no host has answered it yet. Whatever it knows that the steps did not
        report (of a time without this journal) is reported now."""
        assert self._cycle is not None
        mine, theirs = self._cycle.state, start.state
        events: list[ev.Event] = []
        for name, host in mine.hosts.items():
            self._hosts.silence(name)
            if name not in theirs.hosts:
                events.append(ev.HostRemoved(name, "the daemon"))
            elif host.state is HostState.UP:
                events.append(ev.HostSilent(name, RESTARTED))
        events += [ev.HostAdded(h) for n, h in theirs.hosts.items() if n not in mine.hosts]
        events += [
            ev.ZoneMeasured(z.name, z.delay_us) for z in theirs.zones.values() if mine.zones.get(z.name) != z
        ]
        events += [
            ev.Measured(*pair, stats)
            for pair, stats in theirs.network.items()
            if mine.network.get(pair) != stats
        ]
        events += [
            ev.JobSubmitted(job.id, job.spec)
            for job in theirs.jobs.values()
            if job.id not in self.fates and not job.state.final and job.array_task is None
        ]
        return events

    # -- what comes of it ----------------------------------------------------------------------

    def _note(self, cycle: Cycle, outcome: Outcome, now_us: int) -> None:
        state = cycle.state
        for event in outcome.recorded:
            if isinstance(event, ev.JobPlaced):
                self._renamed.add(event)
                self._scores[event.job] = score_of(event.job, state.alignment)
        for job_id in outcome.changes.jobs:
            known = self._renamed.recorded(job_id)
            if known is None:
                continue  # nothing is recorded of it to compare with
            job, fate = state.jobs[job_id], self.fates.setdefault(known, Fate())
            if fate.start_us is None and job.started_us is not None and job.placement is not None:
                fate.start_us, fate.hosts = job.started_us, job.placement.hosts
                fate.score = self._scores.get(job_id)
            fate.state, fate.end_us = job.state, job.ended_us
