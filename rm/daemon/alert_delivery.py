"""Tells channels of alerts: one thread each, in order, again and again with growing pauses."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rm.core.alert_channel import Channel, NotTold

log = logging.getLogger(__name__)

LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Notice:
    """What a channel is to be told of the alert `key`."""

    key: str
    event: str
    body: Mapping[str, Any]


class Delivery:
    """`settled(notice, channel, failed)` hears of each outcome, in the channel's thread; `failed` is why it
    was given up after `attempts`."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        settled: Callable[[Notice, str, str], None],
        attempts: int,
        backoff_s: float,
    ) -> None:
        self._channels = channels
        self._settled = settled
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._stopping = threading.Event()
        self._queues: dict[str, queue.SimpleQueue[Notice | None]] = {}
        self._threads: list[threading.Thread] = []

    def tell(self, notice: Notice, channel: str) -> None:
        if channel not in self._channels:
            self._settled(notice, channel, "There is no such channel any more.")
            return
        if channel not in self._queues:
            self._queues[channel] = queue.SimpleQueue()
            name = f"alerts {channel}"
            thread = threading.Thread(target=self._run, args=(channel,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queues[channel].put(notice)

    def close(self) -> None:
        """What is not delivered stays owed."""
        self._stopping.set()
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._threads:
            thread.join(2)

    def _run(self, channel: str) -> None:
        while (notice := self._queues[channel].get()) is not None and not self._stopping.is_set():
            failed = self._attempt(channel, notice)
            if failed is None:
                return
            if failed:
                log.error("alert %s: %s is not told: %s", notice.key, channel, failed)
            self._settled(notice, channel, failed)

    def _attempt(self, channel: str, notice: Notice) -> str | None:
        """ "" = told, None = stopped meanwhile, otherwise why it was given up."""
        pause_s = self._backoff_s
        for attempt in range(1, self._attempts + 1):
            try:
                self._channels[channel].tell(notice.body)
                return ""
            except NotTold as error:
                why, again = str(error), error.again
            except Exception as error:  # a defect of a channel must not silence the others
                log.exception("channel %s met a defect of rm", channel)
                why, again = f"internal error: {type(error).__name__}", False
            if not again or attempt == self._attempts:
                return why
            log.warning("alert %s: attempt %d to tell %s: %s", notice.key, attempt, channel, why)
            if self._stopping.wait(pause_s):
                return None
            pause_s = min(2 * pause_s, LONGEST_S)
        return None
