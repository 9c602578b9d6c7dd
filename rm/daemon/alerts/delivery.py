"""Notifies channels of alerts: one thread each, in order, again and again with growing pauses.

What waits for a channel of one kind is sent in one message (`rm.core.alerts.notices`), so that a storm,
or a channel that was away for long, is a few messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rm.core.alerts.channel import Channel, NotTold
from rm.core.alerts.notices import Notice, body_of, take

log = logging.getLogger(__name__)

LONGEST_S = 60.0
LAST_WORDS_S = 12.0  # for messages under way while the daemon ends: a channel's usual timeout, and a little


class Delivery:
    """`settled(notices, channel, failed)` hears of each outcome, in the channel's thread; `failed` is why
    they were given up after `attempts`."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        settled: Callable[[Sequence[Notice], str, str], None],
        attempts: int,
        backoff_s: float,
    ) -> None:
        self._channels = channels
        self._settled = settled
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._waiting: dict[str, list[Notice]] = {}
        self._standing: dict[str, list[Notice]] = {}  # what fires, to be told again
        self._threads: list[threading.Thread] = []

    def tell(self, channel: str, notices: Iterable[Notice]) -> None:
        found = list(notices)
        if channel not in self._channels:
            self._settled(found, channel, "There is no such channel any more.")
            return
        with self._changed:
            if self._stopping.is_set():
                return
            self._begin(channel)
            self._waiting[channel] += found
            self._standing[channel] = []  # as it was before
            self._changed.notify_all()

    def tell_again(self, channel: str, firing: Iterable[Notice]) -> None:
        """What still fires; each such message is tried once, and nobody hears of its outcome."""
        with self._changed:
            if not self._stopping.is_set():
                self._begin(channel)
                self._standing[channel] = list(firing)
                self._changed.notify_all()

    def _begin(self, channel: str) -> None:
        """The channel's thread, if it is not there yet."""
        if channel not in self._waiting:
            self._waiting[channel], self._standing[channel] = [], []
            name = f"alerts {channel}"
            thread = threading.Thread(target=self._run, args=(channel,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Finishes the messages under way, so that none is sent twice; what waits stays owed."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
            threads = list(self._threads)
        deadline = time.monotonic() + LAST_WORDS_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _next(self, channel: str) -> tuple[list[Notice], bool]:
        """What to send together, and whether it is told again; [] = the end."""
        waiting, standing = self._waiting, self._standing
        with self._changed:
            self._changed.wait_for(lambda: waiting[channel] or standing[channel] or self._stopping.is_set())
            if self._stopping.is_set():
                return [], False
            told = waiting if waiting[channel] else standing
            taken, told[channel] = take(told[channel])
            return taken, told is standing

    def _run(self, channel: str) -> None:
        while True:
            notices, again = self._next(channel)
            if not notices:
                return
            body = body_of(notices)
            if again:
                self._repeat(channel, body)
                continue
            failed = self._attempt(channel, body)
            if failed is None:
                return
            if failed:
                log.error("alert %s: %s is not notified: %s", body["id"], channel, failed)
            self._settled(notices, channel, failed)

    def _repeat(self, channel: str, body: Mapping[str, Any]) -> None:
        try:
            self._channels[channel].tell(body)
        except NotTold as error:
            log.warning("%s is not told again of what fires: %s", channel, error)
            with self._changed:
                self._standing[channel] = []  # the others would be refused, too
        except Exception:
            log.exception("channel %s met a defect of rm", channel)

    def _attempt(self, channel: str, body: Mapping[str, Any]) -> str | None:
        """ "" = sent, None = stopped meanwhile, otherwise why it was given up."""
        pause_s = self._backoff_s
        for attempt in range(1, self._attempts + 1):
            try:
                self._channels[channel].tell(body)
                return ""
            except NotTold as error:
                why, again = str(error), error.again
            except Exception as error:  # a defect of a channel must not silence the others
                log.exception("channel %s met a defect of rm", channel)
                why, again = f"internal error: {type(error).__name__}", False
            if not again or attempt == self._attempts:
                return why
            log.warning("alert %s: attempt %d to notify %s: %s", body["id"], attempt, channel, why)
            if self._stopping.wait(pause_s):
                return None
            pause_s = min(2 * pause_s, LONGEST_S)
        return None
