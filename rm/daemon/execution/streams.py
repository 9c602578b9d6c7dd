"""Streams of steps, from one host of a job to another of its hosts.

The ends are the step daemons on the hosts: they bound what is under way and repeat what is lost, so a piece
is passed on or dropped, and nothing is kept here. A host reaches the other hosts of the attempts that are
placed on it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rm.daemon.agents import Agents
from rm.errors import RmError
from rm.protocol.notifications import Streamed
from rm.protocol.streams import Stream

CALL_S = 30.0


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
        with suppress(RmError):  # a host that is not there: the piece comes again
            self._hosts.call(hosts[piece.place], passed, CALL_S)
