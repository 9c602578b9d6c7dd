"""Draining hosts that fail their checks, and returning them.

Only what was drained by rm itself is returned by itself: `Host.drained_by`, which is durable, ends with
the author. An operator or a burn-in may return the host earlier (`rmx host resume`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rm.core.jobs import events as ev
from rm.core.model.host import Host, HostState
from rm.core.monitoring.cells import Cell, Status

AUTHOR = "rm, by its checks"


@dataclass(frozen=True, slots=True)
class DrainRules:
    """Drain after `failures` checks in a row; return after `successes` (0 = never by itself); at most
    `share` of the hosts, but one, are drained so at the same time."""

    failures: int = 5
    successes: int = 20
    share: float = 0.25


@dataclass(frozen=True, slots=True)
class Health:
    """Checks in a row that failed or passed; `checked_us` is the newest one that counted."""

    checked_us: int = 0
    failures: int = 0
    successes: int = 0


def newly_bad(cells: Iterable[Cell], healths: Mapping[str, Health]) -> set[tuple[str, str]]:
    """(check or "unmeasured", host) of which a test since the host's last check was bad.

    A status stays bad for some tries after a fault has gone; those tries are no failed checks.
    """
    found: set[tuple[str, str]] = set()
    for cell in cells:
        condition = {Status.CRITICAL: cell.check, Status.UNKNOWN: "unmeasured"}.get(cell.result)
        if condition is not None:
            for host in (cell.source, cell.destination):
                if cell.checked_us > healths.get(host, Health()).checked_us:
                    found.add((condition, host))
    return found


def is_automatic(host: Host) -> bool:
    return host.drained_by.endswith(f"({AUTHOR})")


def still(event: ev.HostDrained | ev.HostResumed, hosts: Mapping[str, Host]) -> bool:
    """May what was decided a moment ago still happen? A person may have drained the host meanwhile, or
    returned it: what people say counts."""
    host = hosts.get(event.host)
    if host is None:
        return False
    return is_automatic(host) if isinstance(event, ev.HostResumed) else not host.drained_by


def after_checks(
    rules: DrainRules,
    healths: Mapping[str, Health],
    hosts: Mapping[str, Host],
    checked_us: Mapping[str, int],
    failing: Mapping[str, str],
    unsure: frozenset[str] = frozenset(),
) -> tuple[dict[str, Health], list[ev.HostDrained | ev.HostResumed]]:
    """The hosts' health after their newest checks, and which to drain or return.

    Args:
        checked_us: when each host was checked last; an instant counts once.
        failing: why a host fails; all others are healthy,
        unsure: but of these nothing is known (down, under maintenance): they are not counted.
    """
    after: dict[str, Health] = {}
    decided: list[ev.HostDrained | ev.HostResumed] = []
    drained = sum(1 for host in hosts.values() if is_automatic(host))
    most = max(1, int(rules.share * len(hosts)))
    for name, host in hosts.items():
        health = healths.get(name, Health())
        now_us = checked_us.get(name, 0)
        if now_us > health.checked_us and name not in unsure and host.state is not HostState.DOWN:
            if name in failing:  # a drained host starts anew when it is returned
                health = Health(now_us, 0 if host.drained_by else health.failures + 1, 0)
            else:
                health = Health(now_us, 0, health.successes + 1)
        if not host.drained_by and name in failing and health.failures >= rules.failures and drained < most:
            reason = f"failed {health.failures} checks in a row: {failing[name].rstrip('.')}"
            decided.append(ev.HostDrained(name, AUTHOR, reason))
            drained += 1
            health = Health(health.checked_us)
        elif is_automatic(host) and rules.successes and health.successes >= rules.successes:
            decided.append(ev.HostResumed(name, AUTHOR))
            drained -= 1
            health = Health(health.checked_us)
        after[name] = health
    return after, decided
