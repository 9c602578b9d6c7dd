"""Prints a Python that the jobs of all users may run, for an environment in FOLDER: shared_python.py FOLDER

The first of python3 and /usr/bin/python3 that others than its owner can execute: a home such as /root is
often closed to them. $PYTHON names another one. Where there is none, it says why, and exits with 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WANTED = (3, 10)  # by the releases of PyTorch that the Makefile names
ABOUT = """
import ensurepip, os, sys, venv
print(sys.version_info[:2] >= {}, sys.executable, os.__file__, sep="\\n")
"""


def closed(path: Path) -> Path | None:
    """The outermost part of a path that others than its owner may not use; None if they may use all of it."""
    path = path.resolve()
    for part in (*reversed(path.parents), path):
        mode = part.stat().st_mode
        if not mode & (0o001 if part.is_dir() else 0o004):
            return part
    return None


def why_not(python: str) -> str:
    """What keeps others from running this Python with an environment, "" if nothing does."""
    try:
        done = subprocess.run([python, "-c", ABOUT.format(WANTED)], capture_output=True, text=True)
    except OSError as error:
        return f"{python} cannot be run: {error.strerror}"
    if done.returncode != 0:
        return f"{python} lacks venv or ensurepip (Debian's package python3-venv)"
    enough, program, library = done.stdout.splitlines()
    if enough != "True":
        return f"{python} is older than {'.'.join(map(str, WANTED))}"
    for path in (program, library):
        if part := closed(Path(path)):
            return f"{python} is {Path(path).resolve()}, and others may not enter or read {part}"
    return ""


def choose(folder: Path, candidates: Sequence[str]) -> str:
    """The first of the candidates that others may run. Raises ValueError, which says what to do."""
    place = next(part for part in (folder, *folder.parents) if part.exists())
    if part := closed(place):
        raise ValueError(
            f"{folder} is not a place for what users' jobs run: others may not enter {part}.\n"
            "Move the checkout to where all users can read it, such as /opt or /srv."
        )
    reasons = []
    for python in candidates:
        if not (reason := why_not(python)):
            return python
        reasons.append(f"  {reason}")
    raise ValueError(
        "There is no Python here that users' jobs could run:\n" + "\n".join(reasons) + "\n"
        "Install one (apt-get install python3-venv), or name one: PYTHON=/opt/bin/python3 make frameworks"
    )


def main() -> None:
    named = os.environ.get("PYTHON")
    try:
        print(choose(Path(sys.argv[1]).absolute(), [named] if named else ["python3", "/usr/bin/python3"]))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
