"""Brings the traffic classes on every host in line with the plan."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from msgspec import UNSET, UnsetType

import rm.protocol.network as wire
from rm.core.model.alignment import Bursts, ShapingRule
from rm.daemon.agents import Agents
from rm.daemon.regulation.asking import ask
from rm.daemon.regulation.running import Place, Running, View, place_on
from rm.protocol.line import shown
from rm.protocol.network import Shape, Shaped, Unshape

log = logging.getLogger(__name__)


class ShapingSettings(Protocol):
    @property
    def enabled(self) -> bool: ...
    @property
    def queue_packets(self) -> int: ...


class Shaping:
    """Compares the plan's rules with those that hosts were sent; belongs to one thread."""

    def __init__(self, agents: Agents, settings: ShapingSettings, epoch: int) -> None:
        self._agents = agents
        self._settings = settings
        self._epoch = epoch
        self._shaped: dict[tuple[int, str], tuple[Running, Place, ShapingRule]] = {}

    def follow(self, view: View) -> None:
        wanted = self._wanted(view) if self._settings.enabled else {}
        for key in self._shaped.keys() - wanted.keys():
            self._unshape(*self._shaped.pop(key)[:2])
        for key, (running, place, rule) in wanted.items():
            old = self._shaped.get(key)
            if old is None or (old[0].attempt, *old[1:]) != (running.attempt, place, rule):
                self._shaped[key] = (running, place, rule)
                self._shape(running, place, rule)

    def _wanted(self, view: View) -> dict[tuple[int, str], tuple[Running, Place, ShapingRule]]:
        wanted = {}
        for rule in view.alignment.shaping:
            running = view.running.get(rule.job)
            place = place_on(running, rule.host)
            if running is not None and place is not None and place.interface:
                wanted[(rule.job, rule.host)] = (running, place, rule)
        return wanted

    def _shape(self, running: Running, place: Place, rule: ShapingRule) -> None:
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
        ask(self._agents, running, place, request, on_answer=partial(_warn_unless_verified, running, place))

    def _unshape(self, running: Running, place: Place) -> None:
        request = Unshape(
            job=running.job, attempt=running.attempt, epoch=self._epoch, interface=place.interface
        )
        ask(self._agents, running, place, request)


def _wire_bursts(bursts: Bursts | None) -> wire.Bursts | UnsetType:
    return UNSET if bursts is None else wire.Bursts(gap_us=bursts.gap_us, longest_us=bursts.longest_us)


def _warn_unless_verified(running: Running, place: Place, answer: Shaped) -> None:
    if not answer.verified:
        missing = shown(", ".join(answer.missing)) or "a working classifier"
        log.warning("shape of job %d on %s has no effect: no %s", running.job, place.host, missing)
