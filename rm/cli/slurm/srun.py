"""`srun`: inside a job the job's own, which its host provides; there is none outside of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rm.errors import UsageError


def run(words: Sequence[str]) -> int:
    if not os.environ.get("SLURM_JOB_ID"):
        raise UsageError(
            "There is no srun outside of a job.",
            "Submit a script with sbatch: inside a job srun starts steps.",
        )
    # a script that puts our directory before the job's own comes here
    ours = os.path.dirname(os.path.realpath(sys.argv[0]))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, "srun")
        if os.access(program, os.X_OK) and os.path.dirname(os.path.realpath(program)) != ours:
            os.execv(program, ["srun", *words])
    raise UsageError(
        "This job's host has no srun.", "Its agent provides it: upgrade the agents of the hosts."
    )
