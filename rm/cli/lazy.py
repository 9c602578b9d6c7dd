"""A group of commands, each in a module that is loaded when the command is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click

from rm.collector import uncollected

# verb -> (module, attribute, what it does)
Verbs = Mapping[str, tuple[str, str, str]]


class LazyGroup(click.Group):
    """`sections`: the verbs by the titles under which `--help` lists them."""

    sections: ClassVar[Mapping[str, Verbs]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verbs in self.sections.values() for verb in verbs]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        for verbs in self.sections.values():
            if name in verbs:
                module, attribute, _ = verbs[name]
                with uncollected():
                    command: click.Command = getattr(import_module(module), attribute)
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, _, text) in verbs.items()])
