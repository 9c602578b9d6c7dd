"""Counts hosts' checks by what alerts find, and has those that fail drained
(rm.core.alerts.draining)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from rm.core.alerts.alert import GRADED, Finding
from rm.core.alerts.draining import DrainRules, Health, after_checks, newly_bad, still
from rm.core.alerts.findings import HostFacts
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host
from rm.core.monitoring.cells import Cell
from rm.daemon.leading.leader import Leader
from rm.errors import Conflict

log = logging.getLogger(__name__)


class Settings(Protocol):
    @property
    def drain_on(self) -> Sequence[str]: ...
    @property
    def drain_after(self) -> int: ...
    @property
    def return_after(self) -> int: ...
    @property
    def drain_share(self) -> float: ...


class Draining:
    """Used in one thread."""

    def __init__(self, leader: Leader, settings: Settings) -> None:
        self._leader = leader
        self._on = tuple(settings.drain_on)
        self._rules = DrainRules(settings.drain_after, settings.return_after, settings.drain_share)
        self._healths: dict[str, Health] = {}

    def look(
        self,
        hosts: Mapping[str, Host],
        silent: Set[str],
        cells: Sequence[Cell],
        facts: Mapping[str, HostFacts],
        findings: Iterable[Finding],
        now_us: int,
    ) -> None:
        """Count what was newly tested, and ask the leader to drain and return. Of `silent` hosts nothing is
        known. What was tested by a clock that has gone back since waits for its next test."""
        self._healths = {
            h: replace(known, checked_us=min(known.checked_us, now_us)) for h, known in self._healths.items()
        }
        cells = [cell for cell in cells if cell.checked_us <= now_us]
        failing: dict[str, str] = {}
        unsure: set[str] = set(silent)
        newly = newly_bad(cells, self._healths)
        for finding in findings:
            if finding.condition not in self._on or finding.level == "warn":
                continue
            host = finding.hosts[0] if len(finding.hosts) == 1 else ""
            measured = finding.condition in (*GRADED, "unmeasured")
            if not host:  # a bad pair of which nobody knows whose fault it is: neither good nor bad
                unsure.update(finding.hosts if not finding.frozen else ())
            elif finding.frozen or finding.lingers or (measured and (finding.condition, host) not in newly):
                unsure.add(host)
            else:
                failing.setdefault(host, finding.message)
        checked: dict[str, int] = {h: f.at_us for h, f in facts.items() if f.at_us <= now_us}
        for cell in cells:
            for host in (cell.source, cell.destination):
                checked[host] = max(checked.get(host, 0), cell.checked_us)
        unsure -= failing.keys() - silent
        self._healths, decided = after_checks(
            self._rules, self._healths, hosts, checked, failing, frozenset(unsure)
        )
        for event in decided:
            self._leader.request(partial(if_still, event)).add_done_callback(partial(tell, event))


def if_still(event: ev.HostDrained | ev.HostResumed, state: ClusterState) -> list[ev.Event]:
    if not still(event, state.hosts):
        raise Conflict(f"Host {event.host} was drained, returned or removed by somebody meanwhile.")
    return [event]


def tell(event: ev.HostDrained | ev.HostResumed, done: Future[Any]) -> None:
    what = f"drained: {event.reason}" if isinstance(event, ev.HostDrained) else "returned"
    if (error := done.exception()) is not None:
        log.info("host %s is not %s: %s", event.host, what, error)
    else:
        log.warning("host %s is %s", event.host, what)
