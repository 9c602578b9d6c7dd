"""What the tasks of a step find in their environment of the step as a whole."""

import random

from rm_step_plan import folded, folded_hosts

FIRST_PORT, PORTS = 20_000, 12_000


def step_environment(created, environ, values):
    parts = created["parts"]
    hosts = folded_hosts([part["host"] for part in parts])
    tasks = folded([len(part["ranks"]) for part in parts])
    count = str(sum(len(part["ranks"]) for part in parts))
    number, hosts_count = str(created["step"]), str(len(parts))
    found = {
        "SLURM_STEP_ID": number, "SLURM_STEPID": number,
        "SLURM_STEP_NODELIST": hosts,
        "SLURM_STEP_NUM_NODES": hosts_count, "SLURM_NNODES": hosts_count, "SLURM_STEP_NUM_TASKS": count,
        "SLURM_NTASKS": count, "SLURM_NPROCS": count, "WORLD_SIZE": count,
        "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_TASKS_PER_NODE": tasks,
    }  # fmt: skip
    if values.get("cpus-per-task"):
        found["SLURM_CPUS_PER_TASK"] = values["cpus-per-task"]
    if values.get("job-name"):
        found["SLURM_JOB_NAME"] = values["job-name"]
    if values.get("distribution"):
        found["SLURM_DISTRIBUTION"], _, plane = values["distribution"].partition("=")
        if plane:
            found["SLURM_DIST_PLANESIZE"] = plane
    # where this srun runs: steps that begin elsewhere than on the job's first host are on their own hosts
    here = {part["host"]: part["address"] for part in parts}.get(environ.get("SLURMD_NODENAME"))
    found["SLURM_LAUNCH_NODE_IPADDR"] = found["SLURM_SRUN_COMM_HOST"] = here or created["job_address"]
    counts = {len(part["ranks"]) for part in parts}
    if len(counts) == 1:
        found["SLURM_NTASKS_PER_NODE"] = str(counts.pop())
    # where the tasks meet: as the script wants it, or where this step's rank 0 is, apart from other steps'
    if environ.get("MASTER_ADDR") == created["job_address"]:
        found["MASTER_ADDR"] = next(part["address"] for part in parts if 0 in part["ranks"])
    if environ.get("MASTER_PORT") == str(created["job_port"]) and created["step"] > 0:
        found["MASTER_PORT"] = str(FIRST_PORT + random.randrange(PORTS))
    return found
