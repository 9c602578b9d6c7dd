"""The environment each task gets: Slurm's names, ours, and what distributed training asks for.

Source of Slurm's: sbatch(1) and srun(1) of Slurm 22.05, "OUTPUT ENVIRONMENT VARIABLES". A task starts the
script, so it finds what a batch script finds and what a step of all tasks finds. docs/slurm.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rm import arrays
from rm.core.model.host import Host
from rm.core.model.job import NO_BIND, Job, JobSpec, Placement, TaskPlacement
from rm.core.model.network.rails import rails, rdma_devices
from rm.file_patterns import Letters, replaced, values_of
from rm.units import MIB, hosts_in_order

# set for some jobs only: those of another job, in which the submitting shell runs, would mislead frameworks,
# and root's prolog and epilog believe them
OURS_ALONE = ("SLURM_ARRAY_", "SLURM_RESTART_COUNT")


def job_environment(
    job: Job, hosts: Mapping[str, Host], libraries: str, cluster_name: str = "rm"
) -> dict[str, str]:
    """What every task of the attempt gets but MASTER_PORT, which the first host chooses, and the user's ids;
    the submitted environment comes first.

    `libraries` is the folder on the hosts that holds the iteration client.
    """
    spec, placement = job.spec, job.placement
    assert placement is not None
    names = placement.hosts
    first = hosts[names[0]]
    env = {name: value for name, value in spec.env if not name.startswith(OURS_ALONE)}
    shared = {
        "CLUSTER_NAME": cluster_name,
        "JOB_ID": str(job.id),
        "JOBID": str(job.id),
        "JOB_NAME": spec.name,
        "JOB_NUM_NODES": str(len(names)),
        "NNODES": str(len(names)),
        "NTASKS": str(spec.ntasks),
        "NPROCS": str(spec.ntasks),
        "CPUS_PER_TASK": str(spec.cpus_per_task),
        "JOB_PARTITION": job.partition or partition_of(spec, [hosts[name] for name in names]),
        "JOB_USER": spec.user,
        "SUBMIT_DIR": env.get("SLURM_SUBMIT_DIR", spec.chdir),
        "SUBMIT_HOST": spec.submit_host,
        "UMASK": env.get("SLURM_UMASK", "0022"),
        "JOB_START_TIME": str(placed_us(job) // 1_000_000),
        "DISTRIBUTION": spec.distribution.partition("=")[0],
        "PRIO_PROCESS": "0",
        "NODE_ALIASES": "(null)",
    }
    shared |= _steps(placement) | _counts(spec, placement, hosts)
    if (limit_us := job.allowed_us or spec.time_limit_us) is not None:
        # from the placing, which is in the record: a repeated launch must ask for the same
        shared["JOB_END_TIME"] = str((placed_us(job) + limit_us) // 1_000_000)
    if size := spec.distribution.partition("=")[2]:
        shared["DIST_PLANESIZE"] = size
    if spec.dependency:
        shared["JOB_DEPENDENCY"] = spec.dependency
    if job.account:
        shared["JOB_ACCOUNT"] = job.account
    if job.qos:
        shared["JOB_QOS"] = job.qos
    if spec.reservation:
        shared["JOB_RESERVATION"] = spec.reservation
    if job.array_task is not None:
        shared |= _array(job)
    if job.restarts:  # unset on the first run, as Slurm has it
        shared["RESTART_COUNT"] = str(job.restarts)
    if spec.runs_once:  # it is a step that has the names of one
        shared = {name: value for name, value in shared.items() if not name.startswith("STEP")}
    for name, value in shared.items():
        env[f"SLURM_{name}"] = value
    env |= {
        "ENVIRONMENT": "BATCH",
        "RM_JOB_ID": str(job.id),
        "RM_JOB_NAME": spec.name,
        "RM_ATTEMPT": str(job.attempt),
        "RM_ZONE": first.zone,
        "MASTER_ADDR": first.literal_address,
        **({} if spec.runs_once else {"WORLD_SIZE": str(spec.ntasks)}),
        "TMPDIR": env.get("TMPDIR", "/tmp"),  # as slurmd has it; scripts write to "$TMPDIR/file"
        "PYTHONUNBUFFERED": env.get("PYTHONUNBUFFERED", "1"),
        "PYTHONPATH": ":".join(p for p in (libraries, env.get("PYTHONPATH", "")) if p),
    }
    return env


def batch_environment(job: Job, host: Host, hosts: Mapping[str, Host]) -> dict[str, str]:
    """What the script finds that runs once, on its first host: Slurm's batch step. Of what programs of
    torch.distributed read it finds nothing that makes it one of several tasks; its steps do."""
    placement = job.placement
    assert placement is not None
    env = _of_host(job, placement, host, hosts) | {
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": "0",
        "RM_RANK": "0",
    }
    if gpus := placement.gpus_on(host.name):
        env["RM_GPUS"] = ",".join(map(str, gpus))
    return env


def _array(job: Job) -> dict[str, str]:
    """Which element of which array it is. The step is the ranges' step, where all have the same."""
    asked = arrays.parse(job.spec.array)
    return {
        "ARRAY_JOB_ID": str(job.array_job),
        "ARRAY_TASK_ID": str(job.array_task),
        "ARRAY_TASK_COUNT": str(asked.mask.bit_count()),
        "ARRAY_TASK_MIN": str(asked.first),
        "ARRAY_TASK_MAX": str(asked.last),
        "ARRAY_TASK_STEP": str(asked.step),
    }


def _steps(placement: Placement) -> dict[str, str]:
    """Which hosts, how many tasks on each: of the job and of its one step, which are the same."""
    names = placement.hosts
    nodes, tasks = hosts_in_order(names), counted(len(placement.on(name)) for name in names)
    return {
        "JOB_NODELIST": nodes,
        "NODELIST": nodes,
        "TASKS_PER_NODE": tasks,
        "STEP_ID": "0",
        "STEPID": "0",
        "STEP_NODELIST": nodes,
        "STEP_NUM_NODES": str(len(names)),
        "STEP_NUM_TASKS": str(len(placement.tasks)),
        "STEP_TASKS_PER_NODE": tasks,
    }


def _counts(spec: JobSpec, placement: Placement, hosts: Mapping[str, Host]) -> dict[str, str]:
    """Tasks, processors, memory in MiB, and GPUs."""
    names = placement.hosts
    found = {"JOB_CPUS_PER_NODE": counted(cpus_on(spec, placement, hosts[name]) for name in names)}
    tasks_on = {len(placement.on(name)) for name in names}
    if len(tasks_on) == 1:  # Slurm sets it only if the job asks for it; frameworks always need it
        found["NTASKS_PER_NODE"] = str(tasks_on.pop())
    elif spec.tasks_per_host:
        found["NTASKS_PER_NODE"] = str(spec.tasks_per_host)
    if spec.mem_all:
        found["MEM_PER_NODE"] = str(min(hosts[name].mem_bytes for name in names) // MIB)
    elif spec.mem_bytes_per_host:
        found["MEM_PER_NODE"] = str(spec.mem_bytes_per_host // MIB)
    elif spec.mem_bytes_per_task:
        found["MEM_PER_CPU"] = str(spec.mem_bytes_per_task // spec.cpus_per_task // MIB)
    kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
    if gpus := sum(len(placement.gpus_on(name)) for name in names):
        found["GPUS"] = str(gpus)
    if spec.gpus_per_host:
        found["GPUS_PER_NODE"] = f"{kind}{spec.gpus_per_host}"
    elif spec.gpus_per_task and spec.gpu_bind != NO_BIND:
        found["GPUS_PER_TASK"] = f"{kind}{spec.gpus_per_task}"
    if spec.ntasks_per_gpu:
        found["NTASKS_PER_GPU"] = str(spec.ntasks_per_gpu)
    return found


def partition_of(spec: JobSpec, hosts: Sequence[Host]) -> str:
    """Of the partitions that the job may run in the first that all its hosts are in; "" without any."""
    for partition in spec.partitions:
        if all(partition in host.partitions for host in hosts):
            return partition
    return spec.partition


def cpus_on(spec: JobSpec, placement: Placement, host: Host) -> int:
    return host.cpus if spec.exclusive else spec.cpus_per_task * len(placement.on(host.name))


def counted(numbers: Iterable[int]) -> str:
    """Slurm's short form of a number for each host: 2 2 1 is `2(x2),1`."""
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)


def placed_us(job: Job) -> int:
    """When the attempt was placed, by the job's own story."""
    said = (at_us for at_us, what in reversed(job.history) if what.startswith("placed on "))
    return next(said, job.submitted_us)


def task_environment(job: Job, task: TaskPlacement, host: Host, hosts: Mapping[str, Host]) -> dict[str, str]:
    """What distinguishes one rank.

    Programs take LOCAL_RANK for the index of the GPU that they use, of those that they see: so it is the
    task's place on the host, counted round these GPUs, and 0 where the task sees its own GPUs only.
    """
    placement = job.placement
    assert placement is not None
    host_index = placement.hosts.index(host.name)
    mine = placement.on(host.name)
    local = [t.rank for t in mine].index(task.rank)
    gpus = placement.gpus_on(host.name)
    apart = len(task.gpus) < len(gpus)
    env = {
        "SLURM_PROCID": str(task.rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(host_index),
        "SLURM_GTIDS": ",".join(str(t.rank) for t in mine),
        "RANK": str(task.rank),
        "LOCAL_RANK": "0" if apart else str(local % (len(task.gpus) or len(mine))),
        "LOCAL_WORLD_SIZE": "1" if apart else str(len(mine)),
        "NODE_RANK": str(host_index),
        "RM_RANK": str(task.rank),
    }
    if gpus:
        env["SLURM_STEP_GPUS"] = ",".join(map(str, gpus))
        env["RM_GPUS"] = ",".join(map(str, task.gpus))
    return env | _of_host(job, placement, host, hosts)


def _of_host(job: Job, placement: Placement, host: Host, hosts: Mapping[str, Host]) -> dict[str, str]:
    """What all tasks on the host find, whichever started them."""
    env = {
        "SLURM_CPUS_ON_NODE": str(cpus_on(job.spec, placement, host)),
        "SLURM_TOPOLOGY_ADDR": host.name,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURMD_NODENAME": host.name,
        "RM_HOST": host.name,
        "RM_HOST_ADDRESS": host.literal_address,
    }
    if gpus := placement.gpus_on(host.name):
        env["SLURM_GPUS_ON_NODE"] = str(len(gpus))
        env["SLURM_JOB_GPUS"] = ",".join(map(str, gpus))
        if job.spec.gpu_mem_bytes:  # of each; nothing but the job itself keeps it to that
            env["RM_GPU_MEM_BYTES"] = str(job.spec.gpu_mem_bytes)
    given = {name for name, _ in job.spec.env}
    their = [hosts[name] for name in placement.hosts]
    return env | {name: value for name, value in _interfaces(host, their) if name not in given}


def _interfaces(host: Host, hosts: Sequence[Host]) -> Iterator[tuple[str, str]]:
    """Which interfaces lead from the host to the others of its job: left to guess, NCCL and Gloo bind to a
    wrong one. Sources: NCCL's "Environment Variables" (NCCL_SOCKET_IFNAME takes beginnings of names, and with
    `=` whole names; NCCL_IB_HCA likewise), "Choosing the network interface to use" of torch.distributed."""
    if not host.interface:
        return
    used = rails(host, hosts)
    # by the kernel's names: NCCL and Gloo compare with these alone
    names = [nic.name for nic in used] if used and used[0].is_called(host.interface) else [host.interface]
    listed = ",".join(names)
    several = len(names) > 1 or any(
        nic.name != names[0] and nic.name.startswith(names[0]) for nic in host.nics
    )
    yield "NCCL_SOCKET_IFNAME", f"={listed}" if several else listed
    yield "GLOO_SOCKET_IFNAME", listed
    if len(names) > 1 and (devices := rdma_devices(host, used)):
        yield "NCCL_IB_HCA", "=" + ",".join(devices)


def expand(pattern: str, job: Job, task: TaskPlacement, host: Host) -> str:
    """Slurm's file name patterns: %j %A %a %x %u %N %n %t %%, with a width as in %4t."""
    placement = job.placement
    assert placement is not None
    known = values_of(job.id, job.array_job, job.array_task, job.spec.name, job.spec.user)
    here: Letters = {"N": host.name, "n": placement.hosts.index(host.name), "t": task.rank}
    return replaced(pattern, {**known, **here})
