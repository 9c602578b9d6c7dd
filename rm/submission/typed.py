"""What was typed to submit a job, as `sacct` and `scontrol show job` tell it."""

from __future__ import annotations

import os

from rm.submission import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LINE_MAX_BYTES = 4096  # what is longer is cut


def submit_line(program: str, words: Sequence[str]) -> str:
    """The words between spaces without their quotes, as Slurm keeps them. Bytes that are no text are `?`."""
    line = " ".join((program, *words)).encode(errors="surrogateescape")
    return line[:LINE_MAX_BYTES].decode(errors="replace").replace("\ufffd", "?")


def found_script(file: str) -> str:
    """The file of a script as `sbatch` looks for it: a bare name in this directory, else in PATH."""
    here = place.here
    if os.path.dirname(file) or here.is_file(file):
        return file
    for folder in here.environment().get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, file)
        if folder and here.is_file(path):
            return path
    return file


def script_path(file: str, cwd: str) -> str:
    """As Slurm's Command tells it: a bare name with its directory, a path as it was typed."""
    return printable_path(file if os.path.dirname(file) else os.path.join(cwd, file))


def printable_path(path: str) -> str:
    """As UTF-8, where the name of a file may be any bytes."""
    return path.encode(errors="surrogateescape").decode(errors="replace").replace("\ufffd", "?")
