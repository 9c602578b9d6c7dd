"""Checks the conditions every few seconds, keeps the alerts, notifies channels, drains hosts.

Alerts are durable (documents of the store, one each) before anybody is notified; a restart continues
with them, and sends what was still owed. So a channel may hear the same twice, with the
same id, but never of a second firing without a recovery between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Protocol

import msgspec

from rm.core.alerts.alert import FIRING, Alert, Finding, Owed, Rule, delivered, forget, step
from rm.core.alerts.channel import Channel
from rm.core.alerts.findings import (
    facts_findings,
    host_findings,
    network_findings,
    rotation_findings,
)
from rm.core.alerts.idle_gpus import GpuJob, gpu_jobs
from rm.core.alerts.notices import Notice, notice_of
from rm.core.model.host import Host
from rm.core.model.network.alignment import Alignment
from rm.core.monitoring.cells import Cell
from rm.core.monitoring.maintenance import HostWindow
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.agents import Agents
from rm.daemon.alerts.delivery import Delivery
from rm.daemon.alerts.draining import Draining
from rm.daemon.alerts.draining import Settings as DrainSettings
from rm.daemon.alerts.facts import Facts
from rm.daemon.alerts.idle_gpus import IdleGpus
from rm.daemon.alerts.idle_gpus import Settings as IdleSettings
from rm.daemon.alerts.silences import Silences
from rm.daemon.leading.leader import Leader
from rm.errors import NotFound, RmError
from rm.typed import convert
from rm.units import DAY_US, SECOND_US

log = logging.getLogger(__name__)

PREFIX = "alert/"  # of the names of documents
MOST = 1_000  # alerts that are over and still listed
PATIENCE_S = 30.0


class Settings(DrainSettings, IdleSettings, Protocol):
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


@dataclass(frozen=True, slots=True)
class Seen:
    """The leader's state, as far as alerts look at it."""

    hosts: Mapping[str, Host]
    silent_since: Mapping[str, int]
    alignment: Alignment
    places: Mapping[int, tuple[str, ...]]  # the hosts of the jobs that share links
    gpu_jobs: tuple[GpuJob, ...] = ()


class Alerting:
    """`cells` are those of all meshes now, `paused` the names of those that nobody measures, `standings` says
    how well jobs keep their slots (`Controller.standings`); `stored` are the documents of the last life; with
    `mails` users of jobs can be mailed."""

    def __init__(
        self,
        *,
        leader: Leader,
        agents: Agents,
        clock: Clock,
        cells: Callable[[Mapping[str, Host]], Iterable[Cell]],
        paused: Callable[[], Set[str]] = frozenset,
        standings: Callable[[], Mapping[int, str | None]],
        windows: Sequence[HostWindow],
        zone: tzinfo,
        rules: Sequence[Rule],
        channels: Mapping[str, Channel],
        settings: Settings,
        stored: Iterable[tuple[str, Mapping[str, Any]]],
        cluster: str,
        connect_s: float = 10.0,
        mails: bool = False,
    ) -> None:
        self._leader = leader
        self._clock = clock
        self._cells = cells
        self._paused = paused
        self._standings = standings
        self._windows = tuple(windows)
        self._zone = zone
        self._rules = tuple(rules)
        self._channels = tuple(channels)
        self._repeats_us = {n: round(c.repeat_s * SECOND_US) for n, c in channels.items() if c.repeat_s}
        self._repeated_us: dict[str, int] = {}
        self._settings = settings
        self._cluster = cluster
        self._connect_us = round(connect_s * SECOND_US)
        self._draining = Draining(leader, settings)
        self._idle_gpus = IdleGpus(leader, settings, mails=mails)
        self._facts = Facts(agents, clock, round(settings.facts_s * SECOND_US))
        self._lock = threading.Lock()
        documents = list(stored)
        self._alerts = revived(documents)
        self.silences = Silences(leader, clock, documents)
        self._due: list[tuple[str, Owed]] = [(key, one) for key, a in self._alerts.items() for one in a.owed]
        self._delivery = Delivery(channels, self._settled, settings.attempts, settings.backoff_s)

    def close(self) -> None:
        self._delivery.close()

    def look(self) -> None:
        """What holds now; called every few seconds, never twice at once."""
        try:
            self._look()
        except (
            RmError,
            TimeoutError,
        ) as error:  # the leader stops, or the database is away: it says so itself
            log.warning("alerts cannot be checked: %s", error or "the daemon was too busy")
        except Exception:
            log.exception("alerts met a defect of rm")

    def _look(self) -> None:
        seen: Seen = self._leader.ask(partial(see, gpus=self._settings.gpus_idle_s > 0)).result(PATIENCE_S)
        now_us = self._clock.now_us()
        self.silences.forget()
        self._facts.ask(seen.hosts.values(), now_us, self._idle_gpus.often(seen.gpu_jobs))
        cells = list(self._cells(seen.hosts))
        with self._lock:
            told = {(a.condition, a.subject) for a in self._alerts.values() if a.firing}
        findings = self._findings(seen, cells, told, now_us)
        with self._lock:
            before = self._alerts
            after = step(self._rules, before, findings, seen.hosts, now_us, self.silences.of)
            for key in forget(after, now_us - round(self._settings.keep_days * DAY_US), MOST):
                del after[key]
            self._alerts = after
            kept = self._keep(before, after)
        for key, alert in after.items():
            old = before.get(key)
            if alert.fired_us and (old is None or _standing(old) != _standing(alert)):
                log.warning("alert %s: %s: %s", _standing(alert)[1], key, alert.message)
            was = len(old.owed) if old is not None else 0
            self._due += [(key, owed) for owed in alert.owed[was:]]
        if kept is not None:
            kept.result(PATIENCE_S)
        notices: dict[str, list[Notice]] = {}
        for key, owed in self._due:
            if (due := after.get(key)) is not None:
                notices.setdefault(owed.channel, []).append(notice_of(due, owed, self._cluster))
        self._due = []
        for channel, mine in notices.items():
            self._delivery.tell(channel, mine)
        self._tell_again(after.values(), now_us)
        if self._settings.drain:
            known = self._facts.known()
            self._draining.look(seen.hosts, seen.silent_since.keys(), cells, known, findings, now_us)

    def _tell_again(self, alerts: Collection[Alert], now_us: int) -> None:
        """What fires, to channels that forget it otherwise; also after a restart of the daemon."""
        for channel, every_us in self._repeats_us.items():
            if not 0 <= now_us - self._repeated_us.get(channel, 0) < every_us:
                self._repeated_us[channel] = now_us
                told = [a for a in alerts if a.firing and channel in a.told]
                standing = [
                    notice_of(a, Owed(FIRING, channel, a.fired_us, a.fired_us), self._cluster) for a in told
                ]
                self._delivery.tell_again(channel, standing)

    def _findings(
        self, seen: Seen, cells: Sequence[Cell], told: set[tuple[str, str]], now_us: int
    ) -> list[Finding]:
        def maintained(host: Host) -> bool:
            return any(w.covers(host, now_us, self._zone) for w in self._windows)

        silent = {h for h, t in seen.silent_since.items() if now_us - t >= self._connect_us}
        waited_for = seen.silent_since.keys() - silent
        least_bytes = self._settings.disk_free_mb << 20
        facts = self._facts.known()
        return [
            *network_findings(cells, told, self._paused()),
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
            *self._idle_gpus.look(seen.gpu_jobs, facts),
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

    def _settled(self, notices: Sequence[Notice], channel: str, failed: str) -> None:
        """A channel was notified, or given up; an alert may be gone, or in its next episode, by now."""
        with self._lock:
            changed: dict[str, Alert] = {}
            for notice in notices:
                before = changed.get(notice.key) or self._alerts.get(notice.key)
                if before is not None:
                    changed[notice.key] = delivered(before, notice.event, channel, failed)
            self._keep_changed(changed)

    def _keep_changed(self, changed: Mapping[str, Alert]) -> Future[Any]:
        self._alerts = {**self._alerts, **changed}
        return self._leader.keep(tuple((PREFIX + key, asdict(a)) for key, a in changed.items()))

    # -- for the API ---------------------------------------------------------------------------

    def acknowledge(self, names: Sequence[str], by: str, comment: str) -> tuple[list[str], Future[Any]]:
        """Note who looks after what fires; names are ids, keys or subjects of alerts. Returns the keys, and
        when it is durable.

        Raises:
            NotFound: nothing so named fires.
        """
        words = by + (f": {comment}" if comment else "")
        with self._lock:
            named: dict[str, list[Alert]] = {}
            for alert in self._alerts.values():
                for name in {alert.episode, alert.key, alert.subject} if alert.firing else ():
                    named.setdefault(name, []).append(alert)
            for name in names:
                if name not in named:
                    raise NotFound(f"No alert '{name:.100}' is firing.", "`rmx alerts --active` lists them.")
            changed = {a.key: replace(a, acked=words) for name in names for a in named[name]}
            return list(changed), self._keep_changed(changed)

    def view(self) -> Mapping[str, Any]:
        """All alerts, those that hold first, then the newest; silences; rules, and channels by name."""
        with self._lock:
            alerts = list(self._alerts.values())
        order = {"firing": 0, "pending": 1, "resolved": 2}
        alerts.sort(key=lambda a: (order[a.state], -max(a.fired_us, a.ended_us), a.key))
        return {
            "alerts": [row(a) for a in alerts],
            "silences": self.silences.view(),
            "rules": [_rule(r) for r in self._rules],
            "channels": self._channels,
        }


def see(cycle: Cycle, now_us: int, gpus: bool) -> Seen:
    state = cycle.state
    aligned = state.alignment
    placed = {*aligned.unmatched, *(s.job for s in aligned.schedules)} & state.jobs.keys()
    jobs = {job: state.jobs[job].placement for job in placed}
    places = {job: placement.hosts for job, placement in jobs.items() if placement is not None}
    idle = gpu_jobs(state) if gpus else ()
    return Seen(dict(state.hosts), dict(state.silent_since), aligned, places, idle)


def _rule(rule: Rule) -> dict[str, Any]:
    """As the API has it: how long conditions must hold, also where the rule leaves it to each of them."""
    longer_us = {one: rule.waits_us(one) for one in rule.on if rule.waits_us(one) > rule.least_us}
    told = {name: value for name, value in asdict(rule).items() if name != "keeping"}
    return {**told, "after_us": rule.least_us, "longer_us": longer_us}


def row(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.episode if alert.fired_us else alert.key,
        "state": alert.state,
        "rule": alert.rule,
        "condition": alert.condition,
        "subject": alert.subject,
        "level": alert.level or None,
        "hosts": alert.hosts,
        "message": alert.message,
        "pending_us": alert.pending_us or None,
        "fired_us": alert.fired_us or None,
        "ended_us": alert.ended_us or None,
        "fired_recently": len(alert.starts),
        "silenced": alert.frozen or None,
        "acked": alert.acked or None,
        "owed": [{"event": one.event, "channel": one.channel} for one in alert.owed],
        "failed": alert.failed or None,
    }


def revived(stored: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Alert]:
    found: dict[str, Alert] = {}
    for name, body in stored:
        if name.startswith(PREFIX):
            try:
                alert = convert(body, Alert)
            except msgspec.ValidationError as error:
                log.error("the stored %s is not an alert: %s", name, error)
                continue
            found[alert.key] = alert
    return found


def essence(alert: Alert) -> tuple[Any, ...]:
    """What must survive a restart; a pending alert that never fired need not."""
    told = (alert.told, alert.owed, alert.failed, alert.acked)
    return (alert.fired_us, alert.ended_us, alert.starts, alert.graded_us, alert.level, *told)


def _standing(alert: Alert) -> tuple[int, str]:
    """The episode, and how it stands in words."""
    return alert.fired_us, f"{alert.state} ({alert.level})" if alert.level and alert.firing else alert.state
