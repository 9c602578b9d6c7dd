"""Hosts as Slurm's commands show them: states, resources and partitions."""

from __future__ import annotations

from rm.cli.slurm.jobs import NONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rm.api.hosts import Host

# compact and long form, and what sinfo's -s counts the host among: allocated, idle, other
SHORT = {
    "allocated": "alloc", "mixed": "mix", "idle": "idle", "down": "down", "draining": "drng",
    "drained": "drain", "unknown": "unk",
}  # fmt: skip

BARE = "drained by "  # where no reason was given


def state_of(host: Host) -> str:
    """One of `SHORT`, in Slurm's words."""
    if host.state in ("DOWN", "UNKNOWN", "DRAINING", "DRAINED"):
        return host.state.lower()
    taken = cpus_taken(host)
    if taken == 0 and not host.jobs:
        return "idle"
    return "allocated" if taken >= host.cpus else "mixed"


def cpus_taken(host: Host) -> int:
    return host.cpus - (host.free.cpus if host.free else host.cpus)


def mem_taken_bytes(host: Host) -> int:
    return host.mem_bytes - (host.free.mem_bytes if host.free else host.mem_bytes)


def gres_of(host: Host) -> str:
    """`gpu:nvidia_h100_80gb_hbm3:4`, as Slurm names types that the driver tells it (AutoDetect=nvml)."""
    return ",".join(f"{kind}:{len(indices)}" for kind, indices in _gpus_by_type(host).items()) or NONE


def gres_used(host: Host) -> str:
    """`gpu:a100:2(IDX:0-1)`: of each type those that jobs have. Source: sinfo(1), GresUsed."""
    from rm.arrays import text_of

    free = set(host.free.gpus) if host.free else {gpu.index for gpu in host.gpus}
    said = []
    for kind, indices in _gpus_by_type(host).items():
        taken = [index for index in indices if index not in free]
        said.append(f"{kind}:{len(taken)}(IDX:{text_of(sum(1 << index for index in taken)) or 'N/A'})")
    return ",".join(said) or NONE


def _gpus_by_type(host: Host) -> dict[str, list[int]]:
    """`gpu:a100`, or `gpu` of those without a model -> their indices."""
    from rm.core.model.asked.gpu_type import gpu_type_of

    kinds: dict[str, list[int]] = {}
    for gpu in host.gpus:
        kind = gpu_type_of(gpu.model)
        kinds.setdefault(f"gpu:{kind}" if kind else "gpu", []).append(gpu.index)
    return kinds


def reason_of(host: Host) -> str:
    """Why it takes no jobs."""
    return _drained(host)[0] or host.reason


def who_of(host: Host) -> str:
    """Who said that it takes no jobs; "" where it takes some."""
    return _drained(host)[1] or ("rm" if host.reason else "")


def reason_us(host: Host) -> int | None:
    """Since when it takes no jobs; None where that is not known."""
    return (host.drained_us if host.drained_by else host.since_us) or None


def _drained(host: Host) -> tuple[str, str]:
    """Why it is drained, and by whom: `disk (ann)`, `drained by ann`, or rm's own sentence."""
    said = host.drained_by
    if said.endswith(")") and " (" in said:
        why, _, who = said[:-1].rpartition(" (")
        return why, who
    return said, said.removeprefix(BARE) if said.startswith(BARE) else "rm" if said else ""


def by_partition(hosts: Iterable[Host]) -> Mapping[str, Sequence[Host]]:
    """Those without a partition are in `NONE`."""
    found: dict[str, list[Host]] = {}
    for host in hosts:
        for partition in host.partitions or (NONE,):
            found.setdefault(partition, []).append(host)
    return found
