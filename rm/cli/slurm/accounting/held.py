"""What jobs hold, under Slurm's names of trackable resources: processors, MiB of memory, hosts, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rm.cli.slurm.accounting.sacct_fields import cpus, nodes
from rm.cli.slurm.jobs import gpus_of, mem_bytes_of
from rm.units import MIB

if TYPE_CHECKING:
    from rm.api.jobs import Job

TRES = ("cpu", "mem", "node", "gres/gpu")  # in Slurm's order


def held(job: Job) -> Mapping[str, int]:
    """By the names in TRES; of a job that waits what it asks for."""
    spec, hosts = job.spec, nodes(job)
    mem_mib, gpus = mem_bytes_of(spec, hosts) // MIB, gpus_of(spec, hosts)
    return {"cpu": cpus(job), "mem": mem_mib, "node": hosts, "gres/gpu": gpus}
