"""What a job needs of the hosts that it is placed on: all that placement may read of a job.

Two jobs of equal demand fit or fail together, so that the one need not be tried after the other was
refused (`rm.core.scheduling.blocked`). A need that is not here decides nothing about a placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rm.core.model.asked.traffic import TrafficProfile

PRIORITY_HIGH = 100


class Shape(NamedTuple):
    """What one task of a job asks of its host, and the job once of each of its hosts (`_per_host`): jobs of
    one shape pass the same filters. Of `gpus_per_task` and `gpus_per_host` one is 0.

    `features` are alternatives, the first choice first: what all of its hosts have, without brackets, "" for
    nothing; () as well. The other fields are JobSpec's. A tuple: a pass compares the shapes of 10,000 jobs.
    """

    cpus_per_task: int
    mem_bytes_per_task: int
    mem_bytes_per_host: int
    mem_all: bool
    gpus_per_task: int
    gpus_per_host: int
    gpu_bind: str
    ntasks_per_gpu: int
    gpu_type: str
    gpu_mem_bytes: int
    tasks_per_host: int
    distribution: str
    partitions: tuple[str, ...]
    zone: str
    hosts_only: tuple[str, ...]
    hosts_excluded: tuple[str, ...]
    exclusive: bool
    features: tuple[str, ...]
    container: bool = False  # its tasks need a runtime of containers on their host
    foreign: tuple[str, ...] = ()  # hosts that it may not share: jobs of other users stand against it there
    closed: tuple[tuple[str, str], ...] = ()  # hosts that reservations keep from it, and why, by host

    @property
    def least_gpus(self) -> int:
        """That a host must have for a single task."""
        return self.gpus_per_task or self.gpus_per_host

    @property
    def takes_all_gpus(self) -> bool:
        """Whole hosts come with their GPUs, for all tasks there, unless the job says how many it wants.
        Source: sbatch(1) of Slurm 22.05, --exclusive."""
        return self.exclusive and not self.least_gpus

    @property
    def least_mem_bytes(self) -> int:
        return self.mem_bytes_per_task + self.mem_bytes_per_host

    @property
    def filters(self) -> Shape:
        """The same without quantities: which hosts it may have at all."""
        return self._replace(
            cpus_per_task=0, mem_bytes_per_task=0, mem_bytes_per_host=0, gpus_per_task=0, gpus_per_host=0,
            ntasks_per_gpu=0, gpu_mem_bytes=0, tasks_per_host=0,
        )  # fmt: skip

    def gpus_for(self, tasks: int) -> int:
        """GPUs of a host with this many tasks of the job."""
        return self.gpus_per_host or self.gpus_per_task * tasks


class Demand(NamedTuple):
    """The shape of a job's tasks, how many they are, and what is known of their traffic.

    `traffic` is declared, or measured on an earlier run; `declared_bps` the peak rate that the user
    declared, 0 = none. `avoid` are hosts that failed to launch the job: they are taken only when there is
    no other way. `licenses`: how many of each, of the cluster's. `switches`: it insists on hosts of
    so few racks, 0 = it takes any. `kinds`: features that some of its hosts must have, and how many of them.
    The other fields are JobSpec's. A tuple, as Shape is.
    """

    shape: Shape
    ntasks: int
    hosts_min: int
    hosts_max: int
    priority: int
    low_comm: bool
    traffic: TrafficProfile | None
    declared_bps: int
    avoid: tuple[str, ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()
    user: str = ""
    exclusive_user: bool = False
    switches: int = 0
    kinds: tuple[tuple[str, int], ...] = ()

    @property
    def is_high(self) -> bool:
        """Metronome's high class: never paused, never injected."""
        return self.priority >= PRIORITY_HIGH

    @property
    def gpus(self) -> int:
        """GPUs of the whole job, at least; of one without GPUs its tasks."""
        if self.shape.gpus_per_host:
            return self.shape.gpus_per_host * (self.hosts_min or 1)
        return self.ntasks * (self.shape.gpus_per_task or 1)

    def without(self, hosts: Iterable[str]) -> Demand:
        """As if the user had excluded these hosts too."""
        excluded = (*self.shape.hosts_excluded, *sorted(hosts))
        return self._replace(shape=self.shape._replace(hosts_excluded=excluded))

    def apart_from(self, foreign: Iterable[str]) -> Demand:
        """Without the hosts on which jobs of other users stand against it now."""
        return self._replace(shape=self.shape._replace(foreign=tuple(sorted(foreign))))

    def kept_from(self, closed: tuple[tuple[str, str], ...]) -> Demand:
        """Without the hosts that reservations keep from the job now."""
        return self._replace(shape=self.shape._replace(closed=closed))

    def avoiding(self) -> Demand:
        """Without the hosts that failed to launch the job."""
        return self.without(self.avoid)._replace(avoid=())

    def alternatives(self) -> list[Demand]:
        """For each partition that the job may run in, and each kind of hosts, the first choice first: its
        hosts are all of one."""
        partitions, features = self.shape.partitions, self.shape.features
        if len(partitions) < 2 and len(features) < 2:
            return [self]
        return [
            self._replace(shape=self.shape._replace(partitions=partition, features=feature))
            for partition in _each(partitions)
            for feature in _each(features)
        ]


def _each(choices: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Each of the choices by itself; where there is none, that."""
    return [(one,) for one in choices] or [()]
