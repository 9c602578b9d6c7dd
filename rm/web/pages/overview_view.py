"""The page's first lines: the state of the cluster, each with a link to its details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.api.alerts import Alert
from rm.api.hosts import Host
from rm.api.monitoring import Mesh
from rm.api.network import Link
from rm.core.monitoring.cells import Status
from rm.web.pages.queue_view import group_of


@dataclass(frozen=True, slots=True)
class Tile:
    """`value` in large, `rest` below; `mood` is good, bad, worry or "" (neither)."""

    title: str
    target: str
    value: str
    rest: str
    mood: str = ""


def tiles(
    jobs: Mapping[str, int],
    hosts: Sequence[Host],
    links: Iterable[Link],
    alerts: Sequence[Alert] | None,
    meshes: Iterable[Mesh],
) -> tuple[Tile, ...]:
    """`jobs` counts them by state; `alerts` None: this daemon does not look for any."""
    return (
        _alerts(alerts),
        _jobs(jobs),
        _gpus(hosts),
        _hosts(hosts),
        _links(links),
        _network(meshes),
    )


def _alerts(alerts: Sequence[Alert] | None) -> Tile:
    if alerts is None:
        return Tile("Alerts", "alerts", "–", "not looked for")
    firing = sum(alert.state == "firing" for alert in alerts)
    known = sum(alert.state == "firing" and bool(alert.acked) for alert in alerts)
    pending = sum(alert.state == "pending" for alert in alerts)
    parts = [f"{known} acknowledged" if known else "", f"{pending} may follow" if pending else ""]
    rest = ", ".join(filter(None, parts)) or ("firing" if firing else "nothing is wrong")
    mood = "bad" if firing > known else "worry" if firing else "good"
    return Tile("Alerts", "alerts", str(firing), rest, mood)


def _jobs(counts: Mapping[str, int]) -> Tile:
    found = dict.fromkeys(("running", "pending", "ended"), 0)
    for state, count in counts.items():
        found[group_of(state)] += count
    failed = sum(counts.get(state, 0) for state in ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"))
    rest = f"{found['pending']} waiting" + (f", {failed} failed lately" if failed else "")
    return Tile("Jobs running", "jobs", str(found["running"]), rest)


def _gpus(hosts: Iterable[Host]) -> Tile:
    """Of the hosts that take jobs."""
    there = free = 0
    for host in hosts:
        if host.schedulable:
            there += len(host.gpus)
            free += len(host.free.gpus) if host.free else 0
    if not there:
        return Tile("GPUs free", "network", "–", "no host in service has any")
    return Tile("GPUs free", "network", str(free), f"of {there} in service")


def _hosts(hosts: Sequence[Host]) -> Tile:
    counts: dict[str, int] = {}
    for host in hosts:
        counts[host.state] = counts.get(host.state, 0) + 1
    up = counts.pop("UP", 0)
    rest = ", ".join(f"{n} {state.lower()}" for state, n in sorted(counts.items())) or "all of them"
    mood = "bad" if "DOWN" in counts else "worry" if counts else "good"
    return Tile("Hosts up", "network", str(up), rest if hosts else "none known yet", mood if hosts else "")


def _links(links: Iterable[Link]) -> Tile:
    shared = [link.score for link in links if len(link.jobs) > 1]
    scores = [score for score in shared if score is not None]
    if not shared:
        return Tile("Shared links", "links", "0", "no two jobs meet")
    least = min(scores, default=None)
    rest = "never contended" if least is None else f"lowest score {least:.4g}"
    return Tile(
        "Shared links", "links", str(len(shared)), rest, "worry" if least is not None and least < 90 else ""
    )


def _network(meshes: Iterable[Mesh]) -> Tile:
    counts: dict[str, int] = {}
    for mesh in meshes:
        for word, number in mesh.statuses.items():
            counts[word] = counts.get(word, 0) + number
    critical, warn, unknown = (counts.get(s.word, 0) for s in (Status.CRITICAL, Status.WARN, Status.UNKNOWN))
    tried = sum(n for word, n in counts.items() if word != Status.NOT_RUN.word)
    if not tried:
        return Tile("Checks critical", "network", "–", "nothing measured yet")
    parts = [f"{n} {word}" for n, word in ((warn, "warn"), (unknown, "unknown")) if n]
    rest = ", ".join(parts) or f"of {tried}"
    mood = "bad" if critical else "worry" if warn or unknown else "good"
    return Tile("Checks critical", "network", str(critical), rest, mood)
