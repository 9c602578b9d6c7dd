"""`rmx demo --paper NAME`: a paper's idea on hosts of this machine, with the simulator's figures beside."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rm.cli.demo_screen import paragraph, shown_screen
from rm.cli.session import table
from rm.units import format_count

if TYPE_CHECKING:
    from rm.demo.papers.play import Played


def paper_demo(paper: str, json_file: str | None, figures_file: Path | None) -> int:
    """Play it, and show or write the figures; the exit code."""
    from rm.cli.lab import default_directory
    from rm.demo.papers.play import play_paper
    from rm.demo.papers.scenes import scene_of

    scene = scene_of(paper)
    for number in (signal.SIGTERM, signal.SIGHUP):  # ended from outside is ended all the same: nothing stays
        signal.signal(number, signal.default_int_handler)
    with shown_screen() as screen:
        played = play_paper(default_directory().parent, scene, screen)
    report = {
        "version": 1,
        "paper": paper,
        "load": played.load,
        "rows": [asdict(row) for row in played.rows],
        "during": [asdict(one) for one in played.during],
        "judged": played.judged,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False)
    if json_file == "-":
        click.echo(text)
        return 0
    if figures_file is not None:
        figures_file.write_text(text + "\n")
    _show(played)
    return 0


def _show(played: Played) -> None:
    from rm.demo.simulated import MEASURED

    scene = played.scene
    click.echo()
    paragraph(f"{scene.paper}: {scene.idea}.")
    click.echo()
    rows = [
        (
            row.way,
            row.job,
            row.hosts,
            f"{row.alone_ms:.1f}",
            f"{row.live_ms:.1f}",
            f"{row.live_ms / row.alone_ms:.3f}",
            f"{row.simulated_ms:.1f}",
            f"{row.simulated_ms / row.alone_ms:.3f}",
        )
        for row in played.rows
    ]
    columns = ("WAY", "JOB", "HOSTS", "ALONE MS", "LIVE MS", "× ALONE", "SIMULATED MS", "× ALONE")
    table(columns, rows, right=columns[3:])
    before, after = played.load
    click.echo()
    paragraph(
        f"Mean iteration times of {format_count(scene.runs, 'run')} each. The computation is emulated",
        "(sleep), the all-reduce is real TCP between hosts made of namespaces on this machine, whose load",
        f"was {before:g} before and {after:g} after, on {os.cpu_count()} processors.",
        "Simulated are the same jobs, on the same hosts, with the profiles that they had alone, where who",
        f"begins to send beside others counts by {MEASURED.newcomer:g} of its weight or more.",
    )
    if played.judged:
        click.echo()
        paragraph(played.judged)
