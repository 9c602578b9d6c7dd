"""The steps of jobs, as they are accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from rm.api.answer import Answer

STEPS_MOST = 5_000  # in one answer
STEP_JOBS_MOST = 500  # whose steps are asked for at once
StepState = Literal["RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of a quantity: the sum over the tasks, and the tasks with the most and the least, with their hosts."""

    total: int
    most: int
    most_host: str
    most_rank: int
    least: int
    least_host: str
    least_rank: int


class StepUsed(msgspec.Struct, frozen=True, kw_only=True):
    """Of how many tasks it is known. Time of processors in programs and in the kernel, of all that the step
    started; and of its tasks: time of processors, the most resident memory at once, bytes of disks. Of all of
    it on one host the most memory at once, without and with file caches (0: not known). Of the GPUs that it
    saw: the time that was watched, added up over them, how much of it they were busy, the most memory of one,
    and what they drew, in millijoules."""

    tasks: int
    user_us: int
    system_us: int
    cpu_us: Spread
    mem_bytes: Spread
    read_bytes: Spread
    written_bytes: Spread
    host_bytes: int = 0
    peak_bytes: int = 0
    gpu_us: int = 0
    gpu_busy_us: int = 0
    gpu_mem_bytes: int = 0
    energy_mj: int = 0


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """What `srun` ran of an attempt of a job. `name` is empty where the job is another user's. `hosts` is a
    folded list, cut where it is very long; `cpus` the processors that the step held. One of whose end nothing
    is known ended with its attempt: `exit_code` and `exit_signal` are null; while the host may yet tell it,
    it is COMPLETING. `used` is null until its hosts have told it. `submit_line` is what was typed for it, or
    its beginning, for its user and administrators."""

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
    used: StepUsed | None = None
    submit_line: str = ""


class JobSteps(Answer, frozen=True, kw_only=True):
    """By job, attempt and step; `more`: there are others after the last one."""

    steps: Sequence[JobStep]
    more: bool = False


class StepUsedNow(msgspec.Struct, frozen=True, kw_only=True):
    """Of a step that runs, or (`step` -1) of the script, which are all tasks where it runs for each."""

    step: int
    used: StepUsed


class UsedNow(Answer, frozen=True, kw_only=True):
    """What the job uses now; `silent`: those of its hosts that do not tell it."""

    job: int
    attempt: int
    lines: Sequence[StepUsedNow]
    silent: Sequence[str] = ()
