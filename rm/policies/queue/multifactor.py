"""multifactor: by the weighted sum of what speaks for a job, of which fair share is the largest part.

Source: Slurm's multifactor priority plugin: each factor is between 0 and 1, and its weight an option.
Settled here: the job's own priority (`--priority`, Slurm's site factor) and `--nice` count as they are; the
size of a job is its part of the cluster's processors or GPUs, whichever is larger, of an exclusive one at
least its part of the hosts; of several partitions the highest counts. For the fair share a running job counts
at once with what it is likely to use until its end, as with LSF's COMMITTED_RUN_TIME_FACTOR: by what was used
alone a user stays first until jobs that were started have run for a while, and starts too many meanwhile.
What does not fit yet is not overtaken by what would delay it, as under `backfill`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rm.core.model.job import Job, JobState
from rm.core.model.priority_parts import PriorityParts
from rm.core.model.snapshot import Snapshot
from rm.core.sharing.resources import least_of
from rm.policies.queue.backfill import BackfillOptions, BackfillPolicy
from rm.units import DAY_US


@dataclass(frozen=True, slots=True)
class MultifactorOptions:
    age_weight: float = 1_000.0
    fair_share_weight: float = 10_000.0
    size_weight: float = 0.0
    qos_weight: float = 10_000.0
    partition_weight: float = 10_000.0
    age_max_days: float = 7.0  # after which a job's age counts no more than that
    committed_weight: float = 1.0  # of what running jobs will yet use, beside what was used; 0: as Slurm
    depth: int = 4  # as for backfill


class MultifactorPolicy(BackfillPolicy):
    """By priority (highest first), then time of submission, then job id; with reservations."""

    name = "multifactor"

    def __init__(self, options: MultifactorOptions | None = None) -> None:
        self._options = options or MultifactorOptions()
        super().__init__(BackfillOptions(self._options.depth))

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        whole = _whole(snapshot)

        def key(job: Job) -> tuple[float, int, int]:
            return -self._parts(job, snapshot, *whole).sum, job.submitted_us, job.id

        return sorted(pending, key=key)

    @property
    def weights(self) -> PriorityParts:
        """What each part is at most; the job's own priority and its nice count as they are."""
        options = self._options
        return PriorityParts(
            site=1.0,
            age=options.age_weight,
            fair_share=options.fair_share_weight,
            size=options.size_weight,
            qos=options.qos_weight,
            partition=options.partition_weight,
        )

    def parts(self, job: Job, snapshot: Snapshot) -> PriorityParts:
        """What the job's priority is made of now."""
        return self._parts(job, snapshot, *_whole(snapshot))

    def _parts(self, job: Job, snapshot: Snapshot, cpus: int, gpus: int) -> PriorityParts:
        spec, options = job.spec, self._options
        since_us = max(job.submitted_us, job.begin_us)
        until_us = snapshot.now_us
        if job.state is not JobState.PENDING and job.started_us is not None:
            until_us = job.started_us  # a job that runs grows no older
        age = min(1.0, max(0, until_us - since_us) / (options.age_max_days * DAY_US))
        asked = max(
            spec.cpus_per_task * spec.ntasks / max(1, cpus),
            (spec.gpus_per_task * spec.ntasks + spec.gpus_per_host * max(1, spec.hosts_min)) / max(1, gpus),
            least_of(spec).hosts / max(1, len(snapshot.hosts)) if spec.exclusive else 0.0,
        )
        factor = 0.0
        if options.fair_share_weight:
            factor = snapshot.shares.factor(job.account, spec.user, options.committed_weight)
        by_partition = {
            name: options.partition_weight * snapshot.shares.partition_part(name) if name else 0.0
            for name in spec.partition.split(",")
        }
        return PriorityParts(
            site=spec.priority,
            age=options.age_weight * age,
            fair_share=options.fair_share_weight * factor,
            size=options.size_weight * min(1.0, asked),
            qos=options.qos_weight * snapshot.shares.qos_part(job.qos) if job.qos else 0.0,
            partition=max(by_partition.values()),
            partitions=by_partition if len(by_partition) > 1 else {},
            nice=spec.nice,
        )


def _whole(snapshot: Snapshot) -> tuple[int, int]:
    """All processors and GPUs."""
    hosts = snapshot.hosts.values()
    return sum(host.cpus for host in hosts), sum(len(host.gpus) for host in hosts)


POLICY = MultifactorPolicy
OPTIONS = MultifactorOptions
