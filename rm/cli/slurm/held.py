"""What jobs hold, under Slurm's names of trackable resources: processors, MiB of memory, hosts, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rm.cli.slurm.sacct_fields import cpus, nodes
from rm.units import MIB

if TYPE_CHECKING:
    from rm.api.jobs import Job

TRES = ("cpu", "mem", "node", "gres/gpu")  # in Slurm's order


def held(job: Job) -> Mapping[str, int]:
    """By the names in TRES; of a job that waits what it asks for."""
    spec, hosts = job.spec, nodes(job)
    mem_bytes = spec.mem_bytes_per_host * hosts or spec.mem_bytes_per_task * spec.ntasks
    gpus = spec.gpus_per_task * spec.ntasks + spec.gpus_per_host * hosts
    return {"cpu": cpus(job), "mem": mem_bytes // MIB, "node": hosts, "gres/gpu": gpus}
