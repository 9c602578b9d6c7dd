"""What jobs used, added up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rm.api.answer import Answer


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """Of the attempts that ended in the time: `jobs` were the last ones of their jobs, of which `failed` did
    not complete; `requeued` ones were followed by another attempt. `slowed_us` is time that they lost to
    others on their links, and `saved_us` what interleaving saved them, as estimated. `received_bytes` and
    `sent_bytes` passed the network; the longer names with `waited_` say for what they waited until they had
    hosts. What they held: time of processors (`cpu_us`) and GPUs (`gpu_us`), and memory in MiB seconds. Of it
    `cpu_watched_us` and `gpu_watched_us` were measured, and of these `cpu_busy_us` and `gpu_busy_us` used. A
    name is "" where the line is not of one; `day_us` is the beginning of its day, of UTC, 0 where it is not
    of one."""

    account: str = ""
    user: str = ""
    qos: str = ""
    partition: str = ""
    host: str = ""
    day_us: int = 0
    jobs: int
    failed: int
    requeued: int
    elapsed_us: int
    waited_us: int
    slowed_us: int
    cpu_us: int
    cpu_watched_us: int
    cpu_busy_us: int
    mem_mib_s: int
    gpu_us: int
    gpu_watched_us: int
    gpu_busy_us: int
    energy_mj: int
    read_bytes: int
    written_bytes: int
    waited_resources_us: int = 0
    waited_priority_us: int = 0
    waited_dependency_us: int = 0
    waited_held_us: int = 0
    waited_begin_us: int = 0
    waited_limits_us: int = 0
    waited_licenses_us: int = 0
    waited_network_us: int = 0
    waited_other_us: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    saved_us: int = 0


class Usage(Answer, frozen=True, kw_only=True):
    """The time that was added up, in whole hours, or in days where the hours are forgotten."""

    since_us: int
    until_us: int
    by: Sequence[str]
    lines: Sequence[UsageLine]
