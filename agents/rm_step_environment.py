"""What one task of a step finds in its environment, on its host, and which GPUs it sees there."""

import os

import rm_cpu_bind
import rm_gpu_near
from rm_become import MARK, findable

OF_THE_SCRIPT = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "RM_RANK"}


def seen_gpus(asked, request, fence):
    """For each task of the step here the names of the GPUs that it sees."""
    mine = request["tasks"][0]["gpus"]
    gpus = [[mine[n] for n in positions] for positions in asked["gpus"]]
    if not asked.get("near"):
        return gpus
    usable, bind = os.sched_getaffinity(0), asked.get("cpu_bind")
    cpus = [usable] * len(gpus)
    if bind:
        cpus = [rm_cpu_bind.chosen(bind, at, len(gpus), fence.cores, usable)[0] for at in range(len(gpus))]
    return rm_gpu_near.narrowed(gpus, cpus)


def task_environment(asked, request, user, fence, folder, at, gpus):
    """srun's, under what distinguishes this host and the task, the `at`-th here."""
    host_env, rank = request["tasks"][0]["env"], asked["ranks"][at]
    environ = dict(asked["env"])
    environ.update({key: value for key, value in host_env.items() if key not in OF_THE_SCRIPT})
    environ.update(asked["step_env"])
    local, alike = rm_gpu_near.local_rank(gpus, at)
    named = named_for_cuda(gpus[at], request["tasks"][0]["gpus"], fence.hides_gpus)
    of_job = host_env.get("SLURM_JOB_GPUS", "").split(",")
    of_step = sorted({n for positions in asked["gpus"] for n in positions})
    if of_step and of_step[-1] < len(of_job):
        environ["SLURM_STEP_GPUS"] = ",".join(of_job[n] for n in of_step)
        environ["SLURM_GPUS_ON_NODE"] = str(len(of_step))
    environ.update({
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(at), "SLURM_NODEID": str(asked["node"]),
        "SLURM_GTIDS": ",".join(map(str, asked["ranks"])), "SLURM_TASK_PID": str(os.getpid()),
        "RANK": str(rank), "RM_RANK": str(rank), "NODE_RANK": str(asked["node"]),
        "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(alike),
        "CUDA_VISIBLE_DEVICES": ",".join(named),
        "HOME": user.home, "USER": user.name, "LOGNAME": user.name,
        MARK: folder.at("schedule.json"), "RM_REPORTS": _reports(folder, request, rank),
    })  # fmt: skip
    return findable(environ)


def _reports(folder, request, rank):
    """Where the task reports its iterations: as the rank that it is, where the job has that here."""
    ranks = [task["rank"] for task in request["tasks"]]
    return folder.reports(rank if rank in ranks else ranks[0])


def named_for_cuda(gpus, of_job, hides_gpus):
    """The task's GPUs; where the driver sees no others than the job's, it numbers these from 0."""
    if not hides_gpus or not all(gpu.isdigit() for gpu in gpus):
        return gpus
    seen = sorted(map(int, of_job))
    return [str(seen.index(int(gpu))) for gpu in gpus]
