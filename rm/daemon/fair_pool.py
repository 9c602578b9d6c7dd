"""Threads that no host and no user can have all of."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)

Work = Callable[[], None]


class FairPool:
    """Work of the same host and user in the order in which it came.

    At most `share` works of a host and of a user go on at a time, except where more than `kept` threads
    are idle: those are for owners with less than a share.
    """

    def __init__(self, workers: int, kept: int, share: int, name: str) -> None:
        self._workers = workers
        self._kept = kept
        self._share = share
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[tuple[str, str], deque[Work]] = OrderedDict()
        self._running = 0
        self._of_host: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._closed = False

    def submit(self, host: str, user: str, work: Work) -> None:
        with self._lock:
            self._waiting.setdefault((host, user), deque()).append(work)
            self._start()

    def ask(self, host: str, user: str, work: Callable[[], T]) -> Future[T]:
        """What the work returns or raises; work that is cancelled before its turn is not done."""
        done: Future[T] = Future()

        def work_it_out() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except Exception as error:  # the asker gets any error
                done.set_exception(error)

        self.submit(host, user, work_it_out)
        return done

    def close(self) -> None:
        """Nothing more begins."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """In the lock: begin all that may begin now."""
        while not self._closed and self._running < self._workers:
            key = next(filter(self._may_begin, self._waiting), None)
            if key is None:
                return
            works = self._waiting[key]
            work = works.popleft()
            if works:
                self._waiting.move_to_end(key)  # the others' turn
            else:
                del self._waiting[key]
            self._count(key, 1)
            self._pool.submit(self._do, key, work)

    def _may_begin(self, key: tuple[str, str]) -> bool:
        host, user = key
        has_share = self._of_host[host] >= self._share or self._of_user[user] >= self._share
        return not has_share or self._workers - self._running > self._kept

    def _count(self, key: tuple[str, str], change: int) -> None:
        self._running += change
        for counter, name in zip((self._of_host, self._of_user), key, strict=True):
            counter[name] += change
            if not counter[name]:
                del counter[name]

    def _do(self, key: tuple[str, str], work: Work) -> None:
        try:
            work()
        except Exception:
            log.exception("work for %s of %s failed", *key)
        finally:
            with self._lock:
                self._count(key, -1)
                self._start()
