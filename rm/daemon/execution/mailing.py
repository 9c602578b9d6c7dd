"""Sends the mails that jobs ask for, one at a time, those of each user in turn. One that is refused for now
is sent again after growing pauses, in which others go. A slow server delays them all: it is one server.

Jobs may end faster than it takes mails: of what waits, each user has a bounded number."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from rm.adapters.hosts.pace import Pace
from rm.core.alerts.channel import NotTold
from rm.core.jobs.actions import Intent, Mail

log = logging.getLogger(__name__)

ATTEMPTS = 5
PAUSE_S, LONGEST_S = 2.0, 60.0
LAST_WORDS_S = 12.0  # for the mail under way while the daemon ends
WAITING_MAX = 10_000  # mails of a user: more are given up
RECORDS, RECORDS_PER_S = 20, 0.1  # in the log, of mails that were given up
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
    attempts: int = 0  # that have failed


class Mailer:
    """`letters`: None where rm.toml names no channel. `tell` is called by the leader."""

    def __init__(
        self, letters: Letters | None, cluster: str, pause_s: float = PAUSE_S, most_waiting: int = WAITING_MAX
    ) -> None:
        self._letters = letters
        self._cluster = cluster
        self._pause_s = pause_s
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Order]] = OrderedDict()  # by user; whose turn is next first
        self._later: list[tuple[float, int, _Order]] = []  # due (monotonic), in which order, what
        self._counts = itertools.count()
        self._open: Counter[str] = Counter()  # how many of each user are not settled
        self._pace, self._left_out = Pace(RECORDS, RECORDS_PER_S), 0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def tell(self, intent: Intent, mail: Mail, settled: Callable[[str], None]) -> None:
        """Send it in a while; `settled` hears "" or why it was given up: at once, in this thread, where it
        cannot wait for its turn, else in another."""
        if self._letters is None:
            settled(NOWHERE)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mail", daemon=True)
            self._thread.start()
        with self._changed:
            if fits := self._open[mail.user] < self._most_waiting:
                self._open[mail.user] += 1
                self._wait_for_turn(_Order(intent, mail, settled))
                self._changed.notify()
        if not fits:
            why = f"{self._most_waiting} mails of {mail.user} wait already"
            self._record(mail, why)
            settled(why)

    def close(self) -> None:
        """What waits stays in the outbox, for the next daemon."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        while (order := self._next()) is not None:
            failed = self._send(order)
            if failed is None:  # others go first meanwhile
                pause_s = min(self._pause_s * 2**order.attempts, LONGEST_S)
                again = replace(order, attempts=order.attempts + 1)
                heapq.heappush(self._later, (time.monotonic() + pause_s, next(self._counts), again))
                continue
            if failed:
                self._record(order.mail, failed)
            with self._changed:
                self._open[order.mail.user] -= 1
                if not self._open[order.mail.user]:
                    del self._open[order.mail.user]
            order.settled(failed)

    def _record(self, mail: Mail, failed: str) -> None:
        """Few: the job's story has each."""
        with self._changed:
            if not self._pace.take():
                self._left_out += 1
                return
            more = f" ({self._left_out} more are left out here)" if self._left_out else ""
            self._left_out = 0
        log.error("mail of job %d to %s: %s%s", mail.job, mail.to, failed, more)

    def _wait_for_turn(self, order: _Order) -> None:
        self._waiting.setdefault(order.mail.user, deque()).append(order)

    def _next(self) -> _Order | None:
        """Of the user whose turn it is; None: the daemon ends."""
        with self._changed:
            while not self._stopping:
                now_s = time.monotonic()
                while self._later and self._later[0][0] <= now_s:
                    self._wait_for_turn(heapq.heappop(self._later)[2])
                if self._waiting:
                    user, orders = self._waiting.popitem(last=False)
                    order = orders.popleft()
                    if orders:
                        self._waiting[user] = orders  # behind the others'
                    return order
                self._changed.wait(self._later[0][0] - now_s if self._later else None)
        return None

    def _send(self, order: _Order) -> str | None:
        """ "" = sent, None = not yet, else why it was given up."""
        assert self._letters is not None
        mail = order.mail
        subject = f"[{self._cluster}] {mail.subject}"
        text = f"{mail.subject}\n\n`rmx show {mail.job}` tells the rest.\n"
        try:
            self._letters.send_letter(
                mail.to, subject, text, f"{self._cluster} {order.intent.id} {mail.subject}"
            )
        except NotTold as error:
            return None if error.again and order.attempts + 1 < ATTEMPTS else str(error)
        except Exception as error:  # a defect must not silence the mails after it
            log.exception("a mail met a defect of rm")
            return f"internal error: {type(error).__name__}"
        return ""
