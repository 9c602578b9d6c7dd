"""A job that does something with itself, wherever it runs: by the agent of its host, not by the daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping


def is_own(word: str, environment: Mapping[str, str]) -> bool:
    """Does this id name the job in which we run? An element of an array has two."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    mine = {environment.get("RM_JOB_ID"), f"{array}_{task}" if array and task else None}
    return word in mine - {None}


def requeue_itself(environment: Mapping[str, str]) -> bool:
    """Say it to the agent of this host, as `rm_iteration.requeue` does; False where there is none."""
    try:
        with open(environment["RM_REPORTS"], "r+b", buffering=0) as reports:
            reports.seek(0, os.SEEK_END)
            reports.write(b'\n["requeue"]\n')
    except (KeyError, OSError):
        return False
    return True
