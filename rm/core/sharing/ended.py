"""What counts in the account of usage of an attempt that has ended: on each of its hosts, what it held there
and what it used of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add
from typing import NamedTuple

from rm.core.model.described import partition_of
from rm.core.model.host import Host
from rm.core.model.job import Job, JobState, Task
from rm.core.model.network.slowed import lost_us
from rm.core.model.used import ALL_TASKS, Used
from rm.core.sharing.resources import resources_of
from rm.core.sharing.waits import by_kind

MIB = 1 << 20
SECOND_US = 1_000_000


class Sums(NamedTuple):
    """Of attempts that ended: how many were the last ones of their jobs (`jobs`), of these how many did not
    complete (`failed`), and how many a requeue followed. `elapsed_us` that they ran, `waited_us` before,
    `slowed_us` that they lost to others on their links; what they held: processor time, memory in MiB
    seconds, GPU time. Of the processor and GPU time that was held, the part that was `watched`, and of that
    the part that was `busy`. `energy_mj`: millijoules of GPUs. What they waited for until they had hosts, by
    the kinds of `rm.core.sharing.waits`. `received_bytes` and `sent_bytes` of the network. `saved_us` that
    interleaving saved them, as estimated."""

    jobs: int = 0
    failed: int = 0
    requeued: int = 0
    elapsed_us: int = 0
    waited_us: int = 0
    slowed_us: int = 0
    cpu_us: int = 0
    cpu_watched_us: int = 0
    cpu_busy_us: int = 0
    mem_mib_s: int = 0
    gpu_us: int = 0
    gpu_watched_us: int = 0
    gpu_busy_us: int = 0
    energy_mj: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    waited_resources_us: int = 0
    waited_priority_us: int = 0
    waited_dependency_us: int = 0
    waited_held_us: int = 0
    waited_begin_us: int = 0
    waited_limits_us: int = 0
    waited_licenses_us: int = 0
    waited_network_us: int = 0
    waited_other_us: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    saved_us: int = 0

    def plus(self, other: Sums) -> Sums:
        return Sums._make(map(add, self, other))


WAIT_KINDS = tuple(
    name[len("waited_") : -len("_us")]
    for name in Sums._fields
    if name.startswith("waited_") and name != "waited_us"
)


class Ended(NamedTuple):
    """An attempt that ran, on one of its hosts. `of_job`: what counts once for it, and not for each host."""

    ended_us: int
    account: str
    user: str
    qos: str
    partition: str
    host: str
    of_job: Sums
    on_host: Sums


def ended_parts(job: Job, hosts: Mapping[str, Host]) -> tuple[Ended, ...]:
    """Of a job whose last task has ended; none when nothing of it ever ran."""
    if job.started_us is None:
        return ()
    ended_us = max(job.started_us, max((t.ended_us or 0 for t in job.tasks), default=0))
    elapsed_us = max(0, ended_us - job.started_us - job.stood_us)
    since_us = max(job.submitted_us, job.begin_us, (job.earlier[-1].ended_us or 0) if job.earlier else 0)
    over = job.ending is not JobState.PENDING
    of_job = Sums(
        jobs=int(over),
        failed=int(over and job.ending not in (None, JobState.COMPLETED)),
        requeued=int(not over),
        elapsed_us=elapsed_us,
        waited_us=max(0, job.started_us - since_us),
        slowed_us=lost_us(job.slowed),
        saved_us=job.saved_us,
        **by_kind(job.waited),
    )
    partition = partition_of(job, hosts) or job.spec.partition
    whole = {line.host: line.used for line in job.used if line.rank == ALL_TASKS}
    found = []
    tasks_on: dict[str, list[Task]] = {}
    for task in job.tasks:
        tasks_on.setdefault(task.host, []).append(task)
    for host, tasks in tasks_on.items():
        held = _held(job, tasks, hosts)
        on_host = _on_host(elapsed_us, held, whole.get(host), hosts.get(host))
        found.append(Ended(ended_us, job.account, job.spec.user, job.qos, partition, host, of_job, on_host))
        of_job = Sums()  # on its first host
    return tuple(found)


def _held(job: Job, tasks: list[Task], hosts: Mapping[str, Host]) -> tuple[int, int, int]:
    """(processors, GPUs, bytes of memory) of the host of these tasks."""
    spec = job.spec
    if spec.exclusive or spec.mem_all:
        all_of = resources_of(spec, tasks, hosts)
        cpus = all_of.cpus if spec.exclusive else spec.cpus_per_task * len(tasks)
        return cpus, all_of.gpus, all_of.mem_bytes
    gpus = len({gpu for t in tasks for gpu in t.gpus})
    mem_bytes = spec.mem_bytes_per_host or spec.mem_bytes_per_task * len(tasks)
    return spec.cpus_per_task * len(tasks), gpus, mem_bytes


def _on_host(elapsed_us: int, held: tuple[int, int, int], used: Used | None, host: Host | None) -> Sums:
    """Of what the host tells no more than it could have done in that time: it may lie."""
    cpus, gpus, mem_bytes = held
    cpu_us, mem_mib_s = cpus * elapsed_us, mem_bytes // MIB * elapsed_us // SECOND_US
    if used is None:
        return Sums(cpu_us=cpu_us, gpu_us=gpus * elapsed_us, mem_mib_s=mem_mib_s)
    most_us = max(cpus, host.cpus if host is not None else 0) * elapsed_us
    watched_us = min(used.gpu_us, gpus * elapsed_us)
    return Sums(
        cpu_us=cpu_us,
        cpu_watched_us=cpu_us,
        cpu_busy_us=min(used.cpu_us, most_us),
        mem_mib_s=mem_mib_s,
        gpu_us=gpus * elapsed_us,
        gpu_watched_us=watched_us,
        gpu_busy_us=min(used.gpu_busy_us, watched_us),
        energy_mj=used.energy_mj,
        read_bytes=used.read_bytes,
        written_bytes=used.written_bytes,
        received_bytes=used.passed[0],
        sent_bytes=used.passed[1],
    )


# -- added up over time

HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US
SPANS_US = (HOUR_US, DAY_US)


class Heap(NamedTuple):
    """What is added up together: a span of time with what ended in it, of an account, user, QOS and
    partition; or of a `host`, whoever used it."""

    span_us: int
    start_us: int
    account: str = ""
    user: str = ""
    qos: str = ""
    partition: str = ""
    host: str = ""


def added_up(parts: Iterable[Ended]) -> dict[Heap, Sums]:
    """In hours and in days, of UTC."""
    found: dict[Heap, Sums] = {}
    for part in parts:
        both = part.of_job.plus(part.on_host)
        for span_us in SPANS_US:
            start_us = part.ended_us - part.ended_us % span_us
            own = Heap(span_us, start_us, part.account, part.user, part.qos, part.partition)
            of_host = Heap(span_us, start_us, host=part.host)
            found[own] = found[own].plus(both) if own in found else both
            found[of_host] = found[of_host].plus(both) if of_host in found else both
    return found
