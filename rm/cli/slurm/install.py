"""`rmx slurm-shims`: Slurm's commands as programs in a directory."""

from __future__ import annotations

from pathlib import Path

import click

from rm.cli.program_files import MARK, write_program
from rm.cli.slurm.program import ABSENT, PROGRAMS
from rm.errors import Conflict, UsageError


@click.command("slurm-shims")
@click.argument("directory", metavar="DIR")
def slurm_shims(directory: str) -> None:
    """Write Slurm's commands into DIR, which belongs first in PATH.

    A program of such a name that is not rm's stays, and is an error.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*PROGRAMS, *ABSENT):
            _must_be_ours(folder / name)
        for name in (*PROGRAMS, *ABSENT):
            write_program(folder, name)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    click.echo(f"Wrote {', '.join(PROGRAMS)} to {folder}")


def _must_be_ours(path: Path) -> None:
    if path.exists() and MARK not in path.read_text(errors="replace"):
        raise Conflict(f"{path} is another program.", "Name a directory of its own for rm's.")
