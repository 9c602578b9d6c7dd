"""What the clock alone brings: hosts that are given up, deadlines, mails of time limits, reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import islice

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Rules
from rm.core.jobs.handlers.fencing import on_silent_hosts
from rm.core.jobs.state import ClusterState
from rm.core.model.host import HostState

# jobs that one step ends, mails about, or takes off hosts, for the clock alone: the next steps follow at once
AT_ONCE = 200


def due(state: ClusterState, rules: Rules, arrived: Sequence[ev.Event], now_us: int) -> list[ev.Event]:
    """Hosts that are given up now, and jobs; not a host that has just answered: what it said to that is
    among the events, by a state in which its tasks were not lost."""
    if arrived and isinstance(arrived[0], ev.ClockStepped):
        return []  # by which clock? In the next turn it is clear
    events: list[ev.Event] = []
    if state.silent_since:
        answered = {e.host for e in arrived if isinstance(e, ev.HostUp)}
        lost = 0
        for name, since in state.silent_since.items():
            host = state.hosts.get(name)
            if host is None or host.state is HostState.DOWN or name in answered:
                continue
            if now_us - since >= rules.down_after_us and lost < AT_ONCE:
                events.append(ev.HostDown(name, host.reason or "it never answered"))
                lost += 1 + len(state.jobs_on.get(name, ()))
        over = (
            ev.LeaseOver(job.id, job.attempt, name)
            for job, name, over_us in on_silent_hosts(state, rules)
            if name not in answered and over_us <= now_us
        )
        events += islice(over, AT_ONCE)
    events += [ev.DeadlineMissed(job) for job in sorted(state.deadlines.before(now_us, AT_ONCE))]
    for one in state.reservations.values():
        edge_us = one.edge_us()
        if edge_us is not None and edge_us <= now_us:
            events.append(ev.ReservationTurned(one.name, edge_us))
    if state.marks:
        passed = ((job, share) for job, (at_us, share) in state.marks.items() if at_us <= now_us)
        events += [ev.SharePassed(job, share) for job, share in nsmallest(AT_ONCE, passed)]
    return events


def instants(state: ClusterState, rules: Rules) -> Iterator[int]:
    """When it brings something, in microseconds since the epoch; the first of each kind is among them."""
    yield from _losses(state, rules)
    if (latest_us := state.deadlines.first_us()) is not None:
        yield latest_us + 1
    if state.marks:
        yield min(at_us for at_us, _ in state.marks.values())
    for one in state.reservations.values():
        if (edge_us := one.edge_us()) is not None:
            yield edge_us


def _losses(state: ClusterState, rules: Rules) -> Iterator[int]:
    if not state.silent_since:
        return
    for host, since in state.silent_since.items():
        if host in state.hosts and state.hosts[host].state is not HostState.DOWN:
            yield since + rules.down_after_us
    for _, _, at_us in on_silent_hosts(state, rules):
        yield at_us


def loses_more(came: Sequence[ev.Event], state: ClusterState, rules: Rules, now_us: int) -> bool:
    """Has the clock brought losses of hosts (`came`), and does it bring more in the next step? Until all are
    known no pass is made, or jobs that were lost first would take what is free from those before them."""
    lost = any(isinstance(event, ev.HostDown | ev.LeaseOver) for event in came)
    return lost and any(at_us <= now_us for at_us in _losses(state, rules))


def in_time(jobs: list[int], state: ClusterState, now_us: int) -> list[int]:
    """Without those that have missed their deadlines: the next steps cancel them."""
    first_us = state.deadlines.first_us()
    if first_us is None or first_us >= now_us:
        return jobs
    return [job for job in jobs if state.deadlines.get(job, now_us) >= now_us]
