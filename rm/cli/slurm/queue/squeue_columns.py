"""What `squeue -o` and `-O` show: Slurm's letters and names, with its meaning of each."""

from __future__ import annotations

from _operator import attrgetter  # the module around it is not needed

from rm.api.job_rows import JobRow
from rm.cli.formats import Column
from rm.cli.shown import elapsed_us, ends_by_us, row_ref
from rm.cli.slurm.jobs import (
    ENDED,
    NONE,
    STATES,
    begins_us,
    command_of,
    dependency_of,
    eligible_us,
    gpus_of,
    hosts_of,
    mem_bytes_of,
    moment,
    output_path,
    oversubscribed,
    size,
    spec_of,
)
from rm.cli.slurm.users import entry_of, group_of
from rm.units import fold_hosts, format_elapsed, format_time_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FULL_PRIORITY = 1 << 32  # %p is the part of it. Source: squeue(1), "PRIORITY"
_ORDER = {state: place for place, state in enumerate(STATES)}


def array_task(job: JobRow) -> str:
    if job.array_rest is not None:
        return f"{job.array_rest}%{job.array_limit}" if job.array_limit else job.array_rest
    return "N/A" if job.array_task is None else str(job.array_task)


def where_or_why(job: JobRow) -> str:
    if job.state == "PENDING" or (job.state in ENDED and job.state not in ("COMPLETED", "CANCELLED")):
        return f"({job.reason or 'None'})"
    return hosts_of(job)


def waited(job: Any) -> int:
    """The exit status as wait(2) has it."""
    code, _, signal = (job.job.exit or "0:0").partition(":")
    return int(code) << 8 | int(signal or 0)


def memory(job: JobRow) -> int:
    """Of each host, or of each processor where that is asked for: bytes."""
    return job.mem_bytes * job.tasks // job.cpus if job.mem_each == "task" else job.mem_bytes


def uid(job: JobRow) -> str:
    entry = entry_of(job.user)
    return NONE if entry is None else str(entry.pw_uid)


def gid(job: JobRow) -> str:
    entry = entry_of(job.user)
    return NONE if entry is None else str(entry.pw_gid)


def group(job: JobRow) -> str:
    return group_of(job.user) or NONE


def tres(job: Any) -> str:
    """What it has, or waits for."""
    spec, number = spec_of(job), len(job.hosts) or job.hosts_min
    mem_bytes, gpus = mem_bytes_of(spec, number), gpus_of(spec, number)
    parts = [f"cpu={job.cpus}", f"mem={size(mem_bytes)}" if mem_bytes else ""]
    parts += [f"node={number}", f"billing={job.cpus}", f"gres/gpu={gpus}" if gpus else ""]
    return ",".join(filter(None, parts))


def _place(job: JobRow) -> tuple[int, bool, int]:
    """The elements that wait follow those of their array that have jobs."""
    return job.array_job or job.id, job.array_rest is not None, job.array_task or 0


def _any(_: object) -> str:
    return "*"


def gpus(job: Any) -> str:
    """Of each host, as --gres says it."""
    spec = spec_of(job)
    number = spec.gpus_per_host or spec.gpus_per_task * (spec.tasks_per_host or spec.ntasks)
    kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
    return f"gres:gpu:{kind}{number}" if number else "N/A"


def left(job: JobRow) -> str:
    limit_us = job.time_limit_us
    return format_time_limit(None if limit_us is None else limit_us - elapsed_us(job))


def switches_wait(job: Any) -> str:
    spec = spec_of(job)
    return format_time_limit(spec.switches_wait_us if spec.switches else 0)


def constant(text: str) -> Callable[[object], str]:
    return lambda _: text


def of_tasks(job: Any) -> str:
    spec = spec_of(job)
    kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
    return f"gres:gpu:{kind}{spec.gpus_per_task}" if spec.gpus_per_task else "N/A"


def pending_s(job: Any) -> int:
    """How long it has been eligible, or was until it started, in seconds."""
    import time

    since_us = eligible_us(job)
    until_us = job.started_us or job.ended_us or time.time_ns() // 1000
    return max(0, until_us - (since_us or job.submitted_us)) // 1_000_000


def shared(job: Any) -> str:
    return oversubscribed(spec_of(job))


def null(_: object) -> str:
    return NONE


def _left_us(job: JobRow) -> float:
    return float("inf") if job.time_limit_us is None else job.time_limit_us - elapsed_us(job)


def priority(job: Any) -> int:
    """A held job has none. Source: scontrol(1) of Slurm 22.05, "hold"."""
    return 0 if _held(job) else job.priority


def _held(job: Any) -> bool:
    held: bool = job.state == "PENDING" and job.reason.startswith("JobHeld")
    return held


def _rank(job: Any) -> float:
    return float("-inf") if _held(job) else job.priority


COLUMNS = {
    "i": Column("JOBID", row_ref, "JobArrayID", order=_place),
    "A": Column("JOBID", attrgetter("id"), "JobID"),
    "F": Column("ARRAY_JOB_ID", lambda j: j.array_job or j.id, "ArrayJobID"),
    "K": Column("ARRAY_TASK_ID", array_task, "ArrayTaskID"),
    "P": Column("PARTITION", lambda j: j.partition or NONE, "Partition"),
    "j": Column("NAME", attrgetter("name"), "Name"),
    "u": Column("USER", attrgetter("user"), "UserName"),
    "U": Column("UID", uid, "UserID"),
    "t": Column("ST", attrgetter("short_state"), "StateCompact", order=lambda j: _ORDER.get(j.state, 99)),
    "T": Column("STATE", attrgetter("state"), "State", order=lambda j: _ORDER.get(j.state, 99)),
    "M": Column("TIME", lambda j: format_elapsed(elapsed_us(j)), "TimeUsed", order=elapsed_us),
    "l": Column("TIME_LIMIT", lambda j: format_time_limit(j.time_limit_us), "TimeLimit",
                order=lambda j: float("inf") if j.time_limit_us is None else j.time_limit_us),
    "L": Column("TIME_LEFT", left, "TimeLeft", order=_left_us),
    "D": Column("NODES", lambda j: len(j.hosts) or j.hosts_min, "NumNodes"),
    "C": Column("CPUS", attrgetter("cpus"), "NumCPUs"),
    "c": Column("MIN_CPUS", lambda j: spec_of(j).cpus_per_task, "MinCpus", whole=True),
    "m": Column("MIN_MEMORY", lambda j: size(memory(j)), "MinMemory", order=memory),
    "b": Column("TRES_PER_NODE", gpus, "tres-per-node Gres", whole=True),
    "R": Column("NODELIST(REASON)", where_or_why, "ReasonList"),
    "r": Column("REASON", lambda j: j.reason or "None", "Reason"),
    "N": Column("NODELIST", hosts_of, "NodeList"),
    "B": Column("EXEC_HOST", lambda j: j.hosts[0] if j.hosts else "n/a", "BatchHost"),
    "n": Column("REQ_NODES", lambda j: fold_hosts(spec_of(j).hosts_only), "ReqNodes", whole=True),
    "x": Column("EXC_NODES", lambda j: fold_hosts(spec_of(j).hosts_excluded), "ExcNodes", whole=True),
    "V": Column("SUBMIT_TIME", lambda j: moment(j.submitted_us), "SubmitTime"),
    "S": Column("START_TIME", lambda j: moment(j.started_us or begins_us(j.job)), "StartTime", whole=True),
    "e": Column("END_TIME", lambda j: moment(ends_by_us(j, j.time_limit_us)), "EndTime"),
    "Q": Column("PRIORITY", priority, "Priority PriorityLong", whole=True, order=_rank),
    "y": Column("NICE", lambda j: spec_of(j).nice, "Nice", whole=True),
    "E": Column("DEPENDENCY", lambda j: dependency_of(j.job), "Dependency", whole=True),
    "f": Column("FEATURES", lambda j: spec_of(j).constraint or NONE, "Feature", whole=True),
    "v": Column("RESERVATION", lambda j: spec_of(j).reservation or NONE, "Reservation", whole=True),
    "W": Column("LICENSES", lambda j: spec_of(j).licenses or NONE, "Licenses", whole=True),
    "h": Column("OVER_SUBSCRIBE", shared, "OverSubscribe", whole=True),
    "k": Column("COMMENT", lambda j: j.comment or NONE, "Comment"),
    "Z": Column("WORK_DIR", attrgetter("chdir"), "WorkDir"),
    "J": Column("THREADS_PER_CORE", _any, "Threads"),
    "H": Column("SOCKETS_PER_NODE", _any, "Sockets"),
    "I": Column("CORES_PER_SOCKET", _any, "Cores"),
    "O": Column("CONTIGUOUS", lambda j: 0, "Contiguous"),
    "d": Column("MIN_TMP_DISK", lambda j: 0, "MinTmpDisk"),
    "s": Column("", lambda j: "", "SelectJobInfo"),
    "X": Column("CORE_SPEC", lambda j: "N/A", "CoreSpec"),
    "p": Column("PRIORITY", lambda j: f"{priority(j) / FULL_PRIORITY:.14f}", whole=True,
                order=_rank),
    "g": Column("GROUP", group, "GroupName"),
    "G": Column("GROUP", gid, "GroupId"),
    "z": Column("S:C:T", lambda j: "*:*:*", "sct"),
    "a": Column("ACCOUNT", lambda j: j.account or NONE, "Account"),
    "q": Column("QOS", lambda j: j.qos or NONE, "QOS"),
    "w": Column("WCKEY", null, "WCKey"),
    "o": Column("COMMAND", lambda j: command_of(spec_of(j)), "Command", whole=True),
    "Y": Column("SCHEDNODES", lambda j: fold_hosts(getattr(j, "sched_hosts", ())) or NONE, "SchedNodes"),
}  # fmt: skip
# those of -O alone
NAMED = {
    "tasks": Column("TASKS", attrgetter("tasks"), "NumTasks"),
    "tres": Column("TRES_ALLOC", tres, "tres-alloc tres", whole=True),
    "of tasks": Column("TRES_PER_TASK", of_tasks, "tres-per-task", whole=True),
    "switches": Column("REQ_SWITCH", lambda j: spec_of(j).switches, "ReqSwitch", whole=True),
    "switches wait": Column("WAIT4SWITCH", switches_wait, "Wait4Switch", whole=True),
    "each": Column("CPUS_PER_TASK", lambda j: spec_of(j).cpus_per_task, "cpus-per-task", whole=True),
    "most cpus": Column("MAX_CPUS", attrgetter("cpus"), "MaxCPUs"),
    "most hosts": Column("MAX_NODES", lambda j: spec_of(j).hosts_max or j.hosts_min, "MaxNodes", whole=True),
    "per host": Column("NTASKS_PER_NODE", lambda j: spec_of(j).tasks_per_host or 0, "NTPerNode", whole=True),
    "least": Column("TIME_MIN", lambda j: format_time_limit(spec_of(j).time_min_us or 0), "MinTime",
                    whole=True),
    "eligible": Column("ELIGIBLE_TIME", lambda j: moment(eligible_us(j.job)), "EligibleTime", whole=True),
    "accrue": Column("ACCRUE_TIME", lambda j: moment(eligible_us(j.job)), "AccrueTime", whole=True),
    "pending": Column("PENDING_TIME", lambda j: pending_s(j.job), "PendingTime", whole=True),
    "prefer": Column("PREFER", lambda j: spec_of(j).prefer or NONE, "Prefer", whole=True),
    "submitted on": Column("ALLOC_NODES", lambda j: spec_of(j).submit_host or NONE, "AllocNodes", whole=True),
    "deadline": Column("DEADLINE", lambda j: moment(spec_of(j).deadline_us), "Deadline", whole=True),
    "requeue": Column("REQUEUE", lambda j: int(spec_of(j).requeue), "Requeue", whole=True),
    "restarts": Column("RESTART_COUNT", lambda j: j.job.restarts, "RestartCnt", whole=True),
    "exit": Column("EXIT_CODE", waited, "exit_code", whole=True),
    "stdin": Column("STDIN", lambda j: spec_of(j).input or "/dev/null", "STDIN", whole=True),
    "stdout": Column("STDOUT", lambda j: output_path(spec_of(j).output, j.job), "STDOUT", whole=True),
    "stderr": Column("STDERR", lambda j: output_path(spec_of(j).error or spec_of(j).output, j.job), "STDERR",
                     whole=True),
}  # fmt: skip
# those of which rm knows nothing: as Slurm shows a job that did not ask for them
_UNKNOWN = {
    NONE: (
        "BurstBuffer=BURST_BUFFER", "BurstBufferState=BURST_BUFFER_STATE", "ClusterFeature=CLUSTER_FEATURES",
        "admin_comment=ADMIN_COMMENT", "system_comment=SYSTEM_COMMENT", "Container=CONTAINER",
        "MCSLabel=MCSLABEL", "Network=NETWORK",
    ),
    "N/A": (
        "cpus-per-tres=CPUS_PER_TRES", "mem-per-tres=MEM_PER_TRES", "tres-bind=TRES_BIND",
        "tres-freq=TRES_FREQ", "tres-per-job=TRES_PER_JOB", "tres-per-socket=TRES_PER_SOCKET",
        "HetJobID=HET_JOB_ID", "HetJobOffset=HET_JOB_OFFSET", "HetJobIDSet=HET_JOB_ID_SET",
        "NTPerCore=NTASKS_PER_CORE", "NTPerSocket=NTASKS_PER_SOCKET", "PreemptTime=PREEMPT_TIME",
        "ResizeTime=RESIZE_TIME", "LastSchedEval=LAST_SCHED_EVAL",
    ),
    "NA": (
        "Origin=ORIGIN", "OriginRaw=ORIGIN_RAW", "SiblingsActive=ACTIVE_SIBLINGS",
        "SiblingsActiveRaw=ACTIVE_SIBLINGS_RAW", "SiblingsViable=VIABLE_SIBLINGS",
        "SiblingsViableRaw=VIALBLE_SIBLINGS_RAW",  # as Slurm writes it
    ),
    "0": (
        "AllocSID=ALLOC_SID", "AssocID=ASSOC_ID", "BoardsPerNode=BOARDS_PER_NODE", "DerivedEC=DERIVED_EC",
        "NTPerBoard=NTASKS_PER_BOARD", "Reboot=REBOOT", "SPerBoard=SOCKETS_PER_BOARD",
    ),
    "0:00": ("DelayBoot=DELAY_BOOT",), "1": ("BatchFlag=BATCH_FLAG",), "NotSet": ("Profile=PROFILE",),
}  # fmt: skip
for _text, _words in _UNKNOWN.items():
    for _word in _words:
        _name, _, _header = _word.partition("=")
        NAMED[_name] = Column(_header, constant(_text), _name)
