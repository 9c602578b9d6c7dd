"""What `scontrol show` prints: each record as the lines of its fields."""

from __future__ import annotations

import time

from rm import arrays
from rm.arrays import text_of
from rm.cli.shown import elapsed_us, ends_by_us, job_ref
from rm.cli.slurm.accounting.sacct_fields import derived_exit, script_cpus, script_hosts
from rm.cli.slurm.hosts.listed import (
    by_partition,
    cpus_taken,
    gres_of,
    gres_used,
    mem_taken_bytes,
    reason_of,
    reason_us,
    state_of,
    who_of,
)
from rm.cli.slurm.hosts.sinfo_columns import preempt_mode
from rm.cli.slurm.jobs import (
    NONE,
    begins_us,
    clock,
    clock_limit,
    command_of,
    dependency_of,
    eligible_us,
    gpus_of,
    gpus_on,
    mem_bytes_of,
    moment,
    output_path,
    oversubscribed,
    priority_of,
    priority_sums,
    rest_of,
    size,
)
from rm.cli.slurm.users import entry_of, group_of
from rm.errors import NotFound
from rm.units import fold_hosts, parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rm.api.hosts import Host
    from rm.api.job_steps import JobStep
    from rm.api.jobs import Job, Spec
    from rm.api.reasons import Start
    from rm.api.sharing import Partition
    from rm.cli.slurm.asking import Asking

    Record = Sequence[str]

MIB = 1 << 20
MINUTE_US = 60_000_000
MAILED = (
    "ARRAY_TASKS",
    "INVALID_DEPEND",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "TIME_LIMIT_50",
    "TIME_LIMIT_80",
    "TIME_LIMIT_90",
    "TIME_LIMIT",
)  # in Slurm's order
RUNS = ("RUNNING", "SUSPENDED")
BATCH = "batch"  # of jobs whose script runs once, and the step that it is
# Slurm's lines of a step of which rm keeps nothing, as of one that asked for nothing
UNKEPT_OF_STEPS = (f"ResvPorts={NONE}", "CPUFreqReq=Default", f"SrunHost:Pid={NONE}:0")
STATES = {"drained": "IDLE+DRAIN", "draining": "MIXED+DRAIN", "down": "DOWN*"}


def jobs(client: Asking, named: Sequence[str], details: bool = False) -> Iterator[Record]:
    found = list(_jobs(client, named))
    waiting = [job for job in found if job.state == "PENDING"]
    sums = priority_sums(client) if any(job.ended_us is None for job in found) else {}
    starts = client.starts().starts if any(map(eligible_us, waiting)) else ()
    expected = {one.job: one for one in starts}
    for job in found:
        ran = client.job_steps([job.id]) if details and job.spec.launch == BATCH else []
        lines = _job(job, priority_of(job, sums), expected.get(job.id), details)
        if details:
            own = [step for step in ran if step.attempt == job.attempt]
            at = next(number for number, line in enumerate(lines) if line.startswith("RunTime="))
            lines.insert(at, f"DerivedExitCode={derived_exit(job, own)}")
        yield lines


def detailed(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    return jobs(client, named, details=True)


def _jobs(client: Asking, named: Sequence[str]) -> Iterator[Job]:
    if not named:
        yield from filter(_is_record, client.jobs())
        return
    for word in arrays.split_ids(",".join(named)):
        asked = arrays.parse_id(word.partition("=")[2] or word)
        try:
            found: Sequence[Job] = [client.job(one) for one in asked.each()]
        except NotFound:
            raise NotFound("slurm_load_jobs error: Invalid job id specified.") from None
        if found[0].array is not None and not asked.tasks:
            found = [*found, *(job for job in client.jobs() if job.array_job == asked.job)]
        yield from filter(_is_record, found) if len(found) > 1 else found


def _is_record(job: Job) -> bool:
    """An array of which nothing is left is its elements."""
    return job.array is None or bool(job.array.waiting or job.array.dropped)


def steps(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    """The scripts that run, and what `srun` runs, or ran of the jobs or steps that are named."""
    if not named:
        running = {job.id: job for job in client.jobs(state=",".join(RUNS))}
        told = [step for step in client.job_steps(list(running)) if step.ended_us is None]
        for job in running.values():
            yield _script(job)
            yield from (
                _step(step, job) for step in told if (step.job, step.attempt) == (job.id, job.attempt)
            )
        return
    for word in arrays.split_ids(",".join(named)):
        ref, _, number = (word.partition("=")[2] or word).partition(".")
        try:
            job = client.job(arrays.parse_id(ref))
        except NotFound:
            raise NotFound("slurm_get_job_steps error: Invalid job id specified.") from None
        found = [one for one in client.job_steps([job.id]) if number in ("", str(one.step))]
        script = number in ("", BATCH) and job.state in RUNS
        if number and not found and not script:
            raise NotFound(f"Job step {word} not found.")
        if script:
            yield _script(job)
        for step in found:
            if step.attempt == job.attempt:
                yield _step(step, job)


def _script(job: Job) -> Record:
    """Of a job that runs, as the step `.batch`."""
    hosts = script_hosts(job)
    return [
        f"StepId={job_ref(job)}.{BATCH} UserId={_uid(job.spec.user)} "
        f"StartTime={moment(job.started_us)} TimeLimit={clock_limit(None)}",
        f"State={job.state} Partition={job.partition or job.spec.partition or NONE} "
        f"NodeList={fold_hosts(hosts)}",
        f"Nodes={len(hosts)} CPUs={script_cpus(job)} Tasks=1 Name={BATCH} Network={NONE}",
        f"TRES={NONE}",
        *UNKEPT_OF_STEPS,
    ]


def _step(step: JobStep, job: Job) -> Record:
    lines = [
        f"StepId={job_ref(job)}.{step.step} UserId={_uid(job.spec.user)} "
        f"StartTime={moment(step.started_us)} TimeLimit={clock_limit(None)}",
        f"State={step.state} Partition={job.partition or job.spec.partition or NONE} NodeList={step.hosts}",
        f"Nodes={step.hosts_count} CPUs={step.cpus} Tasks={step.tasks} Name={step.name} Network={NONE}",
        f"TRES=cpu={step.cpus},node={step.hosts_count}",
        *UNKEPT_OF_STEPS,
    ]
    if step.ended_us is not None:
        code = f"{step.exit_code or 0}:{step.exit_signal or 0}"
        lines.append(f"EndTime={moment(step.ended_us)} ExitCode={code}")
    return lines


def _uid(user: str) -> str:
    entry = entry_of(user)
    return NONE if entry is None else str(entry.pw_uid)


def _owner(user: str) -> str:
    entry = entry_of(user)
    if entry is None:
        return f"UserId={user}({NONE}) GroupId={NONE}"
    return f"UserId={user}({entry.pw_uid}) GroupId={group_of(user)}({entry.pw_gid})"


def _job(found: Job, priority: int, start: Start | None, details: bool = False) -> list[str]:
    job = rest_of(found)
    spec = job.spec
    hosts = list(job.hosts)
    fewest = spec.hosts_min or (-(-spec.ntasks // spec.tasks_per_host) if spec.tasks_per_host else 1)
    number = len(hosts) or fewest
    asked = f"{fewest}-{spec.hosts_max}" if not hosts and spec.hosts_max > fewest else str(number)
    starts_us, ends_us = job.started_us or begins_us(job), ends_by_us(job, spec.time_limit_us)
    if job.state == "PENDING":
        starts_us = starts_us or (start.at_us if start else None)
        ends_us = starts_us + spec.time_limit_us if starts_us and spec.time_limit_us else None
    mem_bytes = spec.mem_bytes_per_host or spec.mem_bytes_per_task // spec.cpus_per_task
    all_bytes, gpus = mem_bytes_of(spec, number), gpus_of(spec, number)
    tres = [f"cpu={spec.cpus_per_task * spec.ntasks}", f"mem={size(all_bytes)}" if all_bytes else ""]
    tres += [f"node={number}", f"billing={spec.cpus_per_task * spec.ntasks}"]
    tres += [f"gres/gpu={gpus}"] if gpus else []
    array = ""
    if job.array is not None:
        rest = job.array.waiting or job.array.dropped
        throttle = f" ArrayTaskThrottle={job.array.limit}" if job.array.limit else ""
        limit = f"%{job.array.limit}" if rest and job.array.limit else ""
        array = f" ArrayJobId={job.id} ArrayTaskId={rest or 'N/A'}{limit}{throttle}"
    elif job.array_task is not None:
        array = f" ArrayJobId={job.array_job} ArrayTaskId={job.array_task}"
    output = output_path(spec.output, job)
    eligible = moment(eligible_us(job), "Unknown")
    only, excluded = fold_hosts(spec.hosts_only) or NONE, fold_hosts(spec.hosts_excluded) or NONE
    each = "CPU" if spec.mem_bytes_per_task else "Node"
    partition = job.partition or spec.partition or NONE
    lines = [
        f"JobId={job.id}{array} JobName={spec.name}",
        f"{_owner(spec.user)} MCS_label=N/A",
        f"Priority={priority} Nice={spec.nice} Account={job.account or NONE} QOS={job.qos or NONE}",
        f"JobState={job.state} Reason={job.reason.code if job.reason else 'None'} "
        f"Dependency={dependency_of(job)}",
        f"Requeue={int(spec.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 "
        f"ExitCode={job.exit or '0:0'}",
        f"RunTime={clock(elapsed_us(job))} TimeLimit={clock_limit(spec.time_limit_us)} "
        f"TimeMin={clock_limit(spec.time_min_us) if spec.time_min_us else 'N/A'}",
        f"SubmitTime={moment(job.submitted_us)} EligibleTime={eligible}",
        f"AccrueTime={eligible}",
        f"StartTime={moment(starts_us, 'Unknown')} "
        f"EndTime={moment(ends_us, 'Unknown')} Deadline={moment(spec.deadline_us, 'N/A')}",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={moment(job.started_us, 'Unknown')} Scheduler=Main",
        f"Partition={partition} AllocNode:Sid={spec.submit_host or 'N/A'}:0",
        f"ReqNodeList={only} ExcNodeList={excluded}",
        f"NodeList={fold_hosts(hosts)}{f' SchedNodeList={fold_hosts(start.hosts)}' if start else ''}",
        *([f"BatchHost={hosts[0]}"] if hosts else []),
        f"NumNodes={asked} NumCPUs={spec.cpus_per_task * spec.ntasks} NumTasks={spec.ntasks} "
        f"CPUs/Task={spec.cpus_per_task} ReqB:S:C:T=0:0:*:*",
        f"TRES={','.join(filter(None, tres))}",
        f"Socks/Node=* NtasksPerN:B:S:C={spec.tasks_per_host}:0:*:* CoreSpec=*",
        f"MinCPUsNode={spec.cpus_per_task} MinMemory{each}={size(mem_bytes)} MinTmpDiskNode=0",
        f"Features={spec.constraint or NONE} DelayBoot=00:00:00",
        *([f"Reservation={spec.reservation}"] if spec.reservation else []),
        f"OverSubscribe={oversubscribed(spec)} Contiguous=0 Licenses={spec.licenses or NONE} Network={NONE}",
        f"Command={command_of(spec)}",
        f"WorkDir={spec.chdir}",
        f"StdErr={output_path(spec.error, job) if spec.error else output}",
        f"StdIn={spec.input or '/dev/null'}",
        f"StdOut={output}",
        "Power=",
        *_of_gpus(spec),
        *_mail(spec),
    ]
    at = next(number for number, line in enumerate(lines) if line.startswith("StdErr="))
    lines[at:at] = [f"Comment={spec.comment}"] if spec.comment else []
    lines[at:at] = [f"Switches={spec.switches}@{clock(spec.switches_wait_us)}"] if spec.switches else []
    if details:
        at = next(number for number, line in enumerate(lines) if line.startswith("MinCPUsNode="))
        lines[at:at] = _details(job)
    return lines


def _of_gpus(spec: Spec) -> Record:
    """As what each host or task has; Slurm's TresPerJob is one of these here."""
    kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
    found = [f"TresPerNode=gres:gpu:{kind}{spec.gpus_per_host}"] if spec.gpus_per_host else []
    return [*found, f"TresPerTask=gres:gpu:{kind}{spec.gpus_per_task}"] if spec.gpus_per_task else found


def _mail(spec: Spec) -> Record:
    chosen = spec.mail_events.split(",")
    events = ",".join(event for event in MAILED if event in chosen)
    return [f"MailUser={spec.mail_user or spec.user} MailType={events}"] if events else []


def _details(job: Job) -> Record:
    """What each host gives, with the GPUs' indices. Source: scontrol(1), "--details"."""
    gpus, cores = dict(gpus_on(job)), dict.fromkeys(job.hosts, 0)
    for task in job.tasks:
        cores[task.host] = cores.get(task.host, 0) | sum(1 << core for core in task.cores)
    each = job.spec.mem_bytes_per_host
    lines = [f"JOB_GRES={','.join(_without_index(one) for one in gpus.values()) or NONE}"]
    for host in job.hosts:
        tasks = sum(task.host == host for task in job.tasks)
        mem_bytes = each or job.spec.mem_bytes_per_task * tasks
        ids = text_of(cores[host]) or "N/A"
        lines.append(f"  Nodes={host} CPU_IDs={ids} Mem={mem_bytes // MIB} GRES={gpus.get(host, '')}")
    return lines


def _without_index(gres: str) -> str:
    return gres.partition("(")[0]


def hosts(client: Asking, named: Sequence[str], details: bool = False) -> Iterator[Record]:
    found = {host.name: host for host in client.hosts()}
    names = parse_hosts(",".join(named)) or list(found)
    for name in names:
        if name in found:
            yield _host(found[name], details)
    if unknown := [name for name in names if name not in found]:  # said after those that are known
        raise NotFound(" ".join(f"Node {name} not found." for name in unknown))


def hosts_detailed(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    return hosts(client, named, details=True)


def _host(host: Host, details: bool) -> Record:
    features = ",".join(host.features) or NONE
    taken_cpus, taken_bytes = cpus_taken(host), mem_taken_bytes(host)
    free_gpus = len(host.free.gpus) if host.free else len(host.gpus)
    gpus = [f"gres/gpu={len(host.gpus)}"] if host.gpus else []
    taken_gpus = [f"gres/gpu={len(host.gpus) - free_gpus}"] if len(host.gpus) > free_gpus else []
    taken = [f"cpu={taken_cpus}"] if taken_cpus else []
    taken += [f"mem={size(taken_bytes)}"] if taken_bytes else []
    state = STATES.get(state_of(host), state_of(host).upper())
    version = host.agent_version or "N/A"
    system = [f"OS=Linux {host.kernel}"] if host.kernel else []
    billing = f"billing={host.cpus}"
    lines = [
        f"NodeName={host.name} {f'Arch={host.machine} ' if host.machine else ''}CoresPerSocket=1 ",
        f"CPUAlloc={taken_cpus} CPUEfctv={host.cpus} CPUTot={host.cpus} CPULoad=N/A",
        f"AvailableFeatures={features}",
        f"ActiveFeatures={features}",
        f"Gres={gres_of(host)}",
        *(["GresDrain=N/A", f"GresUsed={gres_used(host)}"] if details else []),
        f"NodeAddr={host.address} NodeHostName={host.name} Port={host.port} Version={version}",
        *system,
        f"RealMemory={host.mem_bytes // MIB} AllocMem={taken_bytes // MIB} FreeMem=N/A Sockets={host.cpus} "
        "Boards=1",
        f"State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={','.join(host.partitions)} ",
        f"BootTime={moment(host.booted_us or None, 'None')} SlurmdStartTime=None",
        "LastBusyTime=Unknown",
        f"CfgTRES={','.join([f'cpu={host.cpus}', f'mem={size(host.mem_bytes)}', billing, *gpus])}",
        f"AllocTRES={','.join([*taken, *taken_gpus])}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if reason := reason_of(host):
        lines.append(f"Reason={reason} [{who_of(host)}@{moment(reason_us(host), 'Unknown')}]")
    return lines


def partitions(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    found = {name: hosts for name, hosts in by_partition(client.hosts()).items() if name != NONE}
    usual = client.status().settings.partition
    sharing = client.accounts()
    rules = {one.name: one for one in sharing.partitions}
    found = {**found, **{name: [] for name in rules if name not in found}}
    preempts = any(one.preempts for one in sharing.qos)
    for name in named or list(found):
        if name not in found:
            raise NotFound(f"Partition {name} not found.")
        ruled = rules.get(name) or _unruled(name)
        yield _partition(ruled, found[name], name == usual, preempt_mode(ruled, preempts))


def _unruled(name: str) -> Partition:
    from rm.api.sharing import Partition

    return Partition(name=name)


def _partition(rules: Partition, hosts: Sequence[Host], usual: bool, mode: str) -> Record:
    cpus, mem_bytes = sum(host.cpus for host in hosts), sum(host.mem_bytes for host in hosts)
    gpus = sum(len(host.gpus) for host in hosts)
    tres = [f"cpu={cpus}", f"mem={size(mem_bytes)}", f"node={len(hosts)}"] if hosts else [NONE]
    tres += [f"gres/gpu={gpus}"] if gpus else []
    limits = rules.limits
    default = clock_limit(rules.default_minutes * MINUTE_US) if rules.default_minutes else "NONE"
    minutes = limits.get("job.minutes")
    most_time = clock_limit(None if minutes is None else minutes * MINUTE_US)
    most_hosts = limits.get("job.hosts", "UNLIMITED")
    return [
        f"PartitionName={rules.name}",
        f"AllowGroups=ALL AllowAccounts={','.join(rules.accounts) or 'ALL'} "
        f"AllowQos={','.join(rules.qos) or 'ALL'}",
        f"AllocNodes=ALL Default={'YES' if usual else 'NO'} QoS=N/A",
        f"DefaultTime={default} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        f"MaxNodes={most_hosts} MaxTime={most_time} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={fold_hosts(host.name for host in hosts) or NONE}",
        f"PriorityJobFactor={rules.priority} PriorityTier={rules.tier} RootOnly=NO ReqResv=NO "
        "OverSubscribe=NO",
        f"OverTimeLimit=NONE PreemptMode={mode}",
        f"State={rules.state.upper()} TotalCPUs={cpus} TotalNodes={len(hosts)} SelectTypeParameters=NONE",
        f"JobDefaults={NONE}",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES={','.join(tres)}",
    ]


def settings(client: Asking, _: Sequence[str]) -> Iterator[Record]:
    from rm import __version__

    told = client.status()
    values: Iterable[tuple[str, object]] = (
        ("ClusterName", told.settings.cluster_name),
        ("MaxArraySize", told.settings.array_size),
        ("MinJobAge", f"{told.settings.recent_s:g} sec"),
        ("SLURM_VERSION", f"22.05.8 by rm {__version__}"),
    )
    head = f"Configuration data as of {time.strftime('%Y-%m-%dT%H:%M:%S')}"
    yield [head, *(f"{name:<23} = {value}" for name, value in values)]


def licenses(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    found = {one.name: one for one in client.status().licenses}
    for name in named or list(found):
        if name not in found:
            raise NotFound(f"License {name} not found.")
        one = found[name]
        free = "N/A" if one.used is None else max(one.total - one.used, 0)
        used = "N/A" if one.used is None else one.used
        yield [f"LicenseName={name}", f"Total={one.total} Used={used} Free={free} Reserved=0 Remote=no"]


def _reservations(client: Asking, named: Sequence[str]) -> Iterator[Record]:
    from rm.cli.slurm.hosts import reservations

    yield from reservations.shown(client.client, named)


SHOWN: dict[str, Callable[[Asking, Sequence[str]], Iterator[Record]]] = {
    "job": jobs, "step": steps, "node": hosts, "partition": partitions, "reservation": _reservations,
    "config": settings, "licenses": licenses,
}  # fmt: skip
DETAILED = SHOWN | {"job": detailed, "node": hosts_detailed}
