"""`rmx links`: how jobs share links. `rmx network`: what was measured between hosts."""

from __future__ import annotations

from typing import Any

import click

from rm.cli.session import Session, emit_json, json_option, table
from rm.units import format_bandwidth, format_duration


def _duration(us: Any) -> str:
    return "-" if us is None else format_duration(round(us))


@click.command()
@json_option
@click.pass_obj
def links(session: Session, /, as_json: bool) -> None:
    """List links: capacity, their jobs, the compatibility score and each job's rotation."""
    found = session.client.get("links")["links"]
    if as_json:
        emit_json({"links": found})
        return
    rows = [
        (
            link["name"],
            format_bandwidth(link["capacity_bps"]) if link["capacity_bps"] else "-",
            ",".join(map(str, link["jobs"])) or "-",
            "-" if link["score"] is None else f"{link['score']:.6g}",
            _duration(link["perimeter_us"] or None),
            " ".join(f"{r['job']}:{r['slots']}/{r['circle_slots']}" for r in link["rotations"]) or "-",
            _duration(link["gap_us"]),
        )
        for link in found
    ]
    table(
        ("LINK", "CAPACITY", "JOBS", "SCORE", "CIRCLE", "ROTATIONS", "GAP"), rows, right=("CAPACITY", "SCORE")
    )


@click.command()
@click.option("--measure", is_flag=True, help="Measure now, then show.")
@click.option("--zone", metavar="ZONE", help="Measure only this zone.")
@json_option
@click.pass_obj
def network(session: Session, /, measure: bool, zone: str | None, as_json: bool) -> None:
    """Show loss, delay and bandwidth of each pair of hosts, and how old each measurement is."""
    if measure:
        session.client.post("network", "measure", body={"zone": zone})
    pairs = session.client.get("network")["pairs"]
    if as_json:
        emit_json({"pairs": pairs})
        return
    rows = [
        (
            pair["source"],
            pair["destination"],
            "-" if pair["loss_pct"] is None else f"{pair['loss_pct']:.4g}%",
            _duration(pair["delay_us"]),
            "-" if pair["bandwidth_bps"] is None else format_bandwidth(pair["bandwidth_bps"]),
            "-" if pair["age_us"] is None else _duration(pair["age_us"] // 1_000_000 * 1_000_000),
        )
        for pair in pairs
    ]
    columns = ("SOURCE", "DESTINATION", "LOSS", "DELAY", "BANDWIDTH", "AGE")
    table(columns, rows, right=columns[2:])
