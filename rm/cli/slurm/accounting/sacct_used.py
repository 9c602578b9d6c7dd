"""The fields of `sacct` for what a job used, in Slurm's formats.

Source: sacct(1), and src/sacct/print.c of Slurm 22.05: sizes are divided only as long as nothing is lost, and
times below an hour have milliseconds.
"""

from __future__ import annotations

from rm.cli.slurm.jobs import clock
from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rm.api.job_steps import StepUsed
    from rm.api.jobs import Job, Used

ALL_TASKS = -1
KIB = 1024
UNITS = "KMGTP"


class TaskUsed(NamedTuple):
    host: str
    rank: int
    used: Used


def exact(number: int, unit: str = "") -> str:
    """`5224K`, `2M`: the number of such units, or of larger ones of which it is a multiple."""
    while number and number % KIB == 0 and unit != UNITS[-1]:
        number //= KIB
        unit = UNITS[UNITS.index(unit) + 1] if unit else UNITS[0]
    return f"{number}{unit}"


def memory_size(size_bytes: int) -> str:
    return exact(-(-size_bytes // KIB), "K")


def cpu_time(us: int) -> str:
    """`00:01.250`, `01:02:03`, `1-02:03:04`."""
    if us >= 3_600_000_000:
        return clock(us)
    return f"{us // 60_000_000:02}:{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}"


def tasks_used(job: Job) -> list[TaskUsed]:
    """What each task used that its host told of: of a script that runs once, the script alone."""
    alone = {line.host for line in job.used if line.rank != ALL_TASKS}
    found = [TaskUsed(line.host, line.rank, line.used) for line in job.used if line.rank != ALL_TASKS]
    for line in job.used:
        ranks = [task.rank for task in job.tasks if task.host == line.host]
        if line.rank == ALL_TASKS and line.host not in alone and len(ranks) == 1:
            found.append(TaskUsed(line.host, ranks[0], line.used))
    if job.spec.launch == "batch":
        found = [one for one in found if one.rank == 0]
    return sorted(found, key=lambda one: one.rank)


def hosts_used(job: Job) -> list[Used]:
    """What was used on each host altogether."""
    return [line.used for line in job.used if line.rank == ALL_TASKS]


def total(job: Job, number: Callable[[Used], int]) -> int | None:
    """On all hosts; None: none has told."""
    found = hosts_used(job)
    return sum(map(number, found)) if found else None


def of_job_time(number: Callable[[Used], int]) -> Callable[[Job], str]:
    """What the job used of processors altogether."""

    def text(job: Job) -> str:
        found = total(job, number)
        return "00:00:00" if found is None else cpu_time(found)

    return text


def of_script_time(number: Callable[[Used], int]) -> Callable[[Job], str]:
    """The same of its script."""

    def text(job: Job) -> str:
        if job.spec.launch != "batch":
            return of_job_time(number)(job)
        found = [number(one.used) for one in tasks_used(job)]
        return cpu_time(sum(found)) if found else "00:00:00"

    return text


def most(number: Callable[[Used], int], shown: Callable[[int], str]) -> Callable[[Job], str]:
    return lambda job: shown(max(found)) if (found := _numbers(job, number)) else ""


def average(number: Callable[[Used], int], shown: Callable[[int], str]) -> Callable[[Job], str]:
    return lambda job: shown(sum(found) // len(found)) if (found := _numbers(job, number)) else ""


def least(number: Callable[[Used], int], shown: Callable[[int], str]) -> Callable[[Job], str]:
    return lambda job: shown(min(found)) if (found := _numbers(job, number)) else ""


def where(number: Callable[[Used], int], choose: Callable[..., TaskUsed], place: str) -> Callable[[Job], str]:
    """The `host` or `rank` of the task that has the largest, or the smallest, number."""

    def text(job: Job) -> str:
        found = tasks_used(job)
        return str(getattr(choose(found, key=lambda one: number(one.used)), place)) if found else ""

    return text


def _numbers(job: Job, number: Callable[[Used], int]) -> list[int]:
    return [number(one.used) for one in tasks_used(job)]


def tres_in(job: Job, gather: Callable[[Iterable[int]], int]) -> str:
    """`cpu=00:00:01,energy=0,fs/disk=24013,gres/gpumem=1G,gres/gpuutil=31,mem=5224K`."""
    found = [one.used for one in tasks_used(job)]
    if not found:
        return ""
    parts = [
        f"cpu={clock(gather(one.user_us + one.system_us for one in found))}",
        f"energy={gather(one.energy_mj for one in found) // 1000}",
        f"fs/disk={exact(gather(one.read_bytes for one in found))}",
    ]
    if any(one.gpu_us for one in found):
        parts.append(f"gres/gpumem={exact(gather(one.gpu_mem_bytes for one in found))}")
        parts.append(f"gres/gpuutil={gather(busy_percent(one) for one in found)}")
    return ",".join([*parts, f"mem={memory_size(gather(one.mem_bytes for one in found))}"])


def tres_out(job: Job, gather: Callable[[Iterable[int]], int]) -> str:
    found = [one.used for one in tasks_used(job)]
    return f"energy=0,fs/disk={exact(gather(one.written_bytes for one in found))}" if found else ""


def mean(numbers: Iterable[int]) -> int:
    found = list(numbers)
    return sum(found) // len(found)


def busy_percent(used: Used | StepUsed) -> int:
    """Of GPUs."""
    return round(100 * used.gpu_busy_us / used.gpu_us) if used.gpu_us else 0


def cpu_us(used: Used) -> int:
    return used.user_us + used.system_us
