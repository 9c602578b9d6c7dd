"""What a step used, or uses so far, in the formats of `sacct` and `sstat`."""

from __future__ import annotations

from rm.cli.slurm.accounting.sacct_used import busy_percent, cpu_time, exact, memory_size
from rm.cli.slurm.jobs import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from rm.api.job_steps import StepUsed

    class Measured(Protocol):
        """A step."""

        @property
        def used(self) -> StepUsed | None: ...

    Text = Callable[[Measured], str]

MOST, LEAST, AVERAGE, TOTAL = "most", "least", "average", "total"


def number(used: StepUsed, name: str, which: str) -> int:
    spread = getattr(used, name)
    if which == AVERAGE:
        return int(spread.total) // max(1, used.tasks)
    return int(getattr(spread, which))


def of(name: str, which: str, shown: Callable[[int], str]) -> Text:
    """The most, the least, the average or the total of a quantity of the step's tasks."""
    return lambda step: "" if step.used is None else shown(number(step.used, name, which))


def where(name: str, place: str) -> Text:
    """`most_host`, `least_rank` …"""
    return lambda step: "" if step.used is None else str(getattr(getattr(step.used, name), place))


def time_of(*names: str) -> Text:
    """Of processors, of all that the step started."""

    def text(step: Measured) -> str:
        used = step.used
        return "00:00:00" if used is None else cpu_time(sum(getattr(used, name) for name in names))

    return text


def tres_in(which: str) -> Text:
    def text(step: Measured) -> str:
        used = step.used
        if used is None:
            return ""
        cpu_us, mem = number(used, "cpu_us", which), memory_size(number(used, "mem_bytes", which))
        disk = exact(number(used, "read_bytes", which))
        parts = [f"cpu={clock(cpu_us)}", f"fs/disk={disk}", f"mem={mem}"]
        if used.gpu_us:  # of the step, whichever is asked for: a GPU belongs to no task
            gpus = f"gres/gpumem={exact(used.gpu_mem_bytes)}", f"gres/gpuutil={busy_percent(used)}"
            parts[1:1] = [f"energy={used.energy_mj // 1000}"]
            parts[-1:-1] = gpus
        return ",".join(parts)

    return text


def energy(shown: Callable[[int], str]) -> Text:
    """Joules of its GPUs."""
    return lambda s: "" if s.used is None or not s.used.gpu_us else shown(s.used.energy_mj // 1000)


def tres_out(which: str) -> Text:
    return lambda s: "" if s.used is None else f"fs/disk={exact(number(s.used, 'written_bytes', which))}"


# Source: sacct(1) and sstat(1) of Slurm 22.05; the fields that both have, of the tasks of one step
FIELDS: dict[str, Text] = {
    "AveCPU": of("cpu_us", AVERAGE, clock),
    "AveDiskRead": of("read_bytes", AVERAGE, exact),
    "AveDiskWrite": of("written_bytes", AVERAGE, exact),
    "AveRSS": of("mem_bytes", AVERAGE, memory_size),
    "MaxDiskRead": of("read_bytes", MOST, exact),
    "MaxDiskReadNode": where("read_bytes", "most_host"),
    "MaxDiskReadTask": where("read_bytes", "most_rank"),
    "MaxDiskWrite": of("written_bytes", MOST, exact),
    "MaxDiskWriteNode": where("written_bytes", "most_host"),
    "MaxDiskWriteTask": where("written_bytes", "most_rank"),
    "MaxRSS": of("mem_bytes", MOST, memory_size),
    "MaxRSSNode": where("mem_bytes", "most_host"),
    "MaxRSSTask": where("mem_bytes", "most_rank"),
    "MinCPU": of("cpu_us", LEAST, clock),
    "MinCPUNode": where("cpu_us", "least_host"),
    "MinCPUTask": where("cpu_us", "least_rank"),
    "TRESUsageInAve": tres_in(AVERAGE),
    "TRESUsageInMax": tres_in(MOST),
    "TRESUsageInMin": tres_in(LEAST),
    "TRESUsageInTot": tres_in(TOTAL),
    "TRESUsageOutAve": tres_out(AVERAGE),
    "TRESUsageOutMax": tres_out(MOST),
    "TRESUsageOutMin": tres_out(LEAST),
    "TRESUsageOutTot": tres_out(TOTAL),
}
