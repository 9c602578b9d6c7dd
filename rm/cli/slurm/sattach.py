"""`sattach`: as `rmx attach JOB.STEP`, with Slurm's options."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rm.cli.jobs.enter import attach_step, one_number
from rm.cli.session import Session
from rm.cli.slurm.words import Options, read
from rm.errors import UsageError

OPTIONS = Options(
    taken=(
        "input-filter=", "output-filter=", "error-filter=", "label/l", "layout", "pty", "quiet/Q",
        "unbuffered/u",
    ),
    ignored=("verbose/v",),
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    name, dot, step = given.operands[0].rpartition(".") if len(given.operands) == 1 else ("", "", "")
    if not (name and dot and step.isdigit()):
        raise UsageError("Name one step, as in 42.0.", "`sacct -j 42` lists the steps of job 42.")
    there = [
        f"--{option}={value}" if value else f"--{option}"
        for option, value in given.options.items()
        if option != "verbose"
    ]
    session = Session(None, None)
    return attach_step(session, one_number(session, name), step, there)
