"""Slurm's commands as files: each a program of `rm.cli.slurm`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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


def write_program(folder: Path, name: str) -> None:
    new = folder / f".{name}.new"
    new.write_text(TEXT.format(start=start(sys.executable), name=name, mark=MARK))
    new.chmod(0o755)
    new.replace(folder / name)
