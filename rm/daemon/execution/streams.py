"""Streams of steps, from one host of a job to another of its hosts.

The ends are the step daemons on the hosts: they bound what is under way and repeat what is lost, so a piece
is passed on or dropped, and nothing is kept here. A host reaches the other hosts of the attempts that are
placed on it, and no others; what it says beyond what another one answers neither fills memory here nor
stands before what else that one is asked.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from rm.daemon.agents import Agents
from rm.errors import RmError
from rm.protocol.notifications import Streamed
from rm.protocol.streams import Stream

CALL_S = 30.0
# of one job from a host to another, as sent: some 12 windows of streams; more is dropped, and comes again
UNDER_WAY_BYTES = 4 << 20
PIECE_BYTES = 512  # that a piece counts besides its data
Way = tuple[int, str, str]  # the job, from a host, to a host


class Streams:
    """`hosts_of` gives the hosts of a job's current attempt; called in any thread, as all here."""

    def __init__(
        self,
        *,
        hosts: Agents,
        epoch: int,
        hosts_of: Callable[[int, int], tuple[str, ...]],
        may_act: Callable[[], bool],
    ) -> None:
        self._hosts, self._epoch = hosts, epoch
        self._hosts_of, self._may_act = hosts_of, may_act
        self._under_way: Counter[Way] = Counter()  # bytes that are not answered
        self._lock = threading.Lock()

    def pass_on(self, host: str, piece: Streamed) -> None:
        """What the host says for another one of the attempt."""
        hosts = self._hosts_of(piece.job, piece.attempt)
        if host not in hosts or piece.place >= len(hosts) or not self._may_act():
            return
        passed = Stream(
            job=piece.job,
            attempt=piece.attempt,
            epoch=self._epoch,
            place=hosts.index(host),
            stream=piece.stream,
            offset=piece.offset,
            data=piece.data,
            ack=piece.ack,
            end=piece.end,
            gone=piece.gone,
            used=piece.used,
        )
        way, count = (piece.job, host, hosts[piece.place]), PIECE_BYTES + len(piece.data)
        with self._lock:
            if self._under_way[way] + count > UNDER_WAY_BYTES:
                return
            self._under_way[way] += count
        try:
            answer = self._hosts.call(hosts[piece.place], passed, CALL_S)
        except RmError:  # a host that is not there: the piece comes again
            self._arrived(way, count)
        else:
            answer.add_done_callback(partial(self._arrived, way, count))

    def _arrived(self, way: Way, count: int, _: Future[Any] | None = None) -> None:
        with self._lock:
            self._under_way[way] -= count
            if self._under_way[way] <= 0:
                del self._under_way[way]
