"""Sends the results of tests to the archives of rm.toml, each in its own time.

A thread an archive takes what is due from its queue. After a failure it rests, so that an archive that is
away is not asked for each result that waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from rm.core.monitoring.archive import Archive, NotKept, Queue, Sent, Waiting
from rm.core.monitoring.outcome import Outcome
from rm.core.ports import Clock

log = logging.getLogger(__name__)

REST_S = 5.0
Send = Callable[[Archive, Outcome], None]  # raises NotKept


class Archiving:
    """Any thread may call; `keep` never waits."""

    def __init__(
        self, *, archives: Sequence[Archive], malformed: Sequence[tuple[str, str]], send: Send, clock: Clock
    ) -> None:
        self._malformed = malformed
        self._senders = [_Sender(archive, send, clock) for archive in archives]

    def start(self) -> None:
        for sender in self._senders:
            sender.start()

    def close(self) -> None:
        """What still waits is lost; a request under way is not waited for."""
        for sender in self._senders:
            sender.close()

    def takes(self, mesh: str) -> bool:
        return any(not s.archive.meshes or mesh in s.archive.meshes for s in self._senders)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        some = list(outcomes)
        for sender in self._senders:
            sender.keep(some)

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
    """One archive's queue, and the thread that empties it."""

    def __init__(self, archive: Archive, send: Send, clock: Clock) -> None:
        self.archive = archive
        self._send = send
        self._clock = clock
        self._queue = Queue(archive)
        self._changed = threading.Condition()
        self._closed = False
        self._sent = Sent(archive.name)
        self._thread = threading.Thread(target=self._work, name=f"archive {archive.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = len(self._queue)
        if left:
            log.warning("archive %s: %d results were not sent and are lost", self.archive.name, left)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        with self._changed:
            for outcome in outcomes:
                self._queue.put(outcome, self._clock.now_us())
            self._changed.notify_all()

    def sent(self) -> Sent:
        with self._changed:
            return replace(self._sent, waiting=len(self._queue), dropped=self._queue.dropped)

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
                with self._changed:
                    now_us = self._clock.now_us()
                    if self._sent.message:
                        log.info("archive %s takes results again", self.archive.name)
                    self._sent = replace(
                        self._sent, sent=self._sent.sent + 1, tried_us=now_us, sent_us=now_us, message=""
                    )

    def _take(self) -> Waiting | None:
        """The next result that is due, as soon as one is; None: the daemon ends."""
        with self._changed:
            while not self._closed:
                found = self._queue.next(self._clock.now_us())
                if isinstance(found, Waiting):
                    return found
                self._changed.wait(None if found is None else found / 1e6)
        return None

    def _failed(self, waiting: Waiting, said: str, again: bool) -> None:
        with self._changed:
            now_us = self._clock.now_us()
            self._queue.failed(waiting, now_us, again)
            if said != self._sent.message:
                log.warning("%s", said)
            self._sent = replace(self._sent, tried_us=now_us, message=said)
            if again:
                self._changed.wait_for(lambda: self._closed, REST_S)
