"""`rmx links`: how jobs share links. `rmx network`: the grid of what was measured between hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import note
from rm.cli.session import Session, emit_json, json_option, table
from rm.core.monitoring.metrics import METRICS, Metric, Unit
from rm.units import format_bandwidth, format_duration, parse_duration_us

if TYPE_CHECKING:
    from rm.api.network import History


def _duration(us: float | None) -> str:
    return "-" if us is None else format_duration(round(us))


@click.command()
@json_option
@click.pass_obj
def links(session: Session, /, as_json: bool) -> None:
    """List links: capacity, their jobs, the compatibility score and each job's rotation."""
    found = session.client.network.links()
    if as_json:
        emit_json({"links": found})
        return
    rows = [
        (
            link.name,
            format_bandwidth(link.capacity_bps) if link.capacity_bps else "-",
            ",".join(map(str, link.jobs)) or "-",
            "-" if link.score is None else f"{link.score:.6g}",
            _duration(link.perimeter_us or None),
            " ".join(f"{r.job}:{r.slots}/{r.circle_slots}" for r in link.rotations) or "-",
            _duration(link.gap_us),
        )
        for link in found
    ]
    table(
        ("LINK", "CAPACITY", "JOBS", "SCORE", "CIRCLE", "ROTATIONS", "GAP"), rows, right=("CAPACITY", "SCORE")
    )


@click.group(invoke_without_command=True)
@click.option("--measure", is_flag=True, help="Measure now, then show.")
@click.option("--zone", metavar="ZONE", help="Only this zone.")
@click.option("--mesh", metavar="MESH", help="The grid of this mesh only.")
@click.option("--check", metavar="CHECK", help="The grid of this check only: loss, delay, bandwidth, mtu.")
@click.option("--pairs", "as_pairs", is_flag=True, help="The numbers of each pair instead of the grid.")
@json_option
@click.pass_context
def network(
    ctx: click.Context,
    /,
    measure: bool,
    zone: str | None,
    mesh: str | None,
    check: str | None,
    as_pairs: bool,
    as_json: bool,
) -> None:
    """Show the network as a grid: green ok, yellow warning, red critical, grey unknown; or as numbers."""
    if ctx.invoked_subcommand is not None:
        return
    session: Session = ctx.obj
    if measure:
        with Heartbeat(lambda: "the pairs of hosts are measured, each host with one other at a time"):
            done = session.client.network.measure(zone)
        for one in done.left_out:
            note(f"left out: {one.host}, {one.why}")
    if as_json or as_pairs:
        _pairs(session, as_json)
        return
    _grid(session, zone, mesh, check)


def _pairs(session: Session, as_json: bool) -> None:
    pairs = session.client.network.pairs()
    if as_json:
        emit_json({"pairs": pairs})
        return
    rows = [
        (
            pair.source,
            pair.destination,
            "-" if pair.loss_pct is None else f"{pair.loss_pct:.4g}%",
            _duration(pair.delay_us),
            "-" if pair.bandwidth_bps is None else format_bandwidth(round(pair.bandwidth_bps)),
            "-" if pair.age_us is None else _duration(pair.age_us // 1_000_000 * 1_000_000),
            "-" if pair.confidence is None else f"{pair.confidence:.0%}",
        )
        for pair in pairs
    ]
    columns = ("SOURCE", "DESTINATION", "LOSS", "DELAY", "BANDWIDTH", "AGE", "CONFIDENCE")
    table(columns, rows, right=columns[2:])


def _grid(session: Session, zone: str | None, mesh: str | None, check: str | None) -> None:
    from rm.cli.network.grid import colourful, draw, legend, worst

    answer = session.client.monitor.meshes()
    names = [m.name for m in answer.meshes if mesh in (None, m.name)]
    if mesh is not None and not names:
        names = [mesh]  # the daemon says that there is none
    zone_of: dict[str, str] = {}
    statuses: dict[tuple[str, str], list[int]] = {}
    for name in names:
        grid = session.client.monitor.grid(name)
        zone_of |= {h.name: h.zone for h in grid.hosts if zone in (None, h.zone)}
        for cell in grid.cells:
            if check in (None, cell.check):
                statuses.setdefault((cell.source, cell.destination), []).append(cell.status)
    for one in answer.malformed:
        note(f"left out: {one.message}")
    if not zone_of:
        note("No mesh has a host there.")
        return
    colour = colourful()
    drawn = draw(zone_of, {pair: worst(found) for pair, found in statuses.items()}, colour)
    click.echo(drawn or "Every zone has one host, and nothing was measured between them.")
    click.echo("\n" + legend(colour))


def _percent(value: float) -> str:
    return f"{value:.4g}%"


def _rate(value: float) -> str:
    return format_bandwidth(round(value))


SHOWN: Mapping[Unit, Callable[[float], str]] = {
    Unit.PERCENT: _percent,
    Unit.MICROSECONDS: _duration,
    Unit.BITS_PER_SECOND: _rate,
    Unit.BYTES: "{:.0f}".format,
    Unit.HOPS: "{:.0f}".format,
}


@network.command()
@click.argument("source")
@click.argument("destination")
@click.option("--since", default="24h", show_default=True, help="How far back, such as 1h or 30d.")
@json_option
@click.pass_obj
def show(session: Session, /, source: str, destination: str, since: str, as_json: bool) -> None:
    """Show the history of a pair of hosts, both ways, or of what a host tests by itself."""
    since_s = parse_duration_us(since) / 1e6
    both = [
        session.client.network.history(a, b, since_s)
        for a, b in dict.fromkeys(((source, destination), (destination, source)))
    ]
    if as_json:
        emit_json({"directions": [_fields(one) for one in both]})
        return
    for number, one in enumerate(both):
        if number:
            click.echo()
        _direction(one, since)


def _fields(one: History) -> dict[str, Any]:
    """A history without the version of its answer."""
    return {
        "source": one.source, "destination": one.destination, "samples": one.samples,
        "summaries": one.summaries, "now": one.now,
    }  # fmt: skip


def _direction(one: History, since: str) -> None:
    from rm.cli.network.grid import sparkline

    now = one.now
    sure = "" if now is None or now.confidence is None else f", confidence {now.confidence:.0%}"
    alone = one.source == one.destination
    last = "by itself" if alone else "never measured" if now is None or now.age_us is None else (
        f"measured {format_duration(now.age_us // 1_000_000 * 1_000_000)} ago{sure}"
    )  # fmt: skip
    click.echo(f"{one.source} to {one.destination}: {last}")
    tries = len(one.samples) or sum(s.tries for s in one.summaries)
    failures = sum(bool(s.failed) for s in one.samples) + sum(s.failures for s in one.summaries)
    if not tries:
        click.echo(f"  nothing in the last {since}")
        return
    rows = []
    for metric in METRICS:
        bars, stats = _series(one, metric)
        if stats is not None:
            shown = map(SHOWN[metric.unit], stats)
            rows.append((metric.title, *shown, sparkline(bars)))
    table(
        ("METRIC", "MIN", "MEAN", "MAX", "NEWEST", f"LAST {since}"),
        rows,
        right=("MIN", "MEAN", "MAX", "NEWEST"),
    )
    each = "tries" if one.samples else "tries, summarised"
    click.echo(f"  {tries} {each}, {failures} failed")


def _series(
    one: History, metric: Metric
) -> tuple[Sequence[float | None], tuple[float, float, float, float] | None]:
    """A metric's values in order of time for the sparkline, and (least, mean, most, newest)."""
    if one.samples:
        values: Sequence[float | None] = [s.values.get(metric.name) for s in one.samples]
        known = [v for v in values if v is not None]
        if not known:
            return [], None
        if metric.test != "latency":
            values = known  # measured seldom: the tries of other meshes between are no gaps
        return values, (min(known), sum(known) / len(known), max(known), known[-1])
    stats = [s.stats.get(metric.name) for s in one.summaries]
    seen = [s for s in stats if s is not None]
    if not seen:
        return [], None
    count = sum(s.count for s in seen)
    mean = sum(s.mean * s.count for s in seen) / count
    bars = [None if s is None else s.mean for s in stats]
    return bars, (min(s.min for s in seen), mean, max(s.max for s in seen), seen[-1].mean)
