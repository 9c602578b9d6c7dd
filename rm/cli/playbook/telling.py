"""Tells the daemon of a run in this shell, while it goes on: each task on each host, without secrets.

In a thread beside the run, which waits for nothing of it but a moment at its end. Without a daemon, or where
it takes no such report of this user, there is none.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rm.adapters.playbook.secrets import masked
from rm.cli.playbook.work import Said
from rm.cli.session import Session
from rm.core.playbook_runs import RunState
from rm.errors import RmError, Unreachable
from rm.playbook.run.report import Progress, Report

BATCH = 200  # lines of one request
BATCH_CHARACTERS = 256 << 10
PAUSE_S = 0.5
ALIVE_S = 60.0  # at least so often the daemon hears that the run goes on
END_S = 10.0  # that the end of the run waits for its report
AGAIN_S = 1.0  # after a request that did not get there
TIMES = 5
NOTE_MOST = 600


class Telling(Said):
    """`about` are the fields of a TellPlaybook; `sealed` is a set of secrets that grows while the run goes
    on, and `note` gets the reason once when nothing is told."""

    def __init__(
        self, session: Session, about: Mapping[str, Any], sealed: set[str], note: Callable[[str], None]
    ) -> None:
        super().__init__(None)
        self._session, self._about, self._note = session, about, note
        self._sealed = sealed
        self._own: set[str] = set()
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._off = threading.Event()
        self._thread = threading.Thread(target=self._work, name="telling", daemon=True)
        self._thread.start()

    def hide(self, *texts: str | None) -> None:
        """Secrets besides those that the vault opens."""
        self._own.update(text for text in texts if text)

    def tell(self, event: Progress) -> None:
        if self._off.is_set():
            return
        self.secrets = self._sealed | self._own
        if event.result is not None and self._own:  # before it is cut: a part of one would not be known
            event = replace(event, result=masked(event.result, self._own))
        super().tell(event)

    def finish(self, report: Report | None, message: str = "") -> None:
        """The run is over, or was broken off by an error."""
        if not self._off.is_set():
            self.secrets = self._sealed | self._own
            if report is not None:
                self.report(report)
            else:
                self.end(RunState.FAILED, message)
        self._lines.put(None)
        self._thread.join(END_S)

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.put(line)

    # -- in the thread

    def _work(self) -> None:
        try:
            self._follow()
        except RmError as error:
            self._note(f"The daemon keeps no report of this run: {error.what}")
        except Exception as error:  # the run goes on
            self._note(f"The daemon keeps no report of this run: rm met a defect of its own, {error!r:.200}.")
        finally:
            self._off.set()

    def _follow(self) -> None:
        from rm.api.playbooks import OnePlaybookRun, TellPlaybook
        from rm.client.asking import Asking

        ask = Asking(self._session.new_connection())
        try:
            ask.connection.open()
            run = ask.post(OnePlaybookRun, "playbook-runs", body=TellPlaybook(**self._about)).run
            over, batch = False, 0
            while not over:
                lines, over = self._some()
                if not (over and not lines):
                    batch += 1
                    self._post(ask, run.id, batch, lines)
        finally:
            ask.connection.close()

    def _some(self) -> tuple[list[dict[str, Any]], bool]:
        """The next lines, as soon as there are some and a moment has passed; and whether those are all."""
        from rm.api.playbooks import NOTES_MOST

        lines: list[dict[str, Any]] = []
        notes, size, until_s = 0, 0, time.monotonic() + ALIVE_S
        while len(lines) < BATCH and notes < NOTES_MOST and size < BATCH_CHARACTERS:
            try:
                line = self._lines.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                return lines, True
            if not lines:
                until_s = time.monotonic() + PAUSE_S
            lines.append(line)
            size += _size(line)
            notes += line["kind"] == "note"
        return lines, False

    def _post(self, ask: Any, id: int, batch: int, lines: Sequence[Mapping[str, Any]]) -> None:
        """What is told twice, since the answer was lost, is recorded once, by the number of the batch."""
        from rm.api.playbooks import OnePlaybookRun, TellProgress
        from rm.typed import convert

        body = convert({"batch": batch, **progress_of(lines)}, TellProgress)
        for left in range(TIMES - 1, -1, -1):
            try:
                ask.post(OnePlaybookRun, "playbook-runs", str(id), "progress", body=body)
                return
            except Unreachable:
                if not left:
                    raise
                time.sleep(AGAIN_S)


def progress_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lines as `rmx playbook work` says them, as a TellProgress. Of a host only the task counts that it is at
    after the last of them."""
    began: dict[str, str] = {}
    for line in lines:
        if line["kind"] == "start":
            began[line["host"]] = line["task"]
        elif line["kind"] == "task":
            began.pop(line["outcome"]["host"], None)
    end = next((line for line in lines if line["kind"] == "end"), None)
    return {
        "began": [{"host": host, "task": task} for host, task in began.items()],
        "outcomes": [line["outcome"] for line in lines if line["kind"] == "task"],
        "notes": [line["text"][:NOTE_MOST] for line in lines if line["kind"] == "note"],
        "end": None if end is None else {key: value for key, value in end.items() if key != "kind"},
    }


def _size(line: Mapping[str, Any]) -> int:
    outcome = line.get("outcome") or {}
    texts = (outcome.get("message", ""), outcome.get("output", ""), *outcome.get("diffs", ()))
    return sum(map(len, texts)) + sum(sum(map(len, item)) for item in outcome.get("items", ()))
