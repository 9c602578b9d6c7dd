"""Brings what hosts do to the packets of jobs in line with the plan: what differs is sent, and no more."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rm.daemon.regulation.running import Place, Running, View, place_on
from rm.protocol.line import shown

log = logging.getLogger(__name__)


class OnHost(Protocol):
    """What is to be done on one host for one job."""

    @property
    def job(self) -> int: ...
    @property
    def host(self) -> str: ...


class Verified(Protocol):
    """The answer of a host that tried whether its rule matches packets."""

    @property
    def verified(self) -> bool: ...
    @property
    def missing(self) -> Sequence[str]: ...


R = TypeVar("R", bound=OnHost)


class Rules(Generic[R]):
    """Compares the plan's rules with those that hosts were sent; belongs to one thread."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, str], tuple[Running, Place, R]] = {}

    def set_on(self, running: Running, place: Place, rule: R) -> None:
        """Have the host do it, or do it otherwise from now on."""
        raise NotImplementedError

    def unset_on(self, running: Running, place: Place) -> None:
        """Have the host stop it."""
        raise NotImplementedError

    def follow(self, rules: Iterable[R], view: View) -> None:
        wanted = _there(rules, view)
        for key in self._sent.keys() - wanted.keys():
            self.unset_on(*self._sent.pop(key)[:2])
        for key, (running, place, rule) in wanted.items():
            old = self._sent.get(key)
            if old is None or (old[0].attempt, *old[1:]) != (running.attempt, place, rule):
                self._sent[key] = (running, place, rule)
                self.set_on(running, place, rule)


def _there(rules: Iterable[R], view: View) -> Mapping[tuple[int, str], tuple[Running, Place, R]]:
    """Of jobs that run, on hosts whose interface is known."""
    wanted = {}
    for rule in rules:
        running = view.running.get(rule.job)
        place = place_on(running, rule.host)
        if running is not None and place is not None and place.interface:
            wanted[(rule.job, rule.host)] = (running, place, rule)
    return wanted


def warn_unless_verified(what: str, running: Running, place: Place, answer: Verified) -> None:
    """`what` is the rule's name in the log."""
    if not answer.verified:
        missing = shown(", ".join(answer.missing)) or "a working classifier"
        log.warning("the %s of job %d on %s has no effect: no %s", what, running.job, place.host, missing)
