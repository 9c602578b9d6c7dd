"""What holds now, as findings (`rm.core.alerts.alert`): from cells, hosts, the alignment, agents' facts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from rm.core.alerts.alert import GRADED, LEVELS, Finding
from rm.core.alerts.blame import Pair, blamed, pair
from rm.core.model.host import Host, HostState
from rm.core.model.network.alignment import Alignment, in_words
from rm.core.monitoring.cells import Cell, Status

MAINTENANCE = "maintenance"
SUSPECT_SHARE = 0.25
# Two comparisons, half an hour apart: in one what else the hosts do may make the difference. Meanwhile the
# jobs are left alone, which is as good as without rm.
ALONE_TIMES = 2
SMALL_DISK = 10  # at most one part in this many of a disk is wanted free
UNMEASURED = "not measured now"
PAUSED = "paused"
Told = Set[tuple[str, str]]  # (condition, subject) of alerts that have fired and are not over


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What an agent said of its host at `at_us`: free bytes of the file system with the spool, and its size;
    how many GPUs answer, and how many did at most since this daemon asks; of each GPU with errors, a
    sentence."""

    at_us: int
    disk_free_bytes: int | None = None
    gpus: int = 0
    gpu_errors: tuple[str, ...] = ()
    disk_bytes: int | None = None
    gpus_most: int = 0
    gpus_busy: tuple[tuple[int, str, int | None], ...] = ()  # index, uuid, percent (None: not reported)

    def busy_pct(self, index: int, uuid: str) -> int | None:
        """Of the GPU with this uuid, without one with this index; None: nothing is known of it."""
        for its_index, its_uuid, percent in self.gpus_busy:
            if its_uuid == uuid if uuid else its_index == index:
                return percent
        return None


def network_findings(cells: Iterable[Cell], told: Told, paused: Set[str] = frozenset()) -> Iterator[Finding]:
    """By condition and level: the hosts at fault (`rm.core.alerts.blame`), and the other bad pairs. Of the
    cells of meshes that are `paused` nothing fires, and nothing ends.

    A status changes only after several tries, and pair by pair: the newest tries of the other pairs decide
    who is at fault for the first bad pair. A host in a firing alert stays at fault until none of its
    pairs is bad. So one fault is one alert, while cells go bad and recover one by one.
    """
    known = [c for c in cells if c.result is not Status.NOT_RUN]  # its first tries may not count yet
    by_check: dict[str, list[Cell]] = {}
    for cell in known:
        by_check.setdefault(cell.check, []).append(cell)
    for check in GRADED:
        for level in LEVELS:
            yield from _judge(check, level, by_check.get(check, ()), told, paused)
    yield from _judge("unmeasured", "", known, told, paused)


class _Eyes:
    """What a cell's status and the result of its newest try mean for a condition at a level."""

    def __init__(self, condition: str, level: str) -> None:
        self._unmeasured = condition == "unmeasured"
        self._bad = (Status.WARN, Status.CRITICAL) if level == "warn" else (Status.CRITICAL,)
        self._doubtful = (Status.WARN, Status.CRITICAL)  # that it is worse shows in some pairs before others
        self.bad: dict[tuple[Status, Status], bool] = {}
        self.suspect: dict[tuple[Status, Status], bool] = {}
        self.unsure: dict[tuple[Status, Status], bool] = {}
        for status in Status:
            for result in Status:
                here = (status, result)
                self.bad[here] = self._is_bad(status, result)
                doubtful = self._is_bad(result, result) if self._unmeasured else result in self._doubtful
                self.suspect[here] = status is not Status.MAINTENANCE and doubtful
                self.unsure[here] = not self.bad[here] and status in (Status.UNKNOWN, Status.MAINTENANCE)

    def _is_bad(self, status: Status, result: Status) -> bool:
        if self._unmeasured:  # tried, and nothing was learnt; not: stale
            return status is Status.UNKNOWN and result is Status.UNKNOWN
        return status in self._bad


EYES = {(c, level): _Eyes(c, level) for c in GRADED for level in LEVELS} | {
    ("unmeasured", ""): _Eyes("unmeasured", "")
}


def _judge(
    condition: str, level: str, cells: Collection[Cell], told: Told, paused: Set[str]
) -> Iterator[Finding]:
    eyes = EYES[condition, level]
    if not any(eyes.bad[k] or eyes.unsure[k] for k in {(c.status, c.result) for c in cells}):
        return  # the usual case, and there may be many cells
    said: dict[Pair, str] = {}
    critical: set[Pair] = set()
    frozen: dict[Pair, str] = {}
    judged: set[Pair] = set()
    suspect: set[Pair] = set()
    for cell in cells:
        seen = (cell.status, cell.result)
        if cell.source == cell.destination:  # what a host tests by itself concerns no other
            yield from _of_itself(cell, condition, level, eyes, paused)
            continue
        here = pair(cell.source, cell.destination)
        if eyes.bad[seen] and cell.mesh in paused:
            frozen[here] = PAUSED
            continue
        if eyes.suspect[seen]:
            suspect.add(here)
        if eyes.unsure[seen]:
            frozen[here] = MAINTENANCE if cell.status is Status.MAINTENANCE else UNMEASURED
            continue
        judged.add(here)
        if eyes.bad[seen]:
            suspect.add(here)
            worsens = cell.status is Status.CRITICAL and here not in critical
            if worsens:
                critical.add(here)
            if worsens or here not in said:
                said[here] = f"{cell.source} to {cell.destination}: {cell.said}"
    if condition == "loss" and said:
        suspect |= _lossy(cells, eyes)
    said_of, frozen_of = _by_host(said), _by_host(frozen)
    hosts = said_of.keys() | frozen_of.keys()
    guilty = [h for h in sorted(hosts) if (condition, h) in told]
    known = set(guilty)
    lingering = known.difference(blamed(judged, suspect & judged)) if known else known
    rest = {p for p in judged if known.isdisjoint(p)} if known else judged
    guilty += [h for h in blamed(rest, suspect & rest) if h in said_of] if said else []
    pairs, doubtful = (Counter(h for p in some for h in p) for some in (judged, suspect & judged))
    taken: set[Pair] = set()
    for host in guilty:
        bad = sorted(
            (p for p in said_of.get(host, ()) if p not in taken), key=lambda p: (p not in critical, p)
        )
        taken.update(bad)
        if bad:
            message = f"{doubtful[host]} of {pairs[host]} pairs of {host} are bad; {said[bad[0]]}"
            worst = LEVELS[-1] if bad[0] in critical else ""
            yield Finding(condition, host, message, (host,), level, worst=worst, lingers=host in lingering)
        elif host in frozen_of:
            yield Finding(condition, host, hosts=(host,), level=level, frozen=frozen[frozen_of[host][0]])
    for one, message in said.items():
        if one not in taken:
            worst = LEVELS[-1] if one in critical else ""
            yield Finding(condition, subject_of(one), message, one, level, worst=worst)
    for one, why in frozen.items():
        if one not in said:
            yield Finding(condition, subject_of(one), hosts=one, level=level, frozen=why)


def _of_itself(cell: Cell, condition: str, level: str, eyes: _Eyes, paused: Set[str]) -> Iterator[Finding]:
    """The finding of a service that a host asks; it has the mesh in its name, since there may be several."""
    subject, seen = f"{cell.source} ({cell.mesh})", (cell.status, cell.result)
    if eyes.bad[seen]:
        message = f"{cell.source}: {cell.said}"
        frozen = PAUSED if cell.mesh in paused else ""
        worst = LEVELS[-1] if cell.status is Status.CRITICAL else ""
        yield Finding(condition, subject, message, (cell.source,), level, frozen, worst=worst)
    elif eyes.unsure[seen]:
        frozen = MAINTENANCE if cell.status is Status.MAINTENANCE else UNMEASURED
        yield Finding(condition, subject, hosts=(cell.source,), level=level, frozen=frozen)


def _lossy(cells: Collection[Cell], eyes: _Eyes) -> set[Pair]:
    """The pairs that lose a good part of what the bad ones do; their tries may not show it surely yet."""
    bad_pct = [c.value for c in cells if eyes.bad[c.status, c.result] and c.value]
    least_pct = min(bad_pct, default=math.inf) * SUSPECT_SHARE
    return {
        pair(c.source, c.destination)
        for c in cells
        if c.value and c.value >= least_pct and c.status is not Status.MAINTENANCE
    }


def _by_host(some: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for one in some:
        for host in one:
            found.setdefault(host, []).append(one)
    return found


def subject_of(one: Pair) -> str:
    return f"{one[0]} - {one[1]}"


def host_findings(
    hosts: Mapping[str, Host], silent: Set[str], waited_for: Set[str], maintained: Callable[[Host], bool]
) -> Iterator[Finding]:
    """`silent`: hosts whose agents do not answer, DOWN or not yet; those `waited_for` may yet connect."""
    for host in hosts.values():
        frozen = MAINTENANCE if maintained(host) else ""
        why = host.reason.rstrip(".") or "its agent does not answer"
        down = host.state is HostState.DOWN
        if down:
            yield Finding("host-down", host.name, f"{host.name} is down: {why}", (host.name,), "", frozen)
        if down or host.name in silent or host.name in waited_for:
            if not down and host.name not in silent:
                frozen = frozen or "connecting"
            covered = "host-down" if down else ""
            said = f"{host.name} is silent: {why}"
            yield Finding("agent-silent", host.name, said, (host.name,), "", frozen, covered)


def rotation_findings(
    alignment: Alignment,
    hosts: Mapping[str, Host],
    least: float,
    maintained: Callable[[Host], bool],
    standings: Mapping[int, str | None],
    places: Mapping[int, tuple[str, ...]],
) -> Iterator[Finding]:
    """Links whose jobs fit less well than `least` (a compatibility score, 0 to 100), jobs that share a
    contended link without a rotation or are left alone since managing them makes them slower, and jobs that
    the controller gave up to keep in their slots.

    Args:
        standings: of each job that is controlled, or follows a plan of single iterations, "" = it keeps its
            slot or its instants, None = not known yet, else why not.
        places: the hosts of those jobs.
    """

    def frozen(names: Iterable[str]) -> str:
        return MAINTENANCE if any(maintained(hosts[n]) for n in names if n in hosts) else ""

    for link in alignment.links:
        if link.score < least and len(link.jobs) > 1:
            host = (link.link,) if link.link in hosts else ()
            jobs = ", ".join(map(str, link.jobs))
            said = f"jobs {jobs} contend on {link.link}: score {link.score:.1f}, wanted {least:g}"
            yield Finding("rotation-lost", link.link, said, host, "", frozen(host))
    alone = {job: one for one in alignment.released for job in one.jobs if one.times >= ALONE_TIMES}
    measured = {job for one in alignment.released for job in one.jobs} - alone.keys()
    for job in sorted({*alignment.unmatched, *standings, *alone}):
        where = places.get(job, ())
        name, why = f"job {job}", standings.get(job)
        if job in measured:  # for some iterations, or left alone by one comparison
            yield Finding("rotation-lost", name, hosts=where, frozen="not known yet")
            continue
        if job in alone:
            said = f"{name} is left alone: {in_words(alone[job])}"
        elif job in alignment.unmatched and job not in standings:
            said = f"{name} shares a link and has no rotation"
        elif why:
            said = f"{name} is not kept in its slot: {why}"
        elif why is None:  # too few iterations since the plan, or since the daemon's start
            yield Finding("rotation-lost", name, hosts=where, frozen="not known yet")
            continue
        else:
            continue
        yield Finding("rotation-lost", name, said, where, "", frozen(where))


def facts_findings(
    hosts: Mapping[str, Host],
    facts: Mapping[str, HostFacts],
    least_free_bytes: int,
    maintained: Callable[[Host], bool],
) -> Iterator[Finding]:
    """Full disks and GPUs with errors, or that have gone. Of a host that has not said, nothing is known."""
    for host in hosts.values():
        told = facts.get(host.name)
        frozen = MAINTENANCE if maintained(host) else "" if told is not None else "no facts yet"
        if told is None:
            for condition in ("disk", "gpu"):
                yield Finding(condition, host.name, hosts=(host.name,), frozen=frozen)
            continue
        free = told.disk_free_bytes
        least_bytes = least_free_bytes
        if told.disk_bytes is not None:  # of a small disk that much may never be free
            least_bytes = min(least_bytes, told.disk_bytes // SMALL_DISK)
        if free is not None and free < least_bytes:
            said = f"{free >> 20} MiB are free for the spool of {host.name}, wanted {least_bytes >> 20}"
            yield Finding("disk", host.name, said, (host.name,), "", frozen)
        # those that once answered; of declared ones nobody knows whether there is a driver that could
        had = max(told.gpus_most, len(host.gpus) if "gpus" in host.found else 0)
        errors = [*told.gpu_errors]
        if told.gpus < had:
            errors.append(f"{told.gpus} of {had} GPUs answer")
        if errors:
            yield Finding("gpu", host.name, f"{host.name}: {'; '.join(errors)}", (host.name,), "", frozen)
