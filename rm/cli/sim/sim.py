"""`rmx sim`: the simulator's commands, each in a file of its own, loaded when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from rm.cli.lazy import LazyGroup, Verbs

# verb -> (module, attribute, what it does)
VERBS = {
    "run": ("rm.cli.sim.run", "run", "Simulate a scenario file."),
    "compare": ("rm.cli.sim.run", "compare", "Set policies against each other on one scenario."),
    "replay": ("rm.cli.sim.replay", "replay", "Replay a daemon's journal, also under other policies."),
    "month": ("rm.cli.sim.month", "month", "Let users share a cluster, under several queue policies."),
    "waits": ("rm.cli.sim.month", "waits", "Play a trace: how long jobs wait, under several queue policies."),
    "real": ("rm.cli.sim.real", "real", "Play measured jobs of production traces under several systems."),
    "paper": ("rm.cli.sim.paper", "paper", "Reproduce a paper's results beside what it printed."),
}


class _Commands(LazyGroup):
    sections: ClassVar[Mapping[str, Verbs]] = {"Commands": VERBS}


@click.command(cls=_Commands)
def sim() -> None:
    """Run rm's own cycle and policies on a virtual clock and a modelled network."""
