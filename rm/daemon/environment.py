"""The environment each task gets: Slurm's names, ours, and what distributed training asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rm.core.host import Host
from rm.core.job import Job, TaskPlacement
from rm.units import fold_hosts

PATTERN = re.compile(r"%([0-9]*)([A-Za-z%])")  # of file names: %j, %4t


def job_environment(job: Job, hosts: Mapping[str, Host], libraries: str) -> dict[str, str]:
    """What every task of the attempt gets but MASTER_PORT, which the first host chooses; the submitted
    environment comes first.

    `libraries` is the folder on the hosts that holds the iteration client.
    """
    spec, placement = job.spec, job.placement
    assert placement is not None
    names = placement.hosts
    first = hosts[names[0]]
    env = dict(spec.env)
    shared = {
        "JOB_ID": str(job.id),
        "JOBID": str(job.id),
        "JOB_NAME": spec.name,
        "JOB_NODELIST": fold_hosts(list(names)),
        "NODELIST": fold_hosts(list(names)),
        "JOB_NUM_NODES": str(len(names)),
        "NNODES": str(len(names)),
        "NTASKS": str(spec.ntasks),
        "NPROCS": str(spec.ntasks),
        "CPUS_PER_TASK": str(spec.cpus_per_task),
        "JOB_PARTITION": spec.partition,
        "JOB_USER": spec.user,
        "SUBMIT_DIR": spec.chdir,
        "SUBMIT_HOST": spec.submit_host,
    }
    if spec.time_limit_us is not None:
        # from the placing, which is in the record: a repeated launch must ask for the same
        shared["JOB_END_TIME"] = str((placed_us(job) + spec.time_limit_us) // 1_000_000)
    if spec.gpus_per_task:
        shared["GPUS"] = str(spec.gpus_per_task * spec.ntasks)
    if job.attempt > 1:  # unset on the first run, as Slurm has it
        shared["RESTART_COUNT"] = str(job.attempt - 1)
    for name, value in shared.items():
        env[f"SLURM_{name}"] = value
    env |= {
        "RM_JOB_ID": str(job.id),
        "RM_JOB_NAME": spec.name,
        "RM_ATTEMPT": str(job.attempt),
        "RM_ZONE": first.zone,
        "MASTER_ADDR": first.address,
        "WORLD_SIZE": str(spec.ntasks),
        "PYTHONUNBUFFERED": env.get("PYTHONUNBUFFERED", "1"),
        "PYTHONPATH": ":".join(p for p in (libraries, env.get("PYTHONPATH", "")) if p),
    }
    return env


def placed_us(job: Job) -> int:
    """When the attempt was placed, by the job's own story."""
    said = (at_us for at_us, what in reversed(job.history) if what.startswith("placed on "))
    return next(said, job.submitted_us)


def task_environment(job: Job, task: TaskPlacement, host: Host) -> dict[str, str]:
    """What distinguishes one rank."""
    placement = job.placement
    assert placement is not None
    host_index = placement.hosts.index(host.name)
    mine = placement.on(host.name)
    local = [t.rank for t in mine].index(task.rank)
    env = {
        "SLURM_PROCID": str(task.rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(host_index),
        "SLURMD_NODENAME": host.name,
        "RANK": str(task.rank),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(mine)),
        "NODE_RANK": str(host_index),
        "RM_RANK": str(task.rank),
        "RM_HOST": host.name,
        "RM_HOST_ADDRESS": host.address,
    }
    if task.gpus:
        env["SLURM_GPUS_ON_NODE"] = str(sum(len(t.gpus) for t in mine))
        env["RM_GPUS"] = ",".join(str(g) for g in task.gpus)
        if job.spec.gpu_mem_bytes:  # of each; nothing but the job itself keeps it to that
            env["RM_GPU_MEM_BYTES"] = str(job.spec.gpu_mem_bytes)
    if host.interface:
        # left to guess, NCCL and Gloo bind to the wrong interface
        env["NCCL_SOCKET_IFNAME"] = env["GLOO_SOCKET_IFNAME"] = host.interface
    return env


def expand(pattern: str, job: Job, task: TaskPlacement, host: Host) -> str:
    """Slurm's file name patterns: %j %A %x %u %N %n %t %%, with a width as in %4t."""
    placement = job.placement
    assert placement is not None
    values: dict[str, str | int] = {
        "j": job.id,
        "J": job.id,
        "A": job.id,
        "x": job.spec.name,
        "u": job.spec.user,
        "N": host.name,
        "n": placement.hosts.index(host.name),
        "t": task.rank,
    }

    def replaced(match: re.Match[str]) -> str:
        width, key = match[1], match[2]
        if key == "%":
            return "%"
        value = values.get(key)
        if isinstance(value, int) and width:
            return str(value).zfill(min(int(width[:3]), 10))
        return match[0] if value is None else str(value)

    return PATTERN.sub(replaced, pattern)
