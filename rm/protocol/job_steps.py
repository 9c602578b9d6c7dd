"""What hosts tell of the steps of jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rm.protocol.request import OfAttempt
from rm.protocol.scalars import AtUs, Bytes, Count, DurationUs, Rank, Signal, Word

STEPS_MAX = 10_000  # of an attempt


class Spread(Struct, frozen=True, kw_only=True):
    """Of a quantity: the sum over the tasks, and the tasks with the most and the least, with their hosts
    where several have told."""

    total: Count
    most: Count
    most_rank: Rank
    most_host: Word = ""
    least: Count
    least_rank: Rank
    least_host: Word = ""


class StepUsed(Struct, frozen=True, kw_only=True):
    """Of how many tasks it is known; time of processors in programs and in the kernel, of all that the step
    started; and of its tasks: time of processors, the most resident memory at once, bytes of disks. Of all of
    it on one host the most memory at once, without and with file caches (0: not known). Of the GPUs that it
    saw: the time that was watched, added up over them, how much of it they were busy, the most memory of one,
    and what they drew, in millijoules."""

    tasks: Count
    user_us: DurationUs
    system_us: DurationUs
    cpu_us: Spread
    mem_bytes: Spread
    read_bytes: Spread
    written_bytes: Spread
    host_bytes: Count = 0
    peak_bytes: Count = 0
    gpu_us: DurationUs = 0
    gpu_busy_us: DurationUs = 0
    gpu_mem_bytes: Count = 0
    energy_mj: Count = 0


class JobStep(Struct, frozen=True, kw_only=True):
    """A step as its attempt's first host recorded it: `typed` is the line of its `srun`, or its
    beginning, `hosts` its list of hosts, folded, `cpus` the
    processors that it holds; instants by the host's clock. `ended_us` is null while it runs; then `code` and
    `signal` are those of the task that made its exit code, null where nobody said them. `why` it ended
    early."""

    step: Annotated[int, Meta(ge=0, lt=1 << 31)]
    name: Annotated[str, Meta(max_length=255)]
    typed: Annotated[str, Meta(max_length=1_024)] = ""
    hosts: Annotated[str, Meta(max_length=4_096)]
    hosts_count: Annotated[int, Meta(ge=0, le=65_536)]
    tasks: Annotated[int, Meta(ge=0, le=1 << 20)]
    cpus: Annotated[int, Meta(ge=0, le=1 << 30)] = 0
    started_us: AtUs
    ended_us: AtUs | None = None
    code: Annotated[int, Meta(ge=0, le=255)] | None = None
    signal: Signal | None = None
    why: Literal["", "cancelled", "timeout"] = ""
    used: StepUsed | None = None


class JobStepsTold(Struct, frozen=True, kw_only=True):
    """`offset` is where the next records begin, `more`: there are some."""

    steps: Annotated[list[JobStep], Meta(max_length=1 << 14)]
    offset: Bytes
    more: bool = False


class JobSteps(OfAttempt[JobStepsTold], frozen=True, kw_only=True, tag="job-steps"):
    """What was recorded of the attempt's steps, the oldest first, from a byte of the record on: a step stands
    there when it begins, again when it has ended, and once more where a host tells later what it used. At
    most 10,000 steps of an attempt are recorded."""

    offset: Bytes = 0


class StepUsedNow(Struct, frozen=True, kw_only=True):
    """Of the step, or -1: of the script."""

    step: Annotated[int, Meta(ge=-1, lt=1 << 31)]
    used: StepUsed


class UsedNowTold(Struct, frozen=True, kw_only=True):
    lines: Annotated[list[StepUsedNow], Meta(max_length=4_096)]


class UsedNow(OfAttempt[UsedNowTold], frozen=True, kw_only=True, tag="used-now"):
    """What the attempt uses on this host now: its script, and the steps that run, by the processes that are
    there."""
