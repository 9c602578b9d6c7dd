"""Runs of playbooks that shells tell of: their lines come by requests, and not from a process here.

A shell runs with its user's files, variables and secrets. What it tells is that user's word: it takes the
secrets out itself, by the code of the daemon's own runs, and the record says who told it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rm.core.playbook_runs import PlaybookRun, PlaybookRuns, RunOptions, RunState
from rm.core.ports import Clock
from rm.daemon.playbooks.runner import TOLD_NO_MORE, Runner
from rm.errors import Conflict, LimitReached, NotFound

AT_ONCE = 50  # each has a thread
AT_ONCE_OF_ONE = 20  # so that nobody has all of them
AHEAD_MOST = 4_000  # lines that wait to be recorded
PATIENCE_S = 10.0
SILENT_S = 600.0  # a run that nothing is told of: its shell tells every minute that it goes on
SILENT = "Nothing has been told of it for ten minutes: its shell may have ended, or not reach the daemon."


class _Shell:
    """What a runner needs of a run's process."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue(AHEAD_MOST)
        self.over = threading.Event()
        self.heard_s = time.monotonic()
        self._batch = 0  # the newest that has arrived
        self._telling = threading.Lock()

    def tell(self, lines: Sequence[Mapping[str, Any]], batch: int) -> bool:
        """Waits while the database is behind; False: the run is over. Raises LimitReached."""
        self.heard_s = time.monotonic()
        with self._telling:  # also while the same batch, whose answer was late, is still being put
            if 0 < batch <= self._batch:
                return True
            if self.over.is_set():
                return False
            self._put(lines)
            self._batch = max(self._batch, batch)
            return True

    def _put(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            try:
                self.lines.put(dict(line), timeout=PATIENCE_S)
            except queue.Full:
                raise LimitReached("The database is behind with the report of this run.") from None
            if line["kind"] == "end":
                self.stop()
                return

    def stop(self) -> None:
        if not self.over.is_set():
            self.over.set()
            self.lines.put(None)

    kill = stop

    def wait(self, timeout_s: float | None = None) -> int | None:
        return None


class Telling:
    """For any thread; `enabled` as rm.toml has it."""

    def __init__(self, *, runs: PlaybookRuns, clock: Clock, enabled: bool) -> None:
        self._runs, self._clock, self._enabled = runs, clock, enabled
        self._shells: dict[int, _Shell] = {}
        self._ended: dict[int, _Shell] = {}  # the newest: their shells may not have heard it
        self._guard = threading.Lock()
        self.runner = Runner(
            runs=runs, clock=clock, start=lambda orders: orders["shell"], at_once=AT_ONCE, in_turn=False,
            ended=TOLD_NO_MORE,
        )  # fmt: skip

    def begin(self, playbook: str, options: RunOptions, variables: Sequence[str], by: str) -> PlaybookRun:
        """Raises Conflict, LimitReached and StoreError."""
        if not self._enabled:
            raise Conflict("This daemon records no runs of shells.", "playbooks.record of rm.toml says so.")
        self.look()
        with self._guard:
            if len(self._shells) >= AT_ONCE:
                raise LimitReached(f"{AT_ONCE} runs of shells are being recorded already.")
            if sum(one.by == by for one in self._shells.values()) >= AT_ONCE_OF_ONE:
                raise LimitReached(f"{AT_ONCE_OF_ONE} runs in shells of {by} are being recorded already.")
            shell = _Shell(by)
            run = PlaybookRun(
                playbook, by, self._clock.now_us(), options=options, private=tuple(variables), told=True
            )
            run = self.runner.add(run, {"shell": shell})
            self._shells[run.id] = shell
            return run

    def progress(self, id: int, lines: Sequence[Mapping[str, Any]], by: str, batch: int = 0) -> None:
        """What comes in a batch that has arrived already is not recorded again; 0: it has no number.

        Raises NotFound where no run of this id of this person's is being told of, and LimitReached."""
        with self._guard:
            shell = self._shells.get(id) or self._ended.get(id)
        if shell is None or shell.by != by or not shell.tell(lines, batch):
            raise NotFound(f"No run {id} is being told of by {by}.", "`rmx playbook runs` lists them.")
        if shell.over.is_set():
            with self._guard:
                if self._shells.pop(id, None) is not None:
                    self._ended[id] = shell
                while len(self._ended) > AT_ONCE:
                    del self._ended[next(iter(self._ended))]

    def look(self) -> None:
        """End the runs of which nothing is told any more."""
        now_s = time.monotonic()
        with self._guard:
            silent = [id for id, shell in self._shells.items() if now_s - shell.heard_s > SILENT_S]
            gone = [self._shells.pop(id) for id in silent]
        for shell in gone:
            end = {"kind": "end", "state": RunState.INTERRUPTED, "message": SILENT}
            shell.lines.put({**end, "recap": {}, "not_reached": []})
            shell.stop()
