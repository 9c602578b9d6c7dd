"""The silences of operators: made, listed, ended; durable over restarts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import msgspec

from rm.core.alerts.alert import CONDITIONS, Finding
from rm.core.alerts.silence import Silence, silenced_by
from rm.core.ports import Clock
from rm.daemon.leading.leader import Leader
from rm.errors import NotFound, UsageError
from rm.typed import convert
from rm.units import DAY_US

log = logging.getLogger(__name__)

PREFIX = "alert-silence/"  # of the names of documents
LONGEST_US = 366 * DAY_US
MOST = 1_000


class Silences:
    """Any thread may call; `stored` are the documents of the last life."""

    def __init__(self, leader: Leader, clock: Clock, stored: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self._leader = leader
        self._clock = clock
        self._lock = threading.Lock()
        self._silences = revived(stored)
        self._newest = max(self._silences, default=0)

    def add(
        self, conditions: Sequence[str], hosts: Sequence[str], for_us: int, by: str, comment: str
    ) -> tuple[Silence, Future[Any]]:
        """The new silence, and when it is durable.

        Raises:
            UsageError: an unknown condition, nothing named, or no such time.
        """
        for condition in conditions:
            if condition not in CONDITIONS:
                raise UsageError(
                    f"There is no condition '{condition:.60}'.", f"Known: {', '.join(CONDITIONS)}."
                )
        if not conditions and not hosts:
            raise UsageError("A silence names conditions or hosts.", "The host '*' is all of them.")
        if not 0 < for_us <= LONGEST_US:
            raise UsageError("A silence lasts up to 366 days.", "Say for how long, such as 2h.")
        now_us = self._clock.now_us()
        with self._lock:
            if len(self._silences) >= MOST:
                raise UsageError(f"There are {MOST} silences already.", "End some of them.")
            self._newest += 1
            made = Silence(
                self._newest, tuple(conditions), tuple(hosts), now_us, now_us + for_us, by, comment
            )
            self._silences[made.id] = made
            return made, self._leader.keep(((f"{PREFIX}{made.id}", asdict(made)),))

    def end(self, number: int) -> tuple[Silence, Future[Any]]:
        """Raises NotFound."""
        with self._lock:
            gone = self._silences.pop(number, None)
            if gone is None:
                raise NotFound(f"There is no silence {number}.", "`rmx alerts` lists them.")
            return gone, self._leader.keep(((f"{PREFIX}{number}", None),))

    def of(self, finding: Finding) -> str:
        """Why the finding must not fire now; "" = it may."""
        with self._lock:
            return silenced_by(self._silences.values(), finding, self._clock.now_us())

    def forget(self) -> None:
        """Those whose time is over."""
        now_us = self._clock.now_us()
        with self._lock:
            over = [number for number, silence in self._silences.items() if silence.until_us <= now_us]
            for number in over:
                del self._silences[number]
            if over:
                self._leader.keep(tuple((f"{PREFIX}{number}", None) for number in over))

    def view(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(silence) for silence in self._silences.values()]


def revived(stored: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[int, Silence]:
    found: dict[int, Silence] = {}
    for name, body in stored:
        if name.startswith(PREFIX):
            try:
                silence = convert(body, Silence)
            except msgspec.ValidationError as error:
                log.error("the stored %s is not a silence: %s", name, error)
                continue
            found[silence.id] = silence
    return dict(sorted(found.items()))  # they are stored by name: 10 before 9
