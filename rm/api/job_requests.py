"""What is asked of jobs: submissions, changes, and what a signal goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import NUMBER_MAX, Count, Request, Time

SignalTo = Literal["steps", "script", "all"]
Positive = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
# patterns are Unicode's and of the whole value, as ECMA-262 has them
NO_NUL = r"^[^\u0000]*$"
Word = Annotated[str, Meta(pattern=r"^[^\u0000\n\r/]+$")]


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One communication phase; `offset_us` counts from the beginning of the iteration."""

    offset_us: Count
    duration_us: Positive
    rate_bps: Positive


class TrafficRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one iteration puts on the job's links; the phases lie within the period."""

    period_us: Positive
    phases: Sequence[PhaseRequest]


class JobRequest(Request, frozen=True, kw_only=True):
    """A job to submit. Resources are per task, or those `_per_host` once for each host, however many tasks
    are there; `hosts_min` and `hosts_max` 0 are as many as needed. With `mem_all` it has all memory of its
    hosts. A task sees its own GPUs of `gpus_per_task`, with `gpu_bind` none all of the job's on its host,
    as of `gpus_per_host`; with `ntasks_per_gpu` one of these. `partition` may be several, with commas.

    With `exclusive` its hosts run no other job, with `exclusive_user` none of another user.

    With `fence_us` its hosts end it when they have not heard the daemon for this time (0: never), before it
    is started elsewhere.

    With `warn_signal`, the number of a signal, its processes get it `warn_before_us` before the time limit;
    with `warn_batch` only the first process of each task.

    `dependency` is a list as --dependency has it: `afterok:12:13,after:7+5`; `kill_on_invalid_dep`: whether
    the job is cancelled when that can never be fulfilled (null: as rm.toml says).

    `mail_events` is a list as --mail-type has it, `mail_user` who is mailed: "" is its user.

    With `deadline_us` it is ended then, and cancelled once that leaves it less than `time_min_us`, or than
    its time limit.

    `submit_line` is what was typed, of 4096 bytes at most, and `script_path` the script's file: for lists.

    `array` makes it a job array, with a list of indices as --array has it: `0-99:2%8`.

    `constraint` and `prefer` name features of hosts, as --constraint has them; `licenses`
    are those of the cluster that it holds, as --licenses has them. `reservation` is one of hosts that
    it runs in. `account` and `qos` are what it runs for and in; "" is the user's and the account's.

    `switches` is of how few racks its hosts shall be, as long as it waits for that: `switches_wait_us`.

    With `container_image` the tasks run in that image; `container_mounts` is a list as --container-mounts has
    it, `container_workdir` where they begin there: "" is as the image says. By `container_name` steps find
    the container again.

    What is left out has the defaults below; those of `launch`, `output`, `partition`, `time_limit_us` and
    `fence_us` stand in rm.toml. No `time_limit_us` is null, and no `output` file "". The user is the caller;
    an administrator may name another. `launch` is "tasks" (the script for each task), "batch" (once), or
    "auto": decided when it is submitted.
    """

    name: Word
    script: Annotated[str, Meta(min_length=1, pattern=r"^[^\u0000]*[^\s\u0000][^\u0000]*$")]
    user: str = ""
    script_args: Sequence[Annotated[str, Meta(pattern=NO_NUL)]] = ()
    launch: Literal["auto", "tasks", "batch"] | UnsetType = UNSET
    hosts_min: Count = 0
    hosts_max: Count = 0
    ntasks: Positive = 1
    tasks_per_host: Count = 0
    cpus_per_task: Positive = 1
    distribution: Annotated[str, Meta(pattern=r"^(block|cyclic|plane=[1-9][0-9]{0,4})$")] = "block"
    mem_bytes_per_task: Count = 0
    mem_bytes_per_host: Count = 0
    mem_all: bool = False
    gpus_per_task: Count = 0
    gpus_per_host: Count = 0
    gpu_bind: Literal["per_task", "none"] = "per_task"
    ntasks_per_gpu: Count = 0
    gpu_type: str = ""
    gpu_mem_bytes: Count = 0
    time_limit_us: Positive | UnsetType | None = UNSET
    expected_us: Positive | None = None
    iterations: Count = 0
    partition: str | UnsetType = UNSET
    priority: Time = 0
    nice: Count = 0
    begin_us: Time | None = None
    deadline_us: Positive | None = None
    time_min_us: Positive | None = None
    dependency: str = ""
    kill_on_invalid_dep: bool | None = None
    array: str = ""
    hold: bool = False
    requeue: bool = True
    warn_signal: Annotated[int, Meta(ge=0, le=64)] = 0
    warn_before_us: Count = 0
    warn_batch: bool = False
    fence_us: Count | None = None
    env: Sequence[tuple[str, str]] = ()
    chdir: Annotated[str, Meta(pattern=r"^(/[^\u0000]*)?$")] = ""
    chdir_required: bool = False
    output: str | UnsetType = UNSET
    error: str = ""
    input: str = ""
    open_mode: Literal["", "truncate", "append"] = ""
    zone: str = ""
    constraint: str = ""
    prefer: str = ""
    licenses: str = ""
    reservation: str = ""
    account: str = ""
    qos: str = ""
    hosts_only: Sequence[str] = ()
    hosts_excluded: Sequence[str] = ()
    exclusive: bool = False
    exclusive_user: bool = False
    switches: Count = 0
    switches_wait_us: Count = 300_000_000
    low_comm: bool = False
    traffic: TrafficRequest | None = None
    submit_host: str = ""
    submit_line: Annotated[str, Meta(pattern=NO_NUL)] = ""
    script_path: Annotated[str, Meta(pattern=NO_NUL)] = ""
    comment: str = ""
    mail_events: str = ""
    mail_user: str = ""
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""
    container_name: str = ""


class Submit(Request, frozen=True, kw_only=True):
    """Either `spec`, one job, or `specs`, several, of which all are taken or none."""

    spec: JobRequest | UnsetType = UNSET
    specs: Annotated[Sequence[JobRequest], Meta(min_length=1)] | UnsetType = UNSET


class PlanRequest(Request, frozen=True, kw_only=True):
    spec: JobRequest


class ArrayLimit(Request, frozen=True, kw_only=True):
    """How many elements of the array may run at once; 0: any number."""

    limit: Annotated[int, Meta(ge=0, le=999_999_999)]


class JobUpdate(Request, frozen=True, kw_only=True):
    """Other values of fields of `JobRequest`; what is left out stays. No time limit is null, and no time of
    beginning as well. While a job runs only `name`, `comment`, `requeue`, `nice`, the mails and
    `time_limit_us` may change; an administrator may raise that limit, the user may lower it."""

    name: Word | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    mail_events: str | UnsetType = UNSET
    mail_user: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    priority: Time | UnsetType = UNSET
    nice: Count | UnsetType = UNSET
    time_limit_us: Positive | UnsetType | None = UNSET
    begin_us: Time | UnsetType | None = UNSET
    deadline_us: Positive | UnsetType | None = UNSET
    time_min_us: Positive | UnsetType | None = UNSET
    requeue: bool | UnsetType = UNSET
    hosts_only: Sequence[str] | UnsetType = UNSET
    hosts_excluded: Sequence[str] | UnsetType = UNSET
    constraint: str | UnsetType = UNSET
    prefer: str | UnsetType = UNSET
    licenses: str | UnsetType = UNSET
    reservation: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    dependency: str | UnsetType = UNSET
    hosts_min: Count | UnsetType = UNSET
    hosts_max: Count | UnsetType = UNSET
    ntasks: Positive | UnsetType = UNSET
    tasks_per_host: Count | UnsetType = UNSET
    cpus_per_task: Positive | UnsetType = UNSET
    mem_bytes_per_task: Count | UnsetType = UNSET
    mem_bytes_per_host: Count | UnsetType = UNSET
    mem_all: bool | UnsetType = UNSET
    gpus_per_task: Count | UnsetType = UNSET
    gpus_per_host: Count | UnsetType = UNSET
    gpu_type: str | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET
    exclusive_user: bool | UnsetType = UNSET
