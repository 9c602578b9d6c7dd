"""Writes the manual pages, one for each command, into build/man/man1: make man

They are the commands' own help, so they cannot say anything else. Read one: man build/man/man1/rmx-submit.1
"""

from __future__ import annotations

import subprocess
import sys
from copy import copy
from pathlib import Path

import click
from click_man.core import write_man_pages

from rm import __version__
from rm.cli.main import rmx

ROOT = Path(__file__).parents[1]


def loaded(command: click.Command) -> click.Command:
    """The command with all of its commands, which rm itself loads when they are called."""
    if not isinstance(command, click.Group):
        named = copy(command)
        named.short_help = command.short_help or (command.help or "").split("\n\n")[0].replace("\n", " ")
        return named
    context = click.Context(command)
    inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return click.Group(
        command.name, {name: loaded(one) for name, one in inner.items() if one is not None},
        params=command.params, help=command.help, short_help=command.short_help,
    )  # fmt: skip


def write(folder: Path, date: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_man_pages("rmx", loaded(rmx), version=__version__, target_dir=str(folder), date=date)


def main() -> None:
    folder = ROOT / "build" / "man" / "man1"
    log = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%cs"], check=True, capture_output=True, text=True
    )
    write(folder, log.stdout.strip())
    print(f"{len(list(folder.iterdir()))} pages are in {folder.relative_to(Path.cwd())}.", file=sys.stderr)


if __name__ == "__main__":
    main()
