"""Alerts: each is notified once when its condition has held for a while, once for each time that it then
worsens from a warning to critical, and once when it is over.

A pure state machine over findings. A finding says that a condition holds of a subject, or that nothing
is known of it now (`frozen`: maintenance, or nothing measured). A condition without a finding does
not hold. All instants are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from rm.core.model.host import Host, selected
from rm.protocol.line import printable
from rm.units import HOUR_US, MINUTE_US, SECOND_US

# Conditions that a mesh's cells show (rm.core.monitoring.cells), in two levels, and the others.
GRADED = ("loss", "delay", "delay_p95", "jitter", "clock", "bandwidth", "mtu", "trace", "dns", "http")
CONDITIONS = (*GRADED, "unmeasured", "host-down", "agent-silent", "rotation-lost", "disk", "gpu", "gpus-idle")
LEVELS = ("warn", "critical")
# The level from which a rule that names none notifies: "critical" but for these. A loss is judged with
# confidence over many packets, and 1 % of them in one direction already halves what TCP carries.
USUAL_LEVELS = {"loss": "warn"}
# How long a condition must hold where a rule does not say: `USUAL_AFTER_US` but for these. Jobs that share
# links come and go, are inspected, measured without management and planned anew, for minutes.
USUAL_AFTER_US = 10 * SECOND_US
LONGER_AFTER_US = {"rotation-lost": 5 * MINUTE_US}
# One that comes back within this time is flapping: each further time its recovery must hold twice as long.
FLAPPING_US = HOUR_US
DOUBLINGS = 4
FIRING, WORSENED, IMPROVED, RESOLVED = "firing", "worsened", "improved", "resolved"
NO_RULE = "no rule of rm.toml covers this any more"


@dataclass(frozen=True, slots=True)
class Finding:
    """`condition` holds of `subject` (a host, "a - b", "job 7"), which concerns `hosts`.

    `level` is one of LEVELS for the graded conditions, "" otherwise; `worst` is the worst level that holds
    of it, "" = `level`. `frozen` says why nothing is known now, "" = it holds. `covered` names a more
    specific condition: a channel that gets that one does not need this one. `lingers`: it was at fault when
    it fired, and would not be blamed for what is still bad, which one lying peer can claim.

    The message may have words of hosts, and goes into mails, logs and terminals: it is one line.
    """

    condition: str
    subject: str
    message: str = ""
    hosts: tuple[str, ...] = ()
    level: str = ""
    frozen: str = ""
    covered: str = ""
    worst: str = ""
    lingers: bool = False

    def __post_init__(self) -> None:
        if not self.message.isprintable():
            object.__setattr__(self, "message", printable(self.message))

    @property
    def grade(self) -> str:
        return self.worst or self.level


@dataclass(frozen=True, slots=True)
class Rule:
    """Which channels get what: findings of the conditions `on` from `level` on ("": each from its usual one),
    of these hosts and zones ([] = all), after they held for `after_us` (None: for the usual time of each);
    recovery after `clear_us` without. `tell` names channels; `improved`: they are also notified when what was
    critical is only a warning. Those in `keeping` always are: each level is to them an alert that goes on
    until they hear of its end."""

    name: str
    on: tuple[str, ...] = CONDITIONS
    level: str = ""
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    after_us: int | None = None
    clear_us: int = 60_000_000
    tell: tuple[str, ...] = ()
    improved: bool = False
    keeping: tuple[str, ...] = ()

    @property
    def least_us(self) -> int:
        """How long conditions must hold before they fire, but for some that must hold for longer."""
        return USUAL_AFTER_US if self.after_us is None else self.after_us

    def waits_us(self, condition: str) -> int:
        """How long the condition must hold before it fires."""
        return LONGER_AFTER_US.get(condition, USUAL_AFTER_US) if self.after_us is None else self.after_us

    def hears(self, finding: Finding, hosts: Mapping[str, Host]) -> bool:
        level = self.level or USUAL_LEVELS.get(finding.condition, "critical")
        if finding.condition not in self.on or finding.level not in ("", level):
            return False
        if not self.hosts and not self.zones:
            return True
        concerned = (hosts[name] for name in finding.hosts if name in hosts)
        return any(selected(host, self.hosts, self.zones) for host in concerned)


class Owed(NamedTuple):
    """`channel` is to be notified of `event`, which happened at `at_us`, in the episode that fired at
    `fired_us`. Stored as a list, without instants where an earlier version wrote it (0 = the alert's newest).
    """

    event: str
    channel: str
    at_us: int = 0
    fired_us: int = 0


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule's condition of one subject, as far as it is known.

    `pending_us`: holds since then, and has not fired yet. `fired_us`, `ended_us`: when the last episode
    fired, and when it ended (0 = not yet). `cleared_us`: does not hold since then, not ended
    yet. `starts`: when it fired recently. `level` is what was last notified of a graded condition, since
    `graded_us`; `worse_us`, `better_us`: it is worse or less bad since then, which does not count yet.
    `worsenings`: when it became critical recently. `told`: the channels that are notified of this episode.
    `owed`: what is not yet delivered, in order; `failed`: why a channel was given up.
    `acked`: who looks after it, and in which words.
    """

    rule: str
    condition: str
    subject: str
    message: str = ""
    hosts: tuple[str, ...] = ()
    pending_us: int = 0
    fired_us: int = 0
    cleared_us: int = 0
    ended_us: int = 0
    starts: tuple[int, ...] = ()
    told: tuple[str, ...] = ()
    owed: tuple[Owed, ...] = ()
    failed: str = ""
    frozen: str = ""
    acked: str = ""
    level: str = ""
    graded_us: int = 0
    worse_us: int = 0
    better_us: int = 0
    worsenings: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.rule}/{self.condition}/{self.subject}"

    @property
    def episode(self) -> str:
        """Identifies the episode: the same for the firing and its recovery, and for each repetition."""
        return f"{self.key}@{self.fired_us}"

    @property
    def firing(self) -> bool:
        return bool(self.fired_us) and not self.ended_us

    @property
    def state(self) -> str:
        if self.firing:
            return FIRING
        return "pending" if self.pending_us else RESOLVED


def step(
    rules: Iterable[Rule],
    alerts: Mapping[str, Alert],
    findings: Iterable[Finding],
    hosts: Mapping[str, Host],
    now_us: int,
    silenced: Callable[[Finding], str] = lambda finding: "",
) -> dict[str, Alert]:
    """All alerts after these findings; the new entries of `owed` are to be sent.

    An alert that was pending for the first time and does not hold any more is dropped; one that fires by a
    removed rule is over. `silenced` says why a finding must not fire now, "" = it may.
    """
    after: dict[str, Alert] = {}
    found = list(findings)
    known: set[str] = set()
    for rule in rules:
        mine: dict[tuple[str, str], Finding] = {}
        for finding in found:
            if rule.hears(finding, hosts):
                if finding.covered in rule.on:
                    finding = replace(finding, frozen=f"see {finding.covered}")
                here = mine.setdefault((finding.condition, finding.subject), finding)
                if here.frozen and not finding.frozen:  # what is known counts
                    mine[finding.condition, finding.subject] = finding
        for old in alerts.values():
            if old.rule == rule.name and old.condition in rule.on:
                known.add(old.key)
                new = _after(rule, old, mine.pop((old.condition, old.subject), None), now_us, silenced)
                if new.pending_us or new.fired_us:
                    after[new.key] = new
        for finding in mine.values():
            if not finding.frozen:
                blank = Alert(rule.name, finding.condition, finding.subject)
                new = _after(rule, blank, finding, now_us, silenced)
                after[new.key] = new
    for key, old in alerts.items():
        if key not in known and old.fired_us:
            gone = replace(old, pending_us=0, frozen="")
            after[key] = _end(replace(gone, message=NO_RULE), now_us) if old.firing else gone
    return after


def _after(
    rule: Rule, old: Alert, finding: Finding | None, now_us: int, silenced: Callable[[Finding], str]
) -> Alert:
    if finding is not None and finding.frozen:
        return replace(old, pending_us=0, cleared_us=0, worse_us=0, better_us=0, frozen=finding.frozen)
    alert = replace(old, frozen="")
    if finding is not None:
        alert = replace(alert, message=finding.message, hosts=finding.hosts, cleared_us=0)
        if alert.firing:
            return _grade(rule, alert, finding, now_us, silenced)
        begun_us = min(alert.pending_us or now_us, now_us)  # the clock may go back
        why = silenced(finding)
        if why or now_us - begun_us < rule.waits_us(alert.condition):
            return replace(alert, pending_us=begun_us, frozen=why)
        return _fire(rule, alert, finding.grade, now_us)
    if not alert.firing:
        return replace(alert, pending_us=0)
    cleared_us = min(alert.cleared_us or now_us, now_us)
    if now_us - cleared_us < clear_us(rule, alert, now_us):
        return replace(alert, cleared_us=cleared_us, worse_us=0)
    return _end(alert, now_us)


def _grade(
    rule: Rule, alert: Alert, finding: Finding, now_us: int, silenced: Callable[[Finding], str]
) -> Alert:
    """Goes on holding: whether it is worse than what was notified, for as long as what is new must hold, or
    less bad, for as long as a recovery must. So a status that flaps at a threshold is notified of once."""
    grade = finding.grade
    if grade == alert.level or not alert.level:  # what an earlier version stored has no level
        return replace(alert, level=grade, worse_us=0, better_us=0)
    if LEVELS.index(grade) > LEVELS.index(alert.level):
        begun_us = min(alert.worse_us or now_us, now_us)
        why = silenced(finding)
        if why or now_us - begun_us < rule.waits_us(alert.condition):
            return replace(alert, worse_us=begun_us, better_us=0, frozen=why)
        worse = replace(alert, worsenings=_recent(alert.worsenings, now_us))
        return _regrade(worse, grade, WORSENED, alert.told, now_us)
    begun_us = min(alert.better_us or now_us, now_us)
    if now_us - begun_us < _damped(rule.clear_us, alert.worsenings, now_us):
        return replace(alert, better_us=begun_us, worse_us=0)
    told = tuple(one for one in alert.told if rule.improved or one in rule.keeping)
    return _regrade(alert, grade, IMPROVED, told, now_us)


def _regrade(alert: Alert, level: str, event: str, told: tuple[str, ...], now_us: int) -> Alert:
    graded_us = max(now_us, alert.graded_us + 1)  # as with `fired_us`
    graded = replace(alert, level=level, graded_us=graded_us, worse_us=0, better_us=0)
    return _owing(graded, event, told, graded_us)


def _owing(alert: Alert, event: str, told: tuple[str, ...], at_us: int) -> Alert:
    """The alert, of whose event the channels are to be notified."""
    return replace(alert, owed=(*alert.owed, *(Owed(event, one, at_us, alert.fired_us) for one in told)))


def _recent(instants: tuple[int, ...], now_us: int) -> tuple[int, ...]:
    """The instants that damping looks at, with this one."""
    return (*(t for t in instants if 0 <= now_us - t < FLAPPING_US), now_us)[-DOUBLINGS - 1 :]


def _fire(rule: Rule, alert: Alert, level: str, now_us: int) -> Alert:
    fired_us = max(now_us, alert.fired_us + 1)  # episodes keep their names apart when the clock goes back
    fired = replace(
        alert,
        pending_us=0,
        fired_us=fired_us,
        ended_us=0,
        starts=_recent(alert.starts, now_us),
        level=level,
        graded_us=max(fired_us, alert.graded_us + 1),
        worse_us=0,
        better_us=0,
        worsenings=_recent(alert.worsenings, now_us) if level == LEVELS[-1] else alert.worsenings,
        told=rule.tell,
        failed="",
        frozen="",
        acked="",
    )
    return _owing(fired, FIRING, rule.tell, fired_us)


def _end(alert: Alert, now_us: int) -> Alert:
    """Over: every channel notified of the firing is notified of the end, even if the rules have changed."""
    ended_us = max(now_us, 1)
    ended = replace(alert, cleared_us=0, worse_us=0, better_us=0, ended_us=ended_us)
    return _owing(ended, RESOLVED, alert.told, ended_us)


def clear_us(rule: Rule, alert: Alert, now_us: int) -> int:
    """How long the condition must not hold before it is over."""
    return _damped(rule.clear_us, alert.starts, now_us)


def _damped(clear_us: int, instants: tuple[int, ...], now_us: int) -> int:
    recent = sum(1 for t in instants if now_us - t < FLAPPING_US)
    return clear_us << min(max(recent - 1, 0), DOUBLINGS)


def delivered(alert: Alert, event: str, channel: str, failed: str = "") -> Alert:
    """The alert after `channel` was notified of `event`, or was given up for the reason `failed`."""
    owed = list(alert.owed)
    oldest = next((one for one in owed if (one.event, one.channel) == (event, channel)), None)
    if oldest is not None:
        owed.remove(oldest)
    said = f"{channel}: {failed}" if failed else alert.failed
    return replace(alert, owed=tuple(owed), failed=said)


def forget(alerts: Mapping[str, Alert], before_us: int, most: int) -> list[str]:
    """Keys of alerts that are over and delivered: ended before then, or older than the newest `most`."""
    over = sorted(
        (a for a in alerts.values() if a.state == RESOLVED and not a.owed), key=lambda a: a.ended_us
    )
    extra = max(0, len(over) - most)
    return [a.key for n, a in enumerate(over) if n < extra or a.ended_us < before_us]
