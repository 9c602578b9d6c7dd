"""The fields of `sacct`, with Slurm's names, widths and meanings. What rm does not measure is empty."""

from __future__ import annotations

import time

from rm.cli.shown import elapsed_us, job_ref
from rm.cli.slurm.accounting import sacct_used as used
from rm.cli.slurm.accounting import step_used
from rm.cli.slurm.jobs import clock, clock_limit, gpus_of, mem_bytes_of, moment, size
from rm.cli.slurm.users import entry_of, group_of
from rm.quick_tuple import NamedTuple
from rm.units import fold_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from rm.api.job_steps import JobStep
    from rm.api.jobs import Job, Used


SUBMIT_LINE = "SubmitLine"


class Line(NamedTuple):
    """A job; with `step` its script, or what `srun` ran, as it is `told`: of these the fields of a job alone
    are empty. `derived` is the largest code of what `srun` ran in a job, `typed` what submitted it."""

    job: Job
    step: str = ""
    told: JobStep | None = None
    derived: str = ""
    typed: str = ""


class Field(NamedTuple):
    """`width` as Slurm prints it: to the left where it is negative."""

    name: str
    width: int
    text: Callable[[Line], Any]


def _of_job(text: Callable[[Job], Any]) -> Callable[[Line], Any]:
    """Empty for a step."""
    return lambda line: "" if line.step else text(line.job)


def _of_both(text: Callable[[Job], Any], of_step: Callable[[JobStep], Any]) -> Callable[[Line], Any]:
    """`of_step` for what `srun` ran."""
    return lambda line: text(line.job) if line.told is None else of_step(line.told)


def _of_each(
    text: Callable[[Job], Any], of_script: Callable[[Job], Any], of_step: Callable[[JobStep], Any]
) -> Callable[[Line], Any]:
    """`of_script` for the line `.batch`."""

    def found(line: Line) -> Any:
        if line.told is not None:
            return of_step(line.told)
        return of_script(line.job) if line.step else text(line.job)

    return found


def step_elapsed_us(step: JobStep) -> int:
    ended_us = time.time_ns() // 1000 if step.ended_us is None else step.ended_us
    return max(0, ended_us - step.started_us)


def step_exit(step: JobStep) -> str:
    return f"{step.exit_code or 0}:{step.exit_signal or 0}"


def line_exit(line: Line) -> str:
    """Of a job that was cancelled or ran out of time the script's line alone has the script's code."""
    if line.told is not None:
        return step_exit(line.told)
    stopped = line.job.state in ("CANCELLED", "TIMEOUT") and not line.step
    return "0:0" if stopped else line.job.exit or "0:0"


def derived_exit(job: Job, steps: Iterable[JobStep]) -> str:
    """The largest `code:signal` of its steps, of which a code is larger than any signal. Where the script ran
    for each task, the tasks are the step. Source: sacct(1), "DerivedExitCode"."""
    if job.spec.launch != "batch":
        return job.exit or "0:0"
    return "{}:{}".format(*max(((s.exit_code or 0, s.exit_signal or 0) for s in steps), default=(0, 0)))


def step_tres(step: JobStep) -> str:
    return f"cpu={step.cpus},node={step.hosts_count}"


def script_hosts(job: Job) -> Sequence[str]:
    """Of a script that runs once, else all."""
    return job.hosts[:1] if job.spec.launch == "batch" else job.hosts


def _hosts(line: Line) -> str:
    if line.told is not None:
        return line.told.hosts
    return fold_hosts(script_hosts(line.job) if line.step else line.job.hosts) or "None assigned"


def _nodes(line: Line) -> int:
    if line.told is not None:
        return line.told.hosts_count
    return len(script_hosts(line.job)) or 1 if line.step else nodes(line.job)


def _name(line: Line) -> str:
    return line.told.name if line.told is not None else line.step or line.job.spec.name


def _tasks(line: Line) -> Any:
    return line.told.tasks if line.told is not None else 1 if line.step else ""


def _shown(line: Line) -> str:
    return _with_step(job_ref(line.job), line)


def _with_step(text: str, line: Line) -> str:
    return f"{text}.{line.step}" if line.step else text


def nodes(job: Job) -> int:
    return len(job.hosts) or job.spec.hosts_min or 1


def cpus(job: Job) -> int:
    return job.spec.cpus_per_task * job.spec.ntasks


def script_cpus(job: Job) -> int:
    """Of a script that runs once those that the job has on its host. Source: sacct(1), "AllocCPUS"."""
    first = script_hosts(job)
    if len(first) == len(job.hosts):
        return cpus(job)
    return job.spec.cpus_per_task * sum(task.host in first for task in job.tasks)


def _allocated(number: Callable[[Job], int]) -> Callable[[Job], int]:
    return lambda job: number(job) if job.hosts else 0


def tres(job: Job) -> str:
    mem_bytes, gpus = mem_bytes_of(job.spec, nodes(job)), gpus_of(job.spec, nodes(job))
    parts = [f"billing={cpus(job)}", f"cpu={cpus(job)}"]
    parts += [f"gres/gpu={gpus}"] if gpus else []
    parts += [f"mem={size(mem_bytes)}"] if mem_bytes else []
    return ",".join([*parts, f"node={nodes(job)}"])


def memory(job: Job) -> str:
    return size(mem_bytes_of(job.spec, nodes(job)))


def _gid(job: Job) -> Any:
    entry = entry_of(job.spec.user)
    return "" if entry is None else entry.pw_gid


def _uid(job: Job) -> Any:
    entry = entry_of(job.spec.user)
    return "" if entry is None else entry.pw_uid


def _waited(job: Job) -> str:
    since_us = max(job.submitted_us, job.spec.begin_us or 0)
    until_us = job.started_us or job.ended_us or time.time_ns() // 1000
    return clock(max(0, until_us - since_us))


def _nothing(_: Line) -> str:
    return ""


def _of_tasks(name: str, width: int, text: Callable[[Job], Any]) -> Field:
    """Of the script and of steps alone, as in Slurm."""
    of_step = step_used.FIELDS[name]

    def found(line: Line) -> Any:
        if line.told is not None:
            return of_step(line.told)
        return text(line.job) if line.step else ""

    return Field(name, width, found)


def _cpu_time(number: Callable[[Used], int], *names: str) -> Callable[[Line], Any]:
    return _of_each(used.of_job_time(number), used.of_script_time(number), step_used.time_of(*names))


def _energy(shown: Callable[[int], str]) -> Callable[[Job], Any]:
    """Joules of GPUs."""

    def text(job: Job) -> str:
        found = used.total(job, lambda u: u.energy_mj)
        return "" if found is None else shown(found // 1000)

    return text


def _network(name: str) -> Callable[[Line], Any]:
    """rm's own fields: of the job alone, without what did not leave a host."""

    def text(job: Job) -> str:
        found = used.total(job, lambda u: sum(getattr(n, name) for n in u.network if n.interface != "lo"))
        return "" if found is None else used.exact(found)

    return _of_job(text)


def _slowed_us(job: Job) -> int:
    return sum(us for _, us in job.slowed)


def _told_time(us: Callable[[Job], int], shown: Callable[[int], Any]) -> Callable[[Line], Any]:
    """rm's own fields: of the job alone, empty where nothing is told."""
    return _of_job(lambda job: shown(found) if (found := us(job)) else "")


def _slowed_by(job: Job) -> str:
    """`40=120,41=72`: seconds by job; 0 stands for those that are not named."""
    return ",".join(f"{other}={us // 1_000_000}" for other, us in job.slowed)


KNOWN = (
    Field("Account", 10, lambda line: line.job.account),
    Field("AllocCPUS", 10, _of_each(_allocated(cpus), script_cpus, lambda s: s.cpus)),
    Field("AllocNodes", 10, lambda line: _nodes(line) if line.job.hosts else 0),
    Field("AllocTRES", 10, _of_both(lambda j: tres(j) if j.hosts else "", step_tres)),
    _of_tasks("AveCPU", 10, used.average(used.cpu_us, clock)),
    _of_tasks("AveDiskRead", 14, used.average(lambda u: u.read_bytes, used.exact)),
    _of_tasks("AveDiskWrite", 14, used.average(lambda u: u.written_bytes, used.exact)),
    _of_tasks("AveRSS", 10, used.average(lambda u: u.mem_bytes, used.memory_size)),
    Field("Cluster", 10, _nothing),
    Field("Comment", 14, _of_job(lambda j: j.spec.comment)),
    Field("ConsumedEnergy", 14, _of_each(_energy(used.exact), _energy(used.exact),
                                         step_used.energy(used.exact))),
    Field("ConsumedEnergyRaw", 17, _of_each(_energy(str), _energy(str), step_used.energy(str))),
    Field("Constraints", 19, _of_job(lambda j: j.spec.constraint)),
    Field("CPUTime", 10, _of_each(lambda j: clock(elapsed_us(j) * cpus(j)),
                                  lambda j: clock(elapsed_us(j) * script_cpus(j)),
                                  lambda s: clock(step_elapsed_us(s) * s.cpus))),
    Field("CPUTimeRAW", 10, _of_each(lambda j: elapsed_us(j) * cpus(j) // 1_000_000,
                                     lambda j: elapsed_us(j) * script_cpus(j) // 1_000_000,
                                     lambda s: step_elapsed_us(s) * s.cpus // 1_000_000)),
    Field("DerivedExitCode", 15, lambda line: line.derived),
    Field("Elapsed", 10, _of_both(lambda j: clock(elapsed_us(j)), lambda s: clock(step_elapsed_us(s)))),
    Field("ElapsedRaw", 10, _of_both(lambda j: elapsed_us(j) // 1_000_000,
                                     lambda s: step_elapsed_us(s) // 1_000_000)),
    Field("Eligible", 19, _of_job(lambda j: moment(max(j.submitted_us, j.spec.begin_us or 0)))),
    Field("End", 19, lambda line: moment((line.told or line.job).ended_us, "Unknown")),
    Field("ExitCode", 8, line_exit),
    Field("JobID", -12, _shown),
    Field("JobIDRaw", -12, lambda line: _with_step(str(line.job.id), line)),
    Field("JobName", 10, _name),
    _of_tasks("MaxDiskRead", 12, used.most(lambda u: u.read_bytes, used.exact)),
    _of_tasks("MaxDiskReadNode", 15, used.where(lambda u: u.read_bytes, max, "host")),
    _of_tasks("MaxDiskReadTask", 15, used.where(lambda u: u.read_bytes, max, "rank")),
    _of_tasks("MaxDiskWrite", 12, used.most(lambda u: u.written_bytes, used.exact)),
    _of_tasks("MaxDiskWriteNode", 16, used.where(lambda u: u.written_bytes, max, "host")),
    _of_tasks("MaxDiskWriteTask", 16, used.where(lambda u: u.written_bytes, max, "rank")),
    _of_tasks("MaxRSS", 10, used.most(lambda u: u.mem_bytes, used.memory_size)),
    _of_tasks("MaxRSSNode", 10, used.where(lambda u: u.mem_bytes, max, "host")),
    _of_tasks("MaxRSSTask", 10, used.where(lambda u: u.mem_bytes, max, "rank")),
    Field("MaxVMSize", 10, _nothing),
    _of_tasks("MinCPU", 10, used.least(used.cpu_us, clock)),
    _of_tasks("MinCPUNode", 10, used.where(used.cpu_us, min, "host")),
    _of_tasks("MinCPUTask", 10, used.where(used.cpu_us, min, "rank")),
    Field("NCPUS", 10, _of_each(cpus, script_cpus, lambda s: s.cpus)),
    Field("NNodes", 8, _nodes),
    Field("NetReceived", 12, _network("received_bytes")),
    Field("NetSaved", 10, _told_time(lambda j: j.saved_us, clock)),
    Field("NetSavedRaw", 11, _told_time(lambda j: j.saved_us, lambda us: us // 1_000_000)),
    Field("NetSent", 12, _network("sent_bytes")),
    Field("NetSlowed", 10, _told_time(_slowed_us, clock)),
    Field("NetSlowedBy", 20, _of_job(_slowed_by)),
    Field("NetSlowedRaw", 12, _told_time(_slowed_us, lambda us: us // 1_000_000)),
    Field("NodeList", 15, _hosts),
    Field("NTasks", 8, _tasks),
    Field("Partition", 10, _of_job(lambda j: j.partition or j.spec.partition)),
    Field("Planned", 10, _of_job(_waited)),
    Field("Priority", 10, _of_job(lambda j: j.spec.priority)),
    Field("QOS", 10, lambda line: line.job.qos),
    Field("Reason", 22, _of_job(lambda j: j.reason.code if j.reason else "None")),
    Field("ReqCPUS", 8, _of_both(cpus, lambda s: s.cpus)),
    Field("ReqMem", 10, _of_job(memory)),
    Field("ReqNodes", 8, _of_both(lambda j: j.spec.hosts_min or 1, lambda s: s.hosts_count)),
    Field("ReqTRES", 10, _of_job(tres)),
    Field("Reserved", 10, _of_job(_waited)),
    Field("Restarts", 8, _of_job(lambda j: j.restarts)),
    Field("Start", 19, _of_both(lambda j: moment(j.started_us, "Unknown"), lambda s: moment(s.started_us))),
    Field("State", 10, _of_both(lambda j: j.state, lambda s: s.state)),
    Field("Submit", 19, _of_both(lambda j: moment(j.submitted_us), lambda s: moment(s.started_us))),
    Field(SUBMIT_LINE, 20, lambda line: line.told.submit_line if line.told is not None else line.typed),
    Field("SystemCPU", 10, _cpu_time(lambda u: u.system_us, "system_us")),
    Field("Timelimit", 10, _of_job(lambda j: clock_limit(j.spec.time_limit_us))),
    Field("TimelimitRaw", 10, _of_job(
        lambda j: "UNLIMITED" if j.spec.time_limit_us is None else -(-j.spec.time_limit_us // 60_000_000))),
    Field("TotalCPU", 10, _cpu_time(used.cpu_us, "user_us", "system_us")),
    _of_tasks("TRESUsageInAve", 14, lambda j: used.tres_in(j, used.mean)),
    _of_tasks("TRESUsageInMax", 14, lambda j: used.tres_in(j, max)),
    _of_tasks("TRESUsageInMin", 14, lambda j: used.tres_in(j, min)),
    _of_tasks("TRESUsageInTot", 14, lambda j: used.tres_in(j, sum)),
    _of_tasks("TRESUsageOutAve", 15, lambda j: used.tres_out(j, used.mean)),
    _of_tasks("TRESUsageOutMax", 15, lambda j: used.tres_out(j, max)),
    _of_tasks("TRESUsageOutMin", 15, lambda j: used.tres_out(j, min)),
    _of_tasks("TRESUsageOutTot", 15, lambda j: used.tres_out(j, sum)),
    Field("UID", 6, _of_job(_uid)),
    Field("User", 9, _of_job(lambda j: j.spec.user)),
    Field("UserCPU", 10, _cpu_time(lambda u: u.user_us, "user_us")),
    Field("WorkDir", 20, _of_job(lambda j: j.spec.chdir)),
    Field("GID", 6, _of_job(_gid)),
    Field("Group", 9, _of_job(lambda job: group_of(job.spec.user) or "")),
    Field("Reservation", 20, _of_job(lambda j: j.spec.reservation)),
)  # fmt: skip
# what rm does not measure, or has not
NOTHING = """
    AdminComment AssocID AveCPUFreq AvePages AveVMSize BlockID Container Flags Layout MaxPages
    MaxPagesNode MaxPagesTask MaxVMSizeNode MaxVMSizeTask McsLabel QOSRAW ReqCPUFreq ReqCPUFreqGov
    ReqCPUFreqMax ReqCPUFreqMin ReservationId ResvCPU ResvCPURAW Suspended SystemComment
    TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMinNode TRESUsageInMinTask TRESUsageOutMaxNode
    TRESUsageOutMaxTask TRESUsageOutMinNode TRESUsageOutMinTask WCKey WCKeyID
"""
FIELDS = tuple(sorted(
    (*KNOWN, *(Field(name, 10, _nothing) for name in NOTHING.split())), key=lambda field: field.name.lower()
))  # fmt: skip
