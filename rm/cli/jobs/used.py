"""What a job used of what it held, in one line, as Slurm's `seff` says in several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rm.cli.shown import elapsed_us
from rm.units import format_bytes, format_elapsed

if TYPE_CHECKING:
    from rm.api.jobs import HostUsed, Job, Used

ALL_TASKS = -1
LOOPBACK = "lo"
SECOND_US = 1_000_000


def used_text(job: Job) -> str:
    """`2 GiB of 16 GiB of memory, processors busy 31 %, GPUs busy 12 %`; "" until a host has told it."""
    lines = [line for line in job.used if line.rank == ALL_TASKS]
    if not lines:
        return ""
    return ", ".join(_parts(job, lines))


def _parts(job: Job, lines: list[HostUsed]) -> Iterator[str]:
    most = max(lines, key=lambda line: line.used.mem_bytes)
    tasks = [sum(task.host == line.host for task in job.tasks) for line in lines]
    held_bytes = job.spec.mem_bytes_per_host or job.spec.mem_bytes_per_task * tasks[lines.index(most)]
    of = f" of {format_bytes(held_bytes)}" if held_bytes else ""
    where = f" on {most.host}" if len(lines) > 1 else ""
    yield f"{format_bytes(most.used.mem_bytes)}{of} of memory{where}"
    used = [line.used for line in lines]
    held_us = elapsed_us(job) * job.spec.cpus_per_task * sum(tasks)
    if held_us and not job.spec.exclusive:  # it held all of its hosts, and how many these have is not said
        yield f"processors busy {percent(sum(one.user_us + one.system_us for one in used), held_us)}"
    if watched_us := sum(one.gpu_us for one in used):
        yield f"GPUs busy {percent(sum(one.gpu_busy_us for one in used), watched_us)}"
    if energy_mj := sum(one.energy_mj for one in used):
        yield f"{energy_mj / 3_600_000_000:.3g} kWh"
    for word, size_bytes in (
        ("read", sum(one.read_bytes for one in used)),
        ("wrote", sum(one.written_bytes for one in used)),
    ):
        if size_bytes:
            yield f"{word} {format_bytes(size_bytes)}"
    yield from _network(used)
    untold = sorted({task.host for task in job.tasks} - {line.host for line in lines})
    if untold:
        yield f"not told by {', '.join(untold)}"


def _network(used: list[Used]) -> Iterator[str]:
    """`received 3 GiB and sent 2 GiB (eth0), 1 MiB within hosts`, the busiest interface first."""
    passed: dict[str, list[int]] = {}
    for one in used:
        for part in one.network:
            both = passed.setdefault(part.interface, [0, 0])
            both[0] += part.received_bytes
            both[1] += part.sent_bytes
    within = passed.pop(LOOPBACK, [0, 0])
    for name, (received, sent) in sorted(passed.items(), key=lambda item: -sum(item[1])):
        yield f"received {format_bytes(received)} and sent {format_bytes(sent)} by {name}"
    if within[1]:
        yield f"{format_bytes(within[1])} within hosts"


def waited_text(job: Job) -> str:
    """`1:30:00: 1:20:00 Priority, 10:00 Resources`, the longest first; "": it has not waited a second."""
    parts = sorted(((us, code) for code, us in job.waited if us >= SECOND_US), reverse=True)
    whole = format_elapsed(sum(us for _, us in job.waited))
    return f"{whole}: {', '.join(f'{format_elapsed(us)} {code}' for us, code in parts)}" if parts else ""


def slowed_text(job: Job) -> str:
    """`3:12 beside others on its links: 2:00 job 40, 1:12 job 41`; "" where it is not known to have been."""
    if not job.slowed:
        return ""
    parts = [f"{format_elapsed(us)} {f'job {other}' if other else 'others'}" for other, us in job.slowed]
    whole = format_elapsed(sum(us for _, us in job.slowed))
    return f"{whole} beside others on its links: {', '.join(parts)}"


def saved_text(job: Job) -> str:
    """`about 4:10 by interleaving, as estimated`; "" where nothing is known to be saved."""
    return f"about {format_elapsed(job.saved_us)} by interleaving, as estimated" if job.saved_us else ""


def percent(part: int, whole: int) -> str:
    """Above 100 % where a job had more processors than it held."""
    return f"{100 * part / whole:.0f} %"
