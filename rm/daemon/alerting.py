"""Looks every few seconds at what holds, keeps the alerts, has channels told, drains hosts.

Alerts are durable (documents of the store, one each) before anybody is told of them; a restart goes on
with them, and what was still owed is told then. So a channel may hear the same twice, with the
same id, but never of a second firing without a recovery between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from datetime import tzinfo
from functools import partial
from typing import Any, Protocol

import msgspec

from rm.core import events as ev
from rm.core.alert_channel import Channel
from rm.core.alert_findings import (
    HostFacts,
    facts_findings,
    host_findings,
    network_findings,
    rotation_findings,
)
from rm.core.alerts import Alert, Finding, Rule, delivered, forget, step
from rm.core.alignment import Alignment
from rm.core.cells import Cell
from rm.core.cycle import Cycle
from rm.core.draining import DrainRules, Health, after_checks
from rm.core.host import Host, HostState
from rm.core.maintenance import HostWindow
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.alert_delivery import Delivery, Notice
from rm.daemon.leader import Leader
from rm.errors import RmError
from rm.units import DAY_US

log = logging.getLogger(__name__)

PREFIX = "alert/"  # of the names of documents
MOST = 1_000  # alerts that are over and still listed
FACTS_TIMEOUT_S = 60.0
PATIENCE_S = 30.0
US = 1_000_000


class Settings(Protocol):
    @property
    def facts_s(self) -> float: ...
    @property
    def disk_free_mb(self) -> int: ...
    @property
    def rotation_score(self) -> float: ...
    @property
    def attempts(self) -> int: ...
    @property
    def backoff_s(self) -> float: ...
    @property
    def keep_days(self) -> float: ...
    @property
    def drain(self) -> bool: ...
    @property
    def drain_on(self) -> Sequence[str]: ...
    @property
    def drain_after(self) -> int: ...
    @property
    def return_after(self) -> int: ...
    @property
    def drain_share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """The leader's state, as far as alerts look at it."""

    hosts: Mapping[str, Host]
    silent_since: Mapping[str, int]
    alignment: Alignment
    places: Mapping[int, tuple[str, ...]]  # the hosts of the jobs that share links


class Alerting:
    """`cells` are those of all meshes now, `standings` says how well jobs keep their slots
    (`Controller.standings`); `stored` are the documents of the last life."""

    def __init__(
        self,
        leader: Leader,
        agents: Agents,
        clock: Clock,
        cells: Callable[[Mapping[str, Host]], Iterable[Cell]],
        standings: Callable[[], Mapping[int, str | None]],
        windows: Sequence[HostWindow],
        zone: tzinfo,
        rules: Sequence[Rule],
        channels: Mapping[str, Channel],
        settings: Settings,
        stored: Iterable[tuple[str, Mapping[str, Any]]],
        cluster: str,
        connect_s: float = 10.0,
    ) -> None:
        self._leader = leader
        self._agents = agents
        self._clock = clock
        self._cells = cells
        self._standings = standings
        self._windows = tuple(windows)
        self._zone = zone
        self._rules = tuple(rules)
        self._channels = tuple(channels)
        self._settings = settings
        self._cluster = cluster
        self._connect_us = round(connect_s * US)
        self._drains = DrainRules(settings.drain_after, settings.return_after, settings.drain_share)
        self._healths: dict[str, Health] = {}
        self._facts: dict[str, HostFacts] = {}
        self._lock = threading.Lock()
        self._alerts = revived(stored)
        self._due = [(key, *owed) for key, a in self._alerts.items() for owed in a.owed]
        self._asked_us: dict[str, int] = {}
        self._delivery = Delivery(channels, self._settled, settings.attempts, settings.backoff_s)

    def close(self) -> None:
        self._delivery.close()

    def look(self) -> None:
        """What holds now; called every few seconds, never twice at once."""
        try:
            self._look()
        except RmError as error:  # the leader stops, or the database is away: it says so itself
            log.warning("alerts cannot look: %s", error)
        except Exception:
            log.exception("alerts met a defect of rm")

    def _look(self) -> None:
        seen: Seen = self._leader.ask(see).result(PATIENCE_S)
        now_us = self._clock.now_us()
        self._ask_hosts(seen, now_us)
        cells = list(self._cells(seen.hosts))
        with self._lock:
            told = {(a.condition, a.subject) for a in self._alerts.values() if a.firing}
        findings = self._findings(seen, cells, told, now_us)
        with self._lock:
            before = self._alerts
            after = step(self._rules, before, findings, seen.hosts, now_us)
            for key in forget(after, now_us - round(self._settings.keep_days * DAY_US), MOST):
                del after[key]
            self._alerts = after
            kept = self._keep(before, after)
        for key, alert in after.items():
            old = before.get(key)
            if alert.fired_us and (old is None or (old.fired_us, old.state) != (alert.fired_us, alert.state)):
                log.warning("alert %s: %s: %s", alert.state, key, alert.message)
            was = len(old.owed) if old is not None else 0
            self._due += [(key, *owed) for owed in alert.owed[was:]]
        if kept is not None:
            kept.result(PATIENCE_S)
        while self._due:
            key, event, channel = self._due.pop(0)
            if (due := after.get(key)) is not None:
                self._delivery.tell(self._notice(due, event), channel)
        if self._settings.drain:
            self._drain(seen, cells, findings)

    def _findings(
        self, seen: Seen, cells: Sequence[Cell], told: set[tuple[str, str]], now_us: int
    ) -> list[Finding]:
        def maintained(host: Host) -> bool:
            return any(w.covers(host, now_us, self._zone) for w in self._windows)

        silent = {h for h, t in seen.silent_since.items() if now_us - t >= self._connect_us}
        waited_for = seen.silent_since.keys() - silent
        least_bytes = self._settings.disk_free_mb << 20
        with self._lock:
            facts = dict(self._facts)
        return [
            *network_findings(cells, told),
            *host_findings(seen.hosts, silent, waited_for, maintained),
            *rotation_findings(
                seen.alignment,
                seen.hosts,
                self._settings.rotation_score,
                maintained,
                self._standings(),
                seen.places,
            ),
            *facts_findings(seen.hosts, facts, least_bytes, maintained),
        ]

    def _keep(self, before: Mapping[str, Alert], after: Mapping[str, Alert]) -> Future[Any] | None:
        """Make durable what differs, besides the words of what goes on holding."""
        documents: list[tuple[str, dict[str, Any] | None]] = [
            (PREFIX + key, None) for key in before.keys() - after.keys() if before[key].fired_us
        ]
        for key, alert in after.items():
            old = before.get(key)
            if alert.fired_us and (old is None or essence(old) != essence(alert)):
                documents.append((PREFIX + key, asdict(alert)))
        return self._leader.keep(tuple(documents)) if documents else None

    def _notice(self, alert: Alert, event: str) -> Notice:
        body = {
            "version": 1,
            "event": event,
            "id": alert.episode,
            "cluster": self._cluster,
            "rule": alert.rule,
            "condition": alert.condition,
            "subject": alert.subject,
            "hosts": list(alert.hosts),
            "message": alert.message,
            "fired_us": alert.fired_us,
            "ended_us": alert.ended_us or None,
        }
        return Notice(alert.key, event, body)

    def _settled(self, notice: Notice, channel: str, failed: str) -> None:
        """A channel was told, or given up; the alert may be gone, or in its next episode, by now."""
        with self._lock:
            before = self._alerts.get(notice.key)
            if before is None:
                return
            after = delivered(before, notice.event, channel, failed)
            self._alerts = {**self._alerts, notice.key: after}
            self._leader.keep(((PREFIX + notice.key, asdict(after)),))

    # -- facts of hosts ------------------------------------------------------------------------

    def _ask_hosts(self, seen: Seen, now_us: int) -> None:
        """Ask the agents of hosts that are up, now and then, for their disk and GPUs; answers come later."""
        with self._lock:
            self._facts = {n: f for n, f in self._facts.items() if n in seen.hosts}
        self._asked_us = {n: t for n, t in self._asked_us.items() if n in seen.hosts}
        every_us = self._settings.facts_s * US
        for host in seen.hosts.values():
            asked_us = self._asked_us.get(host.name)
            if host.state is HostState.UP and (asked_us is None or now_us - asked_us >= every_us):
                self._asked_us[host.name] = now_us
                future = self._agents.call(host.name, "facts", timeout_s=FACTS_TIMEOUT_S)
                future.add_done_callback(partial(self._answered, host.name))

    def _answered(self, host: str, future: Future[dict[str, Any]]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # what was last known stays; a host that does not answer is another alert
        facts = facts_of(future.result(), self._clock.now_us())
        with self._lock:
            self._facts[host] = facts

    # -- draining ------------------------------------------------------------------------------

    def _drain(self, seen: Seen, cells: Sequence[Cell], findings: Iterable[Finding]) -> None:
        failing: dict[str, str] = {}
        unsure: set[str] = set(seen.silent_since)
        for finding in findings:
            if finding.condition not in self._settings.drain_on or finding.level == "warn":
                continue
            if finding.frozen and len(finding.hosts) == 1:
                unsure.update(finding.hosts)
            elif len(finding.hosts) == 1:
                failing.setdefault(finding.hosts[0], finding.message)
            else:  # a bad pair of which nobody knows whose fault it is: neither good nor bad
                unsure.update(finding.hosts if not finding.frozen else ())
        with self._lock:
            checked: dict[str, int] = {h: f.at_us for h, f in self._facts.items()}
        for cell in cells:
            for host in (cell.source, cell.destination):
                checked[host] = max(checked.get(host, 0), cell.checked_us)
        unsure -= failing.keys() - seen.silent_since.keys()
        self._healths, decided = after_checks(
            self._drains, self._healths, seen.hosts, checked, failing, frozenset(unsure)
        )
        for event in decided:
            self._leader.post(event)
            what = f"drained: {event.reason}" if isinstance(event, ev.HostDrained) else "returned"
            log.warning("host %s is %s", getattr(event, "host", "?"), what)

    # -- for the API ---------------------------------------------------------------------------

    def view(self) -> Mapping[str, Any]:
        """All alerts, those that hold first, then the newest; rules and channels by name."""
        with self._lock:
            alerts = list(self._alerts.values())
        order = {"firing": 0, "pending": 1, "resolved": 2}
        alerts.sort(key=lambda a: (order[a.state], -max(a.fired_us, a.ended_us), a.key))
        return {
            "alerts": [row(a) for a in alerts],
            "rules": [asdict(r) for r in self._rules],
            "channels": self._channels,
        }


def see(cycle: Cycle, now_us: int) -> Seen:
    state = cycle.state
    aligned = state.alignment
    placed = {*aligned.unmatched, *(s.job for s in aligned.schedules)} & state.jobs.keys()
    jobs = {job: state.jobs[job].placement for job in placed}
    places = {job: placement.hosts for job, placement in jobs.items() if placement is not None}
    return Seen(dict(state.hosts), dict(state.silent_since), aligned, places)


def row(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.episode if alert.fired_us else alert.key,
        "state": alert.state,
        "rule": alert.rule,
        "condition": alert.condition,
        "subject": alert.subject,
        "hosts": alert.hosts,
        "message": alert.message,
        "pending_us": alert.pending_us or None,
        "fired_us": alert.fired_us or None,
        "ended_us": alert.ended_us or None,
        "fired_recently": len(alert.starts),
        "silenced": alert.frozen or None,
        "owed": [{"event": event, "channel": channel} for event, channel in alert.owed],
        "failed": alert.failed or None,
    }


def revived(stored: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Alert]:
    found: dict[str, Alert] = {}
    for name, body in stored:
        if name.startswith(PREFIX):
            try:
                alert = msgspec.convert(body, Alert)
            except msgspec.ValidationError as error:
                log.error("the stored %s is not an alert: %s", name, error)
                continue
            found[alert.key] = alert
    return found


def essence(alert: Alert) -> tuple[Any, ...]:
    """What must survive a restart; a pending alert that was never told need not."""
    return (alert.fired_us, alert.ended_us, alert.starts, alert.owed, alert.failed)


def facts_of(told: Mapping[str, Any], at_us: int) -> HostFacts:
    gpus = [g for g in told.get("gpus") or () if isinstance(g, Mapping)]
    errors = []
    for gpu in gpus:
        count = gpu.get("ecc_uncorrected")
        if isinstance(count, int) and count > 0:
            errors.append(f"GPU {gpu.get('index')} has {count} uncorrected memory errors")
    free = told.get("disk_free_bytes")
    return HostFacts(at_us, free if isinstance(free, int) else None, len(gpus), tuple(errors))
