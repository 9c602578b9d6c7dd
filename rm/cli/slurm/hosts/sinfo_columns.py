"""What `sinfo -o` and `-O` show of a group of hosts: Slurm's letters and names, with its meaning of each."""

from __future__ import annotations

from rm.cli.formats import Column
from rm.cli.slurm.hosts.listed import (
    SHORT,
    cpus_taken,
    gres_of,
    gres_used,
    mem_taken_bytes,
    reason_of,
    reason_us,
    state_of,
    who_of,
)
from rm.cli.slurm.jobs import NONE, moment
from rm.cli.slurm.users import entry_of
from rm.quick_tuple import NamedTuple
from rm.units import fold_hosts, format_elapsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from rm.api.hosts import Host
    from rm.api.sharing import Partition

MIB = 1 << 20
MINUTE_US = 60_000_000
TAKEN, IDLE = ("allocated", "mixed"), ("idle",)


class Group(NamedTuple):
    """Hosts that are alike in all that is shown. `usual`: jobs that name no partition go to this one.
    `preempts`: jobs of some QOS may preempt others."""

    partition: str
    usual: bool
    hosts: Sequence[Host]
    rules: Partition | None = None
    preempts: bool = False


def _first(text: Callable[[Host], Any], nothing: str = "") -> Callable[[Group], Any]:
    """`nothing`: what Slurm shows of a partition of which no host is chosen."""
    return lambda group: text(group.hosts[0]) if group.hosts else nothing


def _in_state(group: Group, states: Sequence[str]) -> int:
    return sum(state_of(host) in states for host in group.hosts)


def hosts_counted(group: Group) -> str:
    """Allocated, idle, other, total."""
    taken, idle = _in_state(group, TAKEN), _in_state(group, IDLE)
    return f"{taken}/{idle}/{len(group.hosts) - taken - idle}/{len(group.hosts)}"


def cpus_counted(group: Group) -> str:
    """Allocated, idle, other, total; the idle ones of hosts that take no jobs are others."""
    total, taken = sum(host.cpus for host in group.hosts), sum(map(cpus_taken, group.hosts))
    idle = sum(host.cpus - cpus_taken(host) for host in group.hosts if state_of(host) in (*TAKEN, *IDLE))
    return f"{taken}/{idle}/{total - taken - idle}/{total}"


def state_long(host: Host) -> str:
    state = state_of(host)
    return f"{state}*" if state == "down" else state


def state_short(host: Host) -> str:
    state = state_of(host)
    return f"{SHORT[state]}*" if state == "down" else SHORT[state]


def _reason_moment(host: Host) -> str:
    return moment(reason_us(host) if reason_of(host) else None, "Unknown")


def _who(host: Host) -> str:
    return who_of(host) or "Unknown"


def _who_with_uid(host: Host) -> str:
    who = _who(host)
    entry = entry_of(who)
    return who if entry is None else f"{who}({entry.pw_uid})"


def _state_complete(host: Host) -> str:
    """With what it was before it took no more jobs."""
    state = state_of(host)
    return {"drained": "idle+drain", "draining": "mixed+drain"}.get(state, state_long(host))


def available(group: Group) -> str:
    """`inact`, as sinfo of Slurm 22.05 writes it."""
    state = group.rules.state if group.rules else "up"
    return "inact" if state == "inactive" else state


def time_limit(group: Group) -> str:
    most = group.rules.limits.get("job.minutes") if group.rules else None
    return "infinite" if most is None else format_elapsed(most * MINUTE_US)


def default_time(group: Group) -> str:
    minutes = group.rules.default_minutes if group.rules else 0
    return format_elapsed(minutes * MINUTE_US) if minutes else "n/a"


def job_size(group: Group) -> str:
    most = group.rules.limits.get("job.hosts") if group.rules else None
    return "1-infinite" if most is None else "1" if most == 1 else f"1-{most}"


def preempt_mode(rules: Partition | None, preempts: bool) -> str:
    """The partition's own, else the cluster's. Source: slurm.conf(5), PreemptMode."""
    own = rules.preempt_mode if rules is not None else "off"
    if own == "suspend":
        return "GANG,SUSPEND"
    return own.upper() if own != "off" else "REQUEUE" if preempts else "OFF"


def constant(text: str) -> Callable[[Group], str]:
    return lambda group: text


# those of a whole group, by which hosts are not told apart
OF_GROUPS = "ACDFN"
OF_PARTITIONS = "PR"  # a partition of which no host is chosen has a line where one of them is shown
COLUMNS = {
    "P": Column("PARTITION", lambda g: f"{g.partition}*" if g.usual else g.partition, "Partition"),
    "R": Column("PARTITION", lambda g: g.partition, "PartitionName"),
    "a": Column("AVAIL", available, "Available"),
    "l": Column("TIMELIMIT", time_limit, "Time"),
    "s": Column("JOB_SIZE", job_size, "Size"),
    "r": Column("ROOT", constant("no"), "Root"),
    "h": Column("OVERSUBSCRIBE", constant("NO"), "OverSubscribe"),
    "g": Column("GROUPS", constant("all"), "Groups"),
    "p": Column("PRIO_TIER", lambda g: g.rules.tier if g.rules else 1, "PriorityTier"),
    "I": Column("PRIO_JOB_FACTOR", lambda g: g.rules.priority if g.rules else 0, "PriorityJobFactor"),
    "D": Column("NODES", lambda g: len(g.hosts), "Nodes"),
    "A": Column("NODES(A/I)", lambda g: f"{_in_state(g, TAKEN)}/{_in_state(g, IDLE)}", "NodeAI"),
    "F": Column("NODES(A/I/O/T)", hosts_counted, "NodeAIOT"),
    "C": Column("CPUS(A/I/O/T)", cpus_counted, "CPUsState"),
    "t": Column("STATE", _first(state_short, "n/a"), "StateCompact"),
    "T": Column("STATE", _first(state_long, "n/a"), "StateLong"),
    "N": Column("NODELIST", lambda g: fold_hosts(sorted(host.name for host in g.hosts)), "NodeList"),
    "n": Column("HOSTNAMES", _first(lambda h: h.name), "NodeHost"),
    "o": Column("NODE_ADDR", _first(lambda h: h.address), "NodeAddr"),
    "c": Column("CPUS", _first(lambda h: h.cpus, "0"), "CPUs"),
    "m": Column("MEMORY", _first(lambda h: h.mem_bytes // MIB, "0"), "Memory"),
    "e": Column("FREE_MEM", constant("N/A"), "FreeMem"),
    "O": Column("CPU_LOAD", constant("N/A"), "CPUsLoad"),
    "d": Column("TMP_DISK", constant("0"), "Disk"),
    "w": Column("WEIGHT", constant("1"), "Weight"),
    "z": Column("S:C:T", _first(lambda h: f"{h.cpus}:1:1", "0:0:0"), "SocketCoreThread"),
    "f": Column("AVAIL_FEATURES", _first(lambda h: ",".join(h.features) or NONE, NONE), "Features"),
    "b": Column("ACTIVE_FEATURES", _first(lambda h: ",".join(h.features) or NONE, NONE), "Features_act"),
    "G": Column("GRES", _first(gres_of, NONE), "Gres"),
    "B": Column("MAX_CPUS_PER_NODE", constant("UNLIMITED"), "MaxCPUsPerNode"),
    "L": Column("DEFAULTTIME", default_time, "DefaultTime"),
    "M": Column("PREEMPT_MODE", lambda g: preempt_mode(g.rules, g.preempts), "PreemptMode"),
    "S": Column("ALLOCNODES", constant("all"), "AllocNodes"),
    "V": Column("CLUSTER", constant("N/A"), "Cluster"),
    "X": Column("SOCKETS", _first(lambda h: h.cpus, "0"), "Sockets"),
    "Y": Column("CORES", constant("1"), "Cores"),
    "Z": Column("THREADS", constant("1"), "Threads"),
    "E": Column("REASON", _first(lambda h: reason_of(h) or "none", "none"), "Reason"),
    "H": Column("TIMESTAMP", _first(_reason_moment, "Unknown"), "TimeStamp"),
    "u": Column("USER", _first(_who), "User"),
    "U": Column("USER", _first(_who_with_uid), "UserLong"),
    "v": Column("VERSION", _first(lambda h: h.agent_version or "N/A", "N/A"), "Version"),
}  # fmt: skip
# those of -O alone
NAMED = {
    "memory taken": Column("ALLOCMEM", _first(lambda h: mem_taken_bytes(h) // MIB), "AllocMem"),
    "gpus taken": Column("GRES_USED", _first(gres_used), "GresUsed"),
    "port": Column("PORT", _first(lambda h: h.port), "Port"),
    "state": Column("STATECOMPLETE", _first(_state_complete, "n/a"), "StateComplete"),
    "comment": Column("COMMENT", constant(NONE), "Comment"),
    "extra": Column("EXTRA", constant(NONE), "Extra"),
}
