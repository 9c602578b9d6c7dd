"""The journal: what the leader took in, when, in which batches, and what it decided.

Two kinds of entries. A *start* holds everything that decisions depend on from there on: the
policies with their options, the rules, the tuning and the state; a leader writes one before its
first step, and then once a day, so that what is older can be forgotten. A *step* holds one batch:
its events as they took effect, the decisions, and a digest of the plan (actions and alignment).
A `Cycle` that is made from a start and takes the same steps decides the same.

Steps in which nothing happened and nothing was looked at are not written; nor are events that
decide nothing (`SILENT`). What a job runs (script, arguments, environment) is not written either, nor
are variables of hosts that are not rm's own (`rm_…`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.journal.digest import Digests
from rm.core.journal.plain import from_plain, to_plain
from rm.core.journal.starting_point import dump_state, restore_state, stats_from, stats_row
from rm.core.model.network.links import LinkStats
from rm.core.registry import KINDS
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.store import START, STEP, Entry
from rm.errors import StoreError

FORMAT = 1
START_EVERY_US = 24 * 3_600_000_000
# The outcome of actions, whose consequences are events of their own, and the passing of time.
SILENT = (ev.ActionSettled, ev.Tick)
EVENTS: dict[str, type] = {kind.__name__: kind for kind in ev.Event.__args__}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy by its name, with all its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """What decides besides the state: `policies` by kind (queue, placement, comm), the version of
    rm that they were of, and the rules and the tuning."""

    rm: str
    policies: Mapping[str, Chosen]
    rules: Rules = field(default_factory=Rules)
    tuning: Tuning = field(default_factory=Tuning)


@dataclass(frozen=True, slots=True)
class Start:
    """The state before the step that follows. `resumed`: the same leader went on; otherwise a
    daemon began here, and all that it knew it had read from the store."""

    at_us: int
    setup: Setup
    state: ClusterState
    resumed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One batch. `events` in their order; `decided` are those that the cycle added of itself: hosts
    given up before them, jobs placed and moved after them. `number` counts from 1 at each start."""

    at_us: int
    number: int
    events: tuple[ev.Event, ...]
    decided: tuple[ev.Event, ...]
    plan: str


class Recorder:
    """Makes the entries of one leader's life; `before` and `after` every step, and each entry is
    committed with that step."""

    def __init__(self, rm: str, policies: Mapping[str, Chosen]) -> None:
        self._rm = rm
        self._policies = dict(policies)
        self._started_us: int | None = None
        self._number = 0
        self._digests = Digests()

    def start_over(self) -> None:
        """The state was read from the store again: the next step begins with a start, as in a new life."""
        self._started_us = None

    def before(self, cycle: Cycle, now_us: int) -> tuple[Entry, ...]:
        """A start, if one is due. The cycle then forgets what it knows beyond the state, so that
        it and its copy go on alike."""
        first = self._started_us is None
        if self._started_us is not None:
            if now_us - self._started_us < START_EVERY_US:
                return ()
            cycle.start_over(aligned=True)
        self._started_us, self._number = now_us, 0
        setup = Setup(self._rm, self._policies, cycle.rules, cycle.tuning)
        body = {
            "format": FORMAT,
            **to_plain(setup),
            "resumed": not first,
            "state": dump_state(cycle.state, now_us),
        }
        return (Entry(now_us, START, body),)

    def after(
        self, cycle: Cycle, events: Sequence[ev.Event], outcome: Outcome, now_us: int
    ) -> tuple[Entry, ...]:
        """The step that `events` made, if anything came of it."""
        given, decided = taken(events, outcome)
        plan = self._digests.of(outcome, cycle.state.alignment)
        if not (given or decided or plan or outcome.looked):
            return ()
        self._number += 1
        body: dict[str, Any] = {"n": self._number}
        if given:
            body["events"] = [event_to_plain(e, now_us) for e in given]
        if decided:
            body["decided"] = [event_to_plain(e, now_us) for e in decided]
        if plan:
            body["plan"] = plan
        return (Entry(now_us, STEP, body),)


def named(policies: Policies) -> dict[str, Chosen]:
    """The policies by kind, of which nothing but the names is known."""
    return {kind: Chosen(getattr(policies, kind).name) for kind in KINDS}


def taken(events: Sequence[ev.Event], outcome: Outcome) -> tuple[list[ev.Event], list[ev.Event]]:
    """(events that took effect and may decide something, what the cycle added of itself)."""
    refused = outcome.refused
    given: list[ev.Event] = [
        e for i, e in enumerate(events) if i not in refused and not isinstance(e, SILENT)
    ]
    accepted, recorded = len(events) - len(refused), outcome.recorded
    last = next((i for i in range(len(recorded), 0, -1) if not isinstance(recorded[i - 1], ev.DECISIONS)), 0)
    return given, [*recorded[: last - accepted], *recorded[last:]]


def parse(entry: Entry) -> Start | Step | None:
    """The entry's meaning; None for entries of an rm that did not yet write starts and steps.

    Raises:
        StoreError: the entry is damaged, or of a newer rm.
    """
    try:
        if entry.kind == START:
            return _start(entry)
        return _step(entry) if entry.kind == STEP else None
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"A {entry.kind} of the journal is damaged: {error}.",
            "Replay from a later start (--since), or export the journal again.",
        ) from None


def _start(entry: Entry) -> Start:
    body = entry.body
    if body["format"] != FORMAT:
        raise StoreError(
            f"The journal has format {body['format']}, and this rm reads {FORMAT}.",
            "Replay it with the rm that wrote it.",
        )
    setup = from_plain(Setup, {k: body[k] for k in ("rm", "policies", "rules", "tuning") if k in body})
    return Start(entry.at_us, setup, restore_state(body["state"], entry.at_us), bool(body["resumed"]))


def _step(entry: Entry) -> Step:
    body, at_us = entry.body, entry.at_us
    return Step(
        at_us,
        int(body["n"]),
        tuple(event_from_plain(e, at_us) for e in body.get("events", ())),
        tuple(event_from_plain(e, at_us) for e in body.get("decided", ())),
        str(body.get("plan", "")),
    )


def event_to_plain(event: ev.Event, now_us: int) -> Any:
    """An object with the event's name and fields; a measurement, of which there are many, is
    an array: source, destination, and the `stats_row`."""
    if isinstance(event, ev.Measured):
        return [event.source, event.destination, *stats_row(event.stats, now_us)]
    return {"event": type(event).__name__, **to_plain(event)}


def event_from_plain(plain: Any, now_us: int) -> ev.Event:
    if isinstance(plain, list):
        source, destination, *row = plain
        stats: LinkStats = stats_from(row, now_us)
        return ev.Measured(source, destination, stats)
    kind = EVENTS.get(plain["event"])
    if kind is None:
        raise ValueError(f"there is no event {plain['event']!r:.40}")
    event: ev.Event = from_plain(kind, plain)
    return event
