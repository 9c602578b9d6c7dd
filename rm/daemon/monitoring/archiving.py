"""Sends the results of tests to the archives of rm.toml, each in its own time.

The results wait in the store, which all leaders share, and so does how far each archive has got: what one
leader had no time for, the next one sends. What was sent in the last moment before a daemon was killed may be
sent twice, as the same run.

A thread an archive reads the results in order, and sends what is due. After a failure it rests, so that an
archive that is away is not asked for each result that waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from rm.core.monitoring.archive import Archive, NotKept, Queue, Sent, Waiting
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor, Results
from rm.core.ports import Clock
from rm.errors import StoreError

log = logging.getLogger(__name__)

REST_S = 5.0
READ_AT_ONCE = 100
NOTE_S = 1.0  # between two notes of how far an archive has got
PRUNE_S = 10.0
Send = Callable[[Archive, Outcome], None]  # raises NotKept


class Archiving:
    """Any thread may call."""

    def __init__(
        self,
        *,
        archives: Sequence[Archive],
        malformed: Sequence[tuple[str, str]],
        send: Send,
        clock: Clock,
        results: Results,
    ) -> None:
        self._malformed = malformed
        self._results = results
        self._senders = [_Sender(archive, send, clock, results) for archive in archives]
        self._most = max((archive.queue for archive in archives), default=0)
        self._most_bytes = max((archive.queue_mib << 20 for archive in archives), default=0)
        self._pruned_s = 0.0
        self._left_out: list[Cursor] = []  # of archives that a mistake in rm.toml leaves out for now
        self._started = False
        self._closed = threading.Event()

    def start(self) -> None:
        """Until the database says how far archives have got, results wait in memory."""
        try:
            self._start()
        except StoreError as error:
            self._not_yet(error)
            threading.Thread(target=self._start_later, name="archives", daemon=True).start()

    def _start_later(self) -> None:
        while not self._closed.wait(REST_S):
            try:
                self._start()
            except StoreError as error:
                self._not_yet(error)
            else:
                return

    def _not_yet(self, error: StoreError) -> None:
        log.warning("archives wait for the database: %s", error)

    def _start(self) -> None:
        """Raises StoreError."""
        names = [sender.archive.name for sender in self._senders]
        malformed = [name for name, _ in self._malformed]  # these get their results when they are mended
        self._results.forget_cursors([*names, *malformed])
        cursors = self._results.cursors()
        self._left_out = [cursors[name] for name in malformed if name in cursors]
        newest = max(self._results.newest(), *(cursor.read for cursor in cursors.values()), 0)
        found = []
        for sender in self._senders:
            cursor = cursors.get(sender.archive.name)
            if cursor is None:  # what was found before there was this archive is not for it
                cursor = Cursor(newest)
                self._results.put_cursor(sender.archive.name, cursor)
            found.append((sender, cursor, self._results.some(cursor.left)))
        for sender, cursor, left in found:
            sender.start(cursor, newest, left)
        self._started = True

    def close(self) -> None:
        """A request under way is not waited for."""
        self._closed.set()
        for sender in self._senders:
            sender.close()

    def takes(self, mesh: str) -> bool:
        return any(not s.archive.meshes or mesh in s.archive.meshes for s in self._senders)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        """Waits for the database only. What it does not take waits in memory, and ends with the daemon."""
        some = [o for o in outcomes if any(sender.archive.takes(o) for sender in self._senders)]
        if not some:
            return
        try:
            newest = self._results.add(some) if self._started else 0
        except StoreError as error:
            log.warning("results for archives wait in memory: %s", error)
            newest = 0
        if not newest:
            for sender in self._senders:
                sender.keep(some)
            return
        for sender in self._senders:
            sender.tell(newest)
        if time.monotonic() - self._pruned_s >= PRUNE_S:
            self._pruned_s = time.monotonic()
            self._prune()

    def _prune(self) -> None:
        needs = [sender.needs() for sender in self._senders] + [cursor.needs for cursor in self._left_out]
        try:
            self._results.prune(min(needs), self._most, self._most_bytes)
        except StoreError as error:
            log.warning("old results for archives are not forgotten: %s", error)

    def rows(self) -> dict[str, Any]:
        """For the API: each archive, and what became of the results for it. Of its address only the host is
        shown, since a path may be secret."""
        rows = []
        for sender in self._senders:
            archive, sent = sender.archive, asdict(sender.sent())
            sent["name"] = sent.pop("archive")
            host = urlsplit(archive.url).hostname or ""
            rows.append(sent | {"kind": archive.kind, "host": host, "meshes": archive.meshes})
        return {"archives": rows, "malformed": [{"name": n, "message": m} for n, m in self._malformed]}


class _Sender:
    """One archive, and the thread that sends it what there is."""

    def __init__(self, archive: Archive, send: Send, clock: Clock, results: Results) -> None:
        self.archive = archive
        self._send = send
        self._clock = clock
        self._results = results
        self._queue = Queue(archive)
        self._read = self._newest = 0
        self._noted = Cursor()
        self._noted_s = 0.0
        self._skipped = 0
        self._sending = 0  # the number of the result that is being sent
        self._changed = threading.Condition()
        self._closed = False
        self._sent = Sent(archive.name)
        self._thread = threading.Thread(target=self._work, name=f"archive {archive.name}", daemon=True)

    def start(self, cursor: Cursor, newest: int, left: Iterable[tuple[int, Outcome]]) -> None:
        """`left` are the results that the cursor names."""
        with self._changed:
            self._read, self._noted = cursor.read, cursor
            self._newest = max(newest, cursor.read)
            for number, outcome in left:
                self._queue.put(outcome, self._clock.now_us(), number)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def tell(self, newest: int) -> None:
        """There are more results in the store."""
        with self._changed:
            self._newest = max(self._newest, newest)
            self._changed.notify_all()

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        """They are not in the store."""
        with self._changed:
            for outcome in outcomes:
                self._queue.put(outcome, self._clock.now_us())
            self._changed.notify_all()

    def sent(self) -> Sent:
        with self._changed:
            waiting = len(self._queue) + self._newest - self._read
            return replace(self._sent, waiting=waiting, dropped=self._queue.dropped + self._skipped)

    def needs(self) -> int:
        """The number of the oldest result that is not settled, as far as that is durable."""
        with self._changed:
            return min(self._noted.needs, self._cursor().needs)

    def _work(self) -> None:
        while (waiting := self._take()) is not None:
            try:
                self._send(self.archive, waiting.outcome)
            except NotKept as error:
                self._failed(waiting, str(error), error.again)
            except Exception as error:  # of one result; the others go on
                log.exception("archive %s", self.archive.name)
                said = f"The result of {waiting.outcome.test} cannot be sent: {type(error).__name__}."
                self._failed(waiting, said, False)
            else:
                self._succeeded()
            self._note()
        self._note(at_once=True)

    def _take(self) -> Waiting | None:
        """The next result that is due, as soon as one is; None: the daemon ends."""
        while True:
            with self._changed:
                if self._closed:
                    return None
                found = self._queue.next(self._clock.now_us())
                if isinstance(found, Waiting):
                    self._sending = found.number
                    return found
                if self._read >= self._newest and self._cursor() == self._noted:
                    self._changed.wait(None if found is None else found / 1e6)
                    continue
            self._note(at_once=True)
            self._read_on()

    def _read_on(self) -> None:
        """The next results of the store; of more than may wait the oldest are given up."""
        with self._changed:
            newest = self._newest  # there may be more when the store has answered
            first = max(self._read, newest - self.archive.queue)
            self._skipped += first - self._read
            self._read = first
            if self._read >= newest:
                return
        try:
            some, last = self._results.after(first, READ_AT_ONCE)
        except StoreError as error:
            log.warning("archive %s waits for the database: %s", self.archive.name, error)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, REST_S)
            return
        if last == first:  # all that there was is forgotten
            last = newest
        with self._changed:
            for number, outcome in some:
                self._queue.put(outcome, self._clock.now_us(), number)
            self._skipped += last - first - len(some)  # forgotten meanwhile, or cannot be read
            self._read, self._newest = last, max(self._newest, last)

    def _cursor(self) -> Cursor:
        """Where it stands; under the lock."""
        numbers = self._queue.numbers()
        return Cursor(self._read, tuple(sorted((*numbers, self._sending))) if self._sending else numbers)

    def _note(self, at_once: bool = False) -> None:
        """Make durable how far it has got."""
        if not at_once and time.monotonic() - self._noted_s < NOTE_S:
            return
        with self._changed:
            cursor = self._cursor()
        if cursor == self._noted:
            return
        self._noted_s = time.monotonic()
        try:
            self._results.put_cursor(self.archive.name, cursor)
        except StoreError as error:  # what is sent meanwhile is sent again by the next leader
            log.warning("how far archive %s has got is not durable: %s", self.archive.name, error)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, NOTE_S)
            return
        with self._changed:
            self._noted = cursor

    def _succeeded(self) -> None:
        with self._changed:
            now_us, self._sending = self._clock.now_us(), 0
            if self._sent.message:
                log.info("archive %s takes results again", self.archive.name)
            self._sent = replace(
                self._sent, sent=self._sent.sent + 1, tried_us=now_us, sent_us=now_us, message=""
            )

    def _failed(self, waiting: Waiting, said: str, again: bool) -> None:
        with self._changed:
            now_us, self._sending = self._clock.now_us(), 0
            self._queue.failed(waiting, now_us, again)
            if said != self._sent.message:
                log.warning("%s", said)
            self._sent = replace(self._sent, tried_us=now_us, message=said)
            if again:
                self._changed.wait_for(lambda: self._closed, REST_S)
