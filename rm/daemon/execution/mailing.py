"""Sends the mails that jobs ask for, one after the other, again and again with growing pauses."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rm.core.alerts.channel import NotTold
from rm.core.jobs.actions import Intent, Mail

log = logging.getLogger(__name__)

ATTEMPTS = 5
PAUSE_S, LONGEST_S = 2.0, 60.0
LAST_WORDS_S = 12.0  # for the mail under way while the daemon ends
NOWHERE = "jobs.mail in rm.toml names no channel"


class Letters(Protocol):
    """A mail server, by one of the channels of alerts."""

    def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
        """Send it, or raise NotTold; `name` is the same for each repetition."""
        ...


@dataclass(frozen=True, slots=True)
class _Order:
    intent: Intent
    mail: Mail
    settled: Callable[[str], None]


class Mailer:
    """`letters`: None where rm.toml names no channel. `tell` is called by the leader."""

    def __init__(self, letters: Letters | None, cluster: str, pause_s: float = PAUSE_S) -> None:
        self._letters = letters
        self._cluster = cluster
        self._pause_s = pause_s
        self._waiting: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, intent: Intent, mail: Mail, settled: Callable[[str], None]) -> None:
        """Send it in a while; `settled` hears "" or why it was given up, in another thread."""
        if self._letters is None:
            settled(NOWHERE)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mail", daemon=True)
            self._thread.start()
        self._waiting.put(_Order(intent, mail, settled))

    def close(self) -> None:
        """What waits stays in the outbox, for the next daemon."""
        self._stopping.set()
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        while (order := self._waiting.get()) is not None and not self._stopping.is_set():
            failed = self._send(order)
            if failed is None:
                return
            if failed:
                log.error("mail of job %d to %s: %s", order.mail.job, order.mail.to, failed)
            order.settled(failed)

    def _send(self, order: _Order) -> str | None:
        """ "" = sent, None = stopped meanwhile, else why it was given up."""
        assert self._letters is not None
        mail, pause_s = order.mail, self._pause_s
        subject = f"[{self._cluster}] {mail.subject}"
        text = f"{mail.subject}\n\n`rmx show {mail.job}` tells the rest.\n"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._letters.send_letter(
                    mail.to, subject, text, f"{self._cluster} {order.intent.id} {mail.subject}"
                )
                return ""
            except NotTold as error:
                if not error.again or attempt == ATTEMPTS:
                    return str(error)
            except Exception as error:  # a defect must not silence the mails after it
                log.exception("a mail met a defect of rm")
                return f"internal error: {type(error).__name__}"
            if self._stopping.wait(pause_s):
                return None
            pause_s = min(2 * pause_s, LONGEST_S)
        return None
