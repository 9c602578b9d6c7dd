"""The intents whose outcome is not known, by host: what is open, under way, or waits for an exit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rm.core.jobs.actions import Action, Collect, Discard, Intent
from rm.core.jobs.reconcile import is_end
from rm.daemon.execution.deliver import Delivery
from rm.protocol.request import Request


@dataclass(slots=True)
class Open:
    """An intent whose outcome is not known. `ended`: an exit came while it was under way; `tries`: how often
    it was sent and no answer came."""

    intent: Intent
    request: Request[Any] | None  # None: logs are collected, by many requests
    delivery: Delivery | None = None
    user: str = ""
    under_way: bool = False
    waits_for_exit: bool = False
    ended: bool = False
    tries: int = 0
    foreign: int = 0  # how often it was refused as another cluster's


class Outbox:
    """From any thread. An intent is never under way twice at once."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, Open]] = {}
        self._ends: dict[str, Counter[tuple[int, int]]] = {}  # how many of each (job, attempt), by host
        self._repeating: set[str] = set()
        self._lock = threading.Lock()

    def put(self, entries: Sequence[Open]) -> None:
        """All at once: nobody who repeats what is open finds a part of a slice."""
        with self._lock:
            for entry in entries:
                action = entry.intent.action
                self._open.setdefault(action.host, {})[entry.intent.id] = entry
                if is_end(action):
                    self._ends.setdefault(action.host, Counter())[action.job, action.attempt] += 1

    def remove(self, intent: Intent) -> None:
        action = intent.action
        with self._lock:
            found = self._open.get(action.host, {}).pop(intent.id, None)
            if found is not None and is_end(action):
                ends = self._ends[action.host]
                ends[action.job, action.attempt] -= 1
                if not ends[action.job, action.attempt]:
                    del ends[action.job, action.attempt]

    def is_to_end(self, action: Action) -> bool:
        """Is the end of the action's attempt on its host open?"""
        with self._lock:
            return (action.job, action.attempt) in self._ends.get(action.host, ())

    def of(self, host: str) -> list[Open]:
        """In the order in which they were decided."""
        with self._lock:
            return self._of(host)

    def _of(self, host: str) -> list[Open]:
        entries = self._open.get(host, {})
        return [entries[number] for number in sorted(entries)]

    def find(self, intent: Intent) -> Open | None:
        with self._lock:
            return self._open.get(intent.action.host, {}).get(intent.id)

    def forget(self, host: str) -> list[Open]:
        """What was open for a host that was removed."""
        with self._lock:
            entries = self._of(host)
            self._open.pop(host, None)
            self._ends.pop(host, None)
            return entries

    def collecting(self, job: int, attempt: int) -> list[Collect]:
        """The collections of this attempt's logs."""
        with self._lock:
            return [
                entry.intent.action
                for entries in self._open.values()
                for entry in entries.values()
                if isinstance(entry.intent.action, Collect)
                and (entry.intent.action.job, entry.intent.action.attempt) == (job, attempt)
            ]

    # -- what is under way

    def begin(self, entry: Open) -> bool:
        """It is under way now; False when it was before, or is settled."""
        with self._lock:
            if entry.under_way or not self._is_known(entry):
                return False
            entry.under_way, entry.waits_for_exit = True, False
            return True

    def begin_whole(self, entries: Sequence[Open]) -> list[Open] | None:
        """Those that are not settled are under way now; None, and nothing has changed, if one was before."""
        with self._lock:
            known = [entry for entry in entries if self._is_known(entry)]
            if any(entry.under_way for entry in known):
                return None
            for entry in known:
                entry.under_way, entry.waits_for_exit = True, False
            return known

    def _is_known(self, entry: Open) -> bool:
        return entry.intent.id in self._open.get(entry.intent.action.host, {})

    def rest(self, entry: Open) -> None:
        """It is not under way any more, and open still."""
        with self._lock:
            entry.under_way = False

    def rest_until_exit(self, entry: Open) -> bool:
        """The exit of its attempt will bring it back; False when that came while it was under way."""
        with self._lock:
            entry.under_way, entry.waits_for_exit = False, not entry.ended
            came, entry.ended = entry.ended, False
            return not came

    def exited(self, host: str, job: int, attempt: int) -> list[Open]:
        """What waits for the end of this attempt there, and may go on."""
        with self._lock:
            waiting = []
            for entry in self._open.get(host, {}).values():
                action = entry.intent.action
                if isinstance(action, Collect | Discard) and (action.job, action.attempt) == (job, attempt):
                    entry.ended = entry.under_way
                    waiting.append(entry)
            return waiting

    # -- what comes again

    def plan_repeat(self, host: str) -> bool:
        """False when a repetition of what is open for the host is planned already."""
        with self._lock:
            planned = host in self._repeating
            self._repeating.add(host)
            return not planned

    def begin_repeat(self, host: str) -> list[Open]:
        """The planned repetition begins: what is to be sent, in order."""
        with self._lock:
            self._repeating.discard(host)
            return [entry for entry in self._of(host) if not entry.waits_for_exit]
