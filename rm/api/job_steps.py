"""The steps of jobs, as they are accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from rm.api.answer import Answer

STEPS_MOST = 5_000  # in one answer
STEP_JOBS_MOST = 500  # whose steps are asked for at once
StepState = Literal["RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """What `srun` ran of an attempt of a job. `name` is empty where the job is another user's. `hosts` is a
    folded list, cut where it is very long; `cpus` the processors that the step held. One of whose end nothing
    is known ended with its attempt: `exit_code` and `exit_signal` are null; while the host may yet tell it,
    it is COMPLETING."""

    job: int
    attempt: int
    step: int
    name: str
    state: StepState
    hosts: str
    hosts_count: int
    tasks: int
    cpus: int
    started_us: int
    ended_us: int | None
    exit_code: int | None
    exit_signal: int | None


class JobSteps(Answer, frozen=True, kw_only=True):
    """By job, attempt and step; `more`: there are others after the last one."""

    steps: Sequence[JobStep]
    more: bool = False
