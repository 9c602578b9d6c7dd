"""Brings the code points by which switches choose the paths of jobs in line with the plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rm.core.model.network.paths import JobPath
from rm.daemon.regulation.asking import HostCalls
from rm.daemon.regulation.rules import Rules, warn_unless_verified
from rm.daemon.regulation.running import Place, Running
from rm.protocol.network import SetPath, UnsetPath


class Paths(Rules[JobPath]):
    """`dscp` are the code points of the spines."""

    def __init__(self, calls: HostCalls, dscp: Sequence[int], epoch: int) -> None:
        super().__init__()
        self._calls = calls
        self._dscp = dscp
        self._epoch = epoch

    def set_on(self, running: Running, place: Place, rule: JobPath) -> None:
        request = SetPath(
            job=running.job,
            attempt=running.attempt,
            epoch=self._epoch,
            interface=place.interface,
            dscp=self._dscp[rule.spine],
        )
        self._calls.ask(
            running,
            place,
            request,
            on_answer=partial(warn_unless_verified, "path", running, place),
        )

    def unset_on(self, running: Running, place: Place) -> None:
        request = UnsetPath(
            job=running.job, attempt=running.attempt, epoch=self._epoch, interface=place.interface
        )
        self._calls.ask(running, place, request)
