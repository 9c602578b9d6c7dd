"""Carries out runs of playbooks in processes of their own: some at once, of one playbook one at a time."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from rm.core.playbook_runs import PlaybookRun, PlaybookRuns, RunState, TaskOutcome
from rm.core.ports import Clock
from rm.errors import Conflict, LimitReached, NotFound, RmError, StoreError
from rm.typed import convert
from rm.units import HOUR_US

log = logging.getLogger(__name__)
FLUSH_S = 0.3
OUTCOMES_AT_ONCE = 200
OUTCOMES_MOST = 200_000  # of one run; the others are counted only
DETAILS_MOST = 64 << 20  # characters of one run's messages, outputs, differences and items
SHORT_MOST = 300  # characters of a message beyond that
NOTES_MOST = 100
WAITING_MOST = 100  # of one person
WAITING_IN_ALL = 2_000
CLOSE_S = 10.0  # for runs to be broken off when the daemon ends
PATIENCE_S = 60.0  # for a database that is away when a run has ended
LEFT = "Tasks that had begun on a host may have finished there; what follows them was not begun."
TOLD_NO_MORE = "The daemon ended; what the run did afterwards is not known to it."
DAEMON_ENDED = f"The daemon ended while the playbook ran. {LEFT} Run it again: it does what is missing."
OF_STATUS = {"changed": ("ok", "changed"), "ignored": ("ok", "ignored")}


class Process(Protocol):
    """`rm.daemon.playbooks.process.Process`."""

    lines: queue.Queue[dict[str, Any] | None]

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout_s: float | None = None) -> int | None: ...


Start = Callable[[Mapping[str, Any]], Process]  # raises OSError


@dataclass(slots=True)
class _Running:
    """A run that waits or runs. `doing`: by host the task that it is at and since when, microseconds."""

    run: PlaybookRun
    orders: Mapping[str, Any]
    process: Process | None = None
    outcomes: list[TaskOutcome] = field(default_factory=list)
    doing: dict[str, tuple[str, int]] = field(default_factory=dict)
    recap: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: int = 0
    details: int = 0  # characters of what is kept
    stopped: str = ""  # why it is broken off
    end: Mapping[str, Any] | None = None
    waited: bool = False
    since_us: int = 0  # on the clock that nobody sets


class Runner:
    """`start` makes the process of a run out of its orders; `at_once` of them run at a time, each for
    `time_limit_us` at most (0 = none). `may_start`: may this person start playbooks still? May raise
    RmError. `in_turn`: of a playbook one run at a time. `ended` is said of runs when the daemon ends."""

    def __init__(
        self, *, runs: PlaybookRuns, clock: Clock, start: Start, at_once: int, time_limit_us: int = 0,
        may_start: Callable[[str], bool] = lambda user: True, in_turn: bool = True, ended: str = DAEMON_ENDED,
    ) -> None:  # fmt: skip
        self._runs, self._clock, self._start, self._at_once = runs, clock, start, at_once
        self._time_limit_us, self._may_start = time_limit_us, may_start
        self._in_turn, self._ended = in_turn, ended
        self._guard = threading.RLock()
        self._waiting: list[_Running] = []
        self._running: dict[int, _Running] = {}
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def mark_interrupted(self) -> None:
        """What an earlier daemon left unfinished. Raises StoreError."""
        if found := self._runs.interrupt(DAEMON_ENDED, TOLD_NO_MORE, self._clock.now_us()):
            log.warning("%d runs of playbooks were cut off by the end of a daemon", found)

    def add(self, run: PlaybookRun, orders: Mapping[str, Any]) -> PlaybookRun:
        """Raises LimitReached, Conflict and StoreError."""
        with self._guard:
            if self._closed:
                raise Conflict("The daemon is ending.")
            theirs = sum(one.run.by == run.by for one in self._waiting)
            if theirs >= WAITING_MOST or len(self._waiting) >= WAITING_IN_ALL:
                said = f"{theirs} runs of playbooks of {run.by} wait already."
                if theirs < WAITING_MOST:
                    said = f"{WAITING_IN_ALL} runs of playbooks wait already."
                raise LimitReached(said, "Stop some of them.")
            run = replace(run, id=self._runs.add(run))
            made = _Running(run, orders)
            self._waiting.append(made)
            self._next()
            made.waited = made in self._waiting
            return run

    def current(self, run: PlaybookRun) -> tuple[PlaybookRun, Mapping[str, tuple[str, int]]]:
        """The run with what is known of it by now, and what its hosts are at."""
        with self._guard:
            one = self._running.get(run.id)
            if one is None or run.state.over:
                return run, {}
            recap = {host: dict(counts) for host, counts in sorted(one.recap.items())}
            return replace(one.run, recap=recap), dict(one.doing)

    def stop(self, id: int, by: str) -> None:
        """Raises NotFound where no run of this id waits or runs here."""
        with self._guard:
            waiting = next((one for one in self._waiting if one.run.id == id), None)
            running = self._running.get(id)
            if waiting is not None:
                self._waiting.remove(waiting)
            elif running is None:
                raise NotFound(f"No run {id} waits or runs.", "`rmx playbook runs` lists them.")
            else:
                running.stopped = running.stopped or f"{by} stopped it. {LEFT}"
                if running.process is not None:
                    running.process.stop()
        if waiting is not None:  # the database may be away, and others need the guard
            self._over(waiting, RunState.INTERRUPTED, f"{by} stopped it before it began.")

    def close(self) -> None:
        """The daemon ends: so do all runs."""
        with self._guard:
            self._closed = True
            for one in self._waiting:
                self._over(one, RunState.INTERRUPTED, "The daemon ended before it began.")
            self._waiting.clear()
            for one in self._running.values():
                one.stopped = one.stopped or self._ended
                if one.process is not None:
                    one.process.stop()
            threads = list(self._threads)
        until_s = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        with self._guard:
            left = list(self._running.values())
        for one in left:
            if one.process is not None:
                one.process.kill()
            self._over(one, RunState.INTERRUPTED, self._ended)

    # -- one run, in a thread of its own

    def _next(self) -> None:
        """Begins what may begin; under the guard."""
        busy = {one.run.playbook for one in self._running.values()}
        for one in list(self._waiting):
            if len(self._running) >= self._at_once:
                return
            if self._in_turn and one.run.playbook in busy:
                continue
            busy.add(one.run.playbook)
            self._waiting.remove(one)
            self._running[one.run.id] = one
            thread = threading.Thread(target=self._work, args=(one,), name=f"playbook run {one.run.id}")
            thread.daemon = True
            self._threads.add(thread)
            thread.start()

    def _work(self, one: _Running) -> None:
        try:
            self._follow(one)
        except Exception:  # a defect: the run must not stay open, nor keep others waiting
            log.exception("run %d of the playbook %s", one.run.id, one.run.playbook)
            self._over(one, RunState.FAILED, "The daemon met a defect of its own; its log has the details.")
        finally:
            with self._guard:
                self._running.pop(one.run.id, None)
                self._threads.discard(threading.current_thread())
                if not self._closed:
                    self._next()

    def _follow(self, one: _Running) -> None:
        if one.waited and (refusal := self._refusal(one.run.by)):
            self._over(one, RunState.FAILED, refusal)
            return
        one.since_us = self._clock.monotonic_us()
        one.run = replace(one.run, state=RunState.RUNNING, began_us=self._clock.now_us())
        self._put(one.run)
        try:
            process = self._start(one.orders)
        except OSError as error:
            self._over(one, RunState.FAILED, f"It could not be started: {error}.")
            return
        finally:
            one.orders = {}  # its secrets are needed no longer
        with self._guard:
            one.process = process
            if one.stopped:  # meanwhile
                process.stop()
        self._read(one, process)
        code = process.wait()
        self._flush_patiently(one)
        end = one.end or {}
        message = one.stopped or str(end.get("message", ""))
        if one.end is None and not one.stopped:
            message = f"The process of the run ended with code {code} before the playbook did. {LEFT}"
        state = RunState(end.get("state", RunState.FAILED))
        if one.stopped and (state is RunState.INTERRUPTED or one.end is None):
            state = RunState.INTERRUPTED
        elif one.stopped:
            message = str(end.get("message", ""))  # it was over before it was stopped
        if state is RunState.INTERRUPTED and not message:
            message = f"It was broken off. {LEFT}"
        recap = end.get("recap") or one.recap
        reached = tuple(map(str, end.get("not_reached", ())))
        with self._guard:
            one.run = replace(one.run, recap=recap, not_reached=reached)
        self._over(one, state, message)

    def _refusal(self, by: str) -> str:
        """Why a run that waited is not begun, "" where it is: the right may have been taken meanwhile."""
        try:
            may = self._may_start(by)
        except RmError as error:
            return f"It was not begun: {error.what}"
        return "" if may else f"{by} may not start playbooks any more: it was not begun."

    def _read(self, one: _Running, process: Process) -> None:
        flush_s = 0.0
        while True:
            try:
                line = process.lines.get(timeout=FLUSH_S)
            except queue.Empty:
                line = {}
            if line is None:
                return
            self._watch(one, process)
            if line:
                with self._guard:
                    self._take(one, line)
            now_s = time.monotonic()
            if one.outcomes and (len(one.outcomes) >= OUTCOMES_AT_ONCE or now_s - flush_s >= FLUSH_S):
                flush_s = now_s
                try:
                    self._flush(one)
                except StoreError as error:
                    log.warning("run %d of a playbook waits for the database: %s", one.run.id, error.what)

    def _watch(self, one: _Running, process: Process) -> None:
        """Breaks a run off that takes longer than it may."""
        late = self._clock.monotonic_us() - one.since_us >= self._time_limit_us > 0
        with self._guard:
            if late and not one.stopped:
                hours = self._time_limit_us / HOUR_US
                one.stopped = f"It took longer than playbooks.time_limit_hours, {hours:g}, allow. {LEFT}"
                process.stop()

    def _take(self, one: _Running, line: Mapping[str, Any]) -> None:
        kind = line.get("kind")
        if kind == "start":
            one.doing[str(line["host"])] = (str(line["task"]), self._clock.now_us())
        elif kind == "note" and len(one.run.notes) < NOTES_MOST:
            one.run = replace(one.run, notes=(*one.run.notes, str(line["text"])))
        elif kind == "end":
            one.end = line
        elif kind == "task":
            try:
                found = convert(line["outcome"], TaskOutcome)
            except msgspec.ValidationError as error:
                log.warning("run %d of a playbook said what does not fit: %s", one.run.id, error)
                return
            one.doing.pop(found.host, None)
            counts = one.recap.setdefault(found.host, {})
            for name in OF_STATUS.get(found.status, (found.status,)):
                counts[name] = counts.get(name, 0) + 1
            self._keep(one, found)

    def _keep(self, one: _Running, found: TaskOutcome) -> None:
        one.kept += 1
        said = ""
        if one.kept == OUTCOMES_MOST + 1:
            said = f"Only the first {OUTCOMES_MOST} results of tasks are kept; the counters have all."
        if one.kept <= OUTCOMES_MOST:
            before, one.details = one.details, one.details + size_of(found)
            if one.details > DETAILS_MOST:
                found = replace(found, message=found.message[:SHORT_MOST], output="", diffs=(), items=())
                if before <= DETAILS_MOST:
                    said = f"Of what follows only the first {SHORT_MOST} characters of messages are kept."
            one.outcomes.append(found)
        if said:
            one.run = replace(one.run, notes=(*one.run.notes, said))

    def _flush(self, one: _Running) -> None:
        """Raises StoreError."""
        some = list(one.outcomes)
        self._runs.record(one.run.id, some)
        del one.outcomes[: len(some)]

    def _flush_patiently(self, one: _Running) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while one.outcomes:
            try:
                self._flush(one)
            except StoreError as error:
                if time.monotonic() >= until_s:
                    log.error("results of run %d of a playbook are lost: %s", one.run.id, error.what)
                    return
                time.sleep(FLUSH_S)

    def _put(self, run: PlaybookRun) -> None:
        try:
            self._runs.put(run)
        except StoreError as error:
            log.warning("run %d of a playbook could not be recorded: %s", run.id, error.what)

    def _over(self, one: _Running, state: RunState, message: str) -> None:
        one.run = replace(one.run, state=state, ended_us=self._clock.now_us(), message=message)
        until_s = time.monotonic() + (0 if self._closed else PATIENCE_S)
        while True:
            try:
                self._runs.put(one.run)
                break
            except StoreError as error:
                if time.monotonic() >= until_s:  # the next daemon marks it as interrupted
                    log.error("the end of run %d of a playbook is not recorded: %s", one.run.id, error.what)
                    return
                time.sleep(FLUSH_S)
        log.info("run %d of the playbook %s: %s", one.run.id, one.run.playbook, state)


def size_of(outcome: TaskOutcome) -> int:
    """In characters of the texts that may be long."""
    items = sum(len(label) + len(message) for label, _, message in outcome.items)
    return len(outcome.message) + len(outcome.output) + sum(map(len, outcome.diffs)) + items
