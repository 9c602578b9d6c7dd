"""Brings the traffic classes on every host in line with the plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from msgspec import UNSET, UnsetType

import rm.protocol.network as wire
from rm.core.model.network.alignment import Bursts, ShapingRule
from rm.daemon.regulation.asking import HostCalls
from rm.daemon.regulation.rules import Rules, warn_unless_verified
from rm.daemon.regulation.running import Place, Running, View
from rm.protocol.network import Shape, Unshape


class ShapingSettings(Protocol):
    @property
    def enabled(self) -> bool: ...
    @property
    def queue_packets(self) -> int: ...


class Shaping(Rules[ShapingRule]):
    def __init__(self, calls: HostCalls, settings: ShapingSettings, epoch: int) -> None:
        super().__init__()
        self._calls = calls
        self._settings = settings
        self._epoch = epoch

    def follow(self, rules: Iterable[ShapingRule], view: View) -> None:
        super().follow(rules if self._settings.enabled else (), view)

    def set_on(self, running: Running, place: Place, rule: ShapingRule) -> None:
        request = Shape(
            job=running.job,
            attempt=running.attempt,
            epoch=self._epoch,
            interface=place.interface,
            priority=rule.priority,
            rate_bps=place.nic_bps,
            class_rate_bps=rule.rate_bps,
            ceil_bps=rule.ceil_bps,
            queue_packets=self._settings.queue_packets,
            bursts=_wire_bursts(rule.bursts),
        )
        self._calls.ask(
            running,
            place,
            request,
            on_answer=partial(warn_unless_verified, "shape", running, place),
        )

    def unset_on(self, running: Running, place: Place) -> None:
        request = Unshape(
            job=running.job, attempt=running.attempt, epoch=self._epoch, interface=place.interface
        )
        self._calls.ask(running, place, request)


def _wire_bursts(bursts: Bursts | None) -> wire.Bursts | UnsetType:
    return UNSET if bursts is None else wire.Bursts(gap_us=bursts.gap_us, longest_us=bursts.longest_us)
