"""What holds now, as findings for `rm.core.alerts`: from cells, hosts, the alignment and agents' facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from rm.core.alerts import GRADED, LEVELS, Finding
from rm.core.alignment import Alignment
from rm.core.blame import Pair, blamed, pair
from rm.core.cells import Cell, Status
from rm.core.host import Host, HostState

MAINTENANCE = "maintenance"
UNMEASURED = "not measured now"
Told = Set[tuple[str, str]]  # (condition, subject) of what was told and is not over


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What an agent said of its host at `at_us`: free bytes of the file system with the spool; how many GPUs
    answer; and of each GPU with errors, a sentence."""

    at_us: int
    disk_free_bytes: int | None = None
    gpus: int = 0
    gpu_errors: tuple[str, ...] = ()


def network_findings(cells: Iterable[Cell], told: Told) -> Iterator[Finding]:
    """By condition and level: the hosts at fault (`rm.core.blame`), and the other bad pairs.

    A status follows only after several tries, and pair by pair: what their newest tries say tells
    whose fault the first bad pair is. A host that was told of keeps being at fault until none of its
    pairs is bad. So one fault is one alert, while cells go bad and recover one by one.
    """
    known = [c for c in cells if c.status is not Status.NOT_RUN]
    for check in GRADED:
        mine = [c for c in known if c.check == check]
        for level in LEVELS:
            is_bad = _at_least_warn if level == "warn" else _is_critical
            yield from _judge(check, level, mine, is_bad, _is_unsure, told)
    yield from _judge("unmeasured", "", known, _is_unmeasured, _is_maintained, told)


def _judge(
    condition: str,
    level: str,
    cells: Iterable[Cell],
    is_bad: Callable[[Cell], bool],
    is_frozen: Callable[[Cell], bool],
    told: Told,
) -> Iterator[Finding]:
    said: dict[Pair, str] = {}
    frozen: dict[Pair, str] = {}
    judged: set[Pair] = set()
    suspect: set[Pair] = set()
    for cell in cells:
        here = pair(cell.source, cell.destination)
        if is_bad(replace(cell, status=cell.result)) and cell.status is not Status.MAINTENANCE:
            suspect.add(here)
        if is_bad(cell):
            judged.add(here)
            said.setdefault(here, f"{cell.source} to {cell.destination}: {cell.message}")
        elif is_frozen(cell):
            frozen[here] = MAINTENANCE if cell.status is Status.MAINTENANCE else UNMEASURED
        else:
            judged.add(here)
    hosts = {h for p in (*judged, *frozen) for h in p}
    guilty = [h for h in sorted(hosts) if (condition, h) in told]
    rest = {p for p in judged if not any(h in p for h in guilty)}
    suspect |= said.keys()
    guilty += [h for h in blamed(rest, suspect & rest) if any(h in p for p in said)]
    taken: set[Pair] = set()
    for host in guilty:
        bad = sorted(p for p in said if host in p and p not in taken)
        taken.update(bad)
        if bad:
            mine = {p for p in judged if host in p}
            message = f"{len(mine & suspect)} of {len(mine)} pairs of {host} are bad; {said[bad[0]]}"
            yield Finding(condition, host, message, (host,), level)
        elif why := next((w for p, w in frozen.items() if host in p), ""):
            yield Finding(condition, host, hosts=(host,), level=level, frozen=why)
    for one, message in said.items():
        if one not in taken:
            yield Finding(condition, subject_of(one), message, one, level)
    for one, why in frozen.items():
        if one not in said:
            yield Finding(condition, subject_of(one), hosts=one, level=level, frozen=why)


def subject_of(one: Pair) -> str:
    return f"{one[0]} - {one[1]}"


def _at_least_warn(cell: Cell) -> bool:
    return cell.status in (Status.WARN, Status.CRITICAL)


def _is_critical(cell: Cell) -> bool:
    return cell.status is Status.CRITICAL


def _is_unsure(cell: Cell) -> bool:
    return cell.status in (Status.UNKNOWN, Status.MAINTENANCE)


def _is_unmeasured(cell: Cell) -> bool:
    return cell.status is Status.UNKNOWN and cell.result is Status.UNKNOWN  # not: stale


def _is_maintained(cell: Cell) -> bool:
    return cell.status in (Status.UNKNOWN, Status.MAINTENANCE)


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
    contended link without a rotation, and jobs that the controller gave up to keep in their slots.

    Args:
        standings: of each controlled job "" = it keeps its slot, None = not known yet, else why not.
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
    for job in sorted({*alignment.unmatched, *standings}):
        where = places.get(job, ())
        name, why = f"job {job}", standings.get(job)
        if job in alignment.unmatched:
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
        if free is not None and free < least_free_bytes:
            said = f"{free >> 20} MiB are free for the spool of {host.name}, wanted {least_free_bytes >> 20}"
            yield Finding("disk", host.name, said, (host.name,), "", frozen)
        had = sum(1 for gpu in host.gpus if gpu.uuid)  # those that it once reported, not declared ones
        errors = [*told.gpu_errors]
        if told.gpus < had:
            errors.append(f"{told.gpus} of {had} GPUs answer")
        if errors:
            yield Finding("gpu", host.name, f"{host.name}: {'; '.join(errors)}", (host.name,), "", frozen)
