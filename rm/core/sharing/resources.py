"""What a job has of the cluster: the measure of usage and of limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rm.core.model.host import Host
from rm.core.model.job import JobSpec, Task, TaskPlacement
from rm.units import GIB


class Resources(NamedTuple):
    """Of one job, or of several together (`running`)."""

    running: int = 0
    cpus: int = 0
    gpus: int = 0
    hosts: int = 0
    mem_bytes: int = 0

    def plus(self, other: Resources) -> Resources:
        running, cpus, gpus, hosts, mem_bytes = other
        return Resources(
            self.running + running, self.cpus + cpus, self.gpus + gpus, self.hosts + hosts,
            self.mem_bytes + mem_bytes,
        )  # fmt: skip

    def minus(self, other: Resources) -> Resources:
        return Resources(*(mine - less for mine, less in zip(self, other, strict=True)))


NOTHING = Resources()


def resources_of(
    spec: JobSpec, tasks: Iterable[Task | TaskPlacement], hosts: Mapping[str, Host]
) -> Resources:
    """Of a job that is placed so; an exclusive one has its hosts whole."""
    names = {task.host for task in tasks}
    gpus = len({(task.host, gpu) for task in tasks for gpu in task.gpus})
    cpus = spec.cpus_per_task * spec.ntasks
    mem_bytes = spec.mem_bytes_per_task * spec.ntasks + spec.mem_bytes_per_host * len(names)
    if spec.exclusive or spec.mem_all:
        known = [hosts[name] for name in names if name in hosts]
        mem_bytes = sum(host.mem_bytes for host in known)
        if spec.exclusive:
            gpus, cpus = sum(len(host.gpus) for host in known), sum(host.cpus for host in known)
    return Resources(1, cpus, gpus, len(names), mem_bytes)


def at_once(has: Resources, measure: str) -> float:
    """How much that is of a measure of what is in use at the same time."""
    if measure == "mem_gib":
        return has.mem_bytes / GIB
    count: int = getattr(has, measure)
    return count


def least_of(spec: JobSpec) -> Resources:
    """What a job has at least, wherever it is placed."""
    hosts = max(spec.hosts_min, -(-spec.ntasks // spec.tasks_per_host) if spec.tasks_per_host else 1)
    gpus = spec.gpus_per_host * hosts if spec.gpus_per_host else spec.gpus_per_task * spec.ntasks
    mem_bytes = spec.mem_bytes_per_task * spec.ntasks + spec.mem_bytes_per_host * hosts
    return Resources(1, spec.cpus_per_task * spec.ntasks, gpus, hosts, mem_bytes)
