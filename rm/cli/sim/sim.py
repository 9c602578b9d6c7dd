"""`rmx sim`: the simulator's commands, each in a file of its own, loaded when it is called."""

from __future__ import annotations

from importlib import import_module

import click

# verb -> (module, attribute, what it does)
VERBS = {
    "run": ("rm.cli.sim.run", "run", "Simulate a scenario file."),
    "compare": ("rm.cli.sim.run", "compare", "Set policies against each other on one scenario."),
    "replay": ("rm.cli.sim.replay", "replay", "Replay a daemon's journal, also under other policies."),
    "paper": ("rm.cli.sim.paper", "paper", "Reproduce a paper's results beside what it printed."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module, attribute, _ = VERBS[name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in VERBS.items()])


@click.command(cls=_Lazy)
def sim() -> None:
    """Run rm's own cycle and policies on a virtual clock and a modelled network."""
