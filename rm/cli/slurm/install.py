"""`rmx slurm-shims`: Slurm's commands as programs in a directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rm.cli.slurm.program import PROGRAMS
from rm.errors import Conflict, UsageError

MARK = "written by `rmx slurm-shims`"
SHEBANG_MAX = 127  # bytes that every kernel reads
TEXT = """\
{start}
# {name} on rm's client, {mark}
import sys
from rm.cli.slurm.program import main
sys.exit(main("{name}"))
"""


def start(python: str) -> str:
    """The first lines: -I, so that no file of the current directory and no PYTHONPATH takes the place of a
    module."""
    line = f"#!{python} -I"
    if " " not in python and len(os.fsencode(line)) < SHEBANG_MAX:
        return line
    return f"#!/bin/sh\n'''exec' \"{python}\" -I \"$0\" \"$@\"\n' '''"


@click.command("slurm-shims")
@click.argument("directory", metavar="DIR")
def slurm_shims(directory: str) -> None:
    """Write Slurm's commands into DIR, which belongs first in PATH.

    A program of such a name that is not rm's stays, and is an error.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            _must_be_ours(folder / name)
        for name in PROGRAMS:
            _write(folder / name, TEXT.format(start=start(sys.executable), name=name, mark=MARK))
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    click.echo(f"Wrote {', '.join(PROGRAMS)} to {folder}")


def _must_be_ours(path: Path) -> None:
    if path.exists() and MARK not in path.read_text(errors="replace"):
        raise Conflict(f"{path} is another program.", "Name a directory of its own for rm's.")


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)
