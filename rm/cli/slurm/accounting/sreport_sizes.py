"""`sreport job SizesByAccount`: the time of jobs by their size, from the jobs that rm keeps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rm.cli.slurm.accounting.held import held
from rm.cli.slurm.accounting.sreport_asked import Asked, Report
from rm.cli.slurm.accounting.sreport_print import Column, Row, Table, chosen, lines
from rm.cli.slurm.accounting.sreport_used import ACCOUNT, CLUSTER, ROOT, children_of
from rm.cli.slurm.jobs import UNFINISHED
from rm.errors import UsageError
from rm.units import DAY_US, HOUR_US, parse_hosts

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.client import Client

USUAL = (50, 250, 500, 1000)
GROUP, GROUP_AND_PART = 13, 20  # widths
INDIVIDUAL = "individual"


class Ran(NamedTuple):
    """A job in the time: its size, and TRES seconds."""

    account: str
    size: int
    seconds: float


class Group(NamedTuple):
    """Sizes from `least` until before `below`; None: all above."""

    header: str
    least: int
    below: int | None

    def has(self, ran: Ran) -> bool:
        return self.least <= ran.size and (self.below is None or ran.size < self.below)


def sizes(client: Client, asked: Asked, table: Table, cluster: str) -> Report:
    if len(asked.tres) > 1:
        raise UsageError(
            "Job report only supports a single --tres type.", "Generate a separate report for each TRES type."
        )
    tres = asked.tres[0]
    if tres == "energy":
        raise UsageError("--tres=energy is not supported.", "A job has no size by what it used.")
    kept = client.jobs(ended=True)
    asked = _where_jobs_are_kept(client, kept, asked)
    ran = [
        Ran(job.account or ROOT, size, seconds * size)
        for job in _jobs(kept, asked)
        if (seconds := _seconds(job, asked)) is not None and (size := held(job)[tres])
    ]
    heaps = _heaps(client, asked, ran)
    groups = _groups(asked.given.get("grouping", ""), "CPUs" if not asked.names_tres else "TRES", ran)
    counted = "printjobcount" in asked.given
    columns = _columns(asked, groups, table)
    whole = sum(_weight(one, counted) for heap in heaps.values() for one in heap)
    rows = [_row(cluster, name, heap, groups, whole, counted) for name, heap in heaps.items() if heap]
    title = [f"Job Sizes {asked.span(asked.since_us, asked.until_us)}"]
    title += [f"TRES type is {tres}"] if asked.names_tres else []
    title.append("Units are in number of jobs ran" if counted else f"Time reported in {table.form.said}")
    plain = table._replace(form=table.form._replace(seconds=1, part=False)) if counted else table
    return Report(title, list(lines(columns, rows, plain)))


def _weight(ran: Ran, counted: bool) -> float:
    return 1 if counted else ran.seconds


def _row(
    cluster: str, name: str, heap: Sequence[Ran], groups: Sequence[Group], whole: float, counted: bool
) -> Row:
    mine = sum(_weight(one, counted) for one in heap)
    times = {
        group.header: (sum(_weight(one, counted) for one in heap if group.has(one)), mine) for group in groups
    }
    part = f"{100 * mine / whole:.2f}%" if whole else "0.00%"
    return Row({"Cluster": cluster, "Account": name, "Part": part}, times)


def _columns(asked: Asked, groups: Sequence[Group], table: Table) -> list[Column]:
    width = GROUP_AND_PART if table.form.part and table.form.seconds else GROUP
    names = chosen(asked.given.get("format") or "cluster,account", (ACCOUNT._replace(width=9), CLUSTER))
    sized = [Column(group.header, group.header, width, True) for group in groups]
    return [*names, *sized, Column("Part", "% of cluster", 12)]


def _groups(text: str, unit: str, ran: Sequence[Ran]) -> list[Group]:
    """By the sizes where they begin, from 0; or one for each size that there is.

    Raises:
        UsageError: these are not numbers that grow.
    """
    if text and INDIVIDUAL.startswith(text.lower()):
        return [Group(f"{size} {unit}", size, size + 1) for size in sorted({one.size for one in ran})]
    words = [word.strip() for word in text.split(",")] if text else [str(size) for size in USUAL]
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 10 for word in words):
        raise UsageError(f"grouping={text:.80} is not supported.", "Write numbers: grouping=50,100.")
    edges = [0, *map(int, words)]
    if any(below <= least for least, below in pairwise(edges)):
        raise UsageError(f"grouping={text:.80} does not grow.", "Write numbers: grouping=50,100.")
    found = [Group(f"{a}-{b - 1} {unit}", a, b) for a, b in pairwise(edges)]
    return [*found, Group(f">= {edges[-1]} {unit}", edges[-1], None)]


def _heaps(client: Client, asked: Asked, ran: Sequence[Ran]) -> Mapping[str, list[Ran]]:
    """The jobs by the account that a row is of: each that has jobs (`flatview`), those below the named ones
    (`acctasparent`), or the named ones with all below them; without a name all jobs are the root's."""
    if "flatview" in asked.given:
        named = asked.words("accounts")
        names = sorted({one.account for one in ran if not named or one.account in named})
        return {name: [one for one in ran if one.account == name] for name in names}
    children = children_of(client.sharing.accounts())
    parents: dict[str, str] = {child: name for name, below in children.items() for child in below}
    tops = asked.words("accounts") or frozenset({ROOT})
    if "acctasparent" in asked.given:
        tops = frozenset(child for name in tops for child in children.get(name, ()))
    found: dict[str, list[Ran]] = {name: [] for name in sorted(tops)}
    for one in ran:
        path = [one.account]
        while path[-1] != ROOT:
            path.append(parents.get(path[-1], ROOT))
        if above := [name for name in path if name in tops]:
            found[above[-1]].append(one)  # the highest of them
    return found


def _where_jobs_are_kept(client: Client, kept: Sequence[Job], asked: Asked) -> Asked:
    """What is asked, from the first whole hour of which no job is forgotten.

    Raises:
        UsageError: that is later than all that is asked.
    """
    status, since_us = client.status(), 0
    settings = status.settings
    if settings.keep_days:
        since_us = int(time.time_ns() // 1000 - settings.keep_days * DAY_US)
    ends_us = [job.ended_us for job in kept if job.ended_us]
    # those of others may be hidden, but are counted
    ended = sum(count for state, count in status.jobs.items() if state not in UNFINISHED)
    if settings.keep_finished and ends_us and ended >= settings.keep_finished:
        since_us = max(since_us, min(ends_us))
    since_us = -(-since_us // HOUR_US) * HOUR_US
    if since_us >= asked.until_us:
        raise UsageError(
            f"rm keeps no jobs of before {datetime.fromtimestamp(since_us / 1e6):%Y-%m-%dT%H:%M:%S}.",
            "`sreport cluster AccountUtilizationByUser` reads sums, which are kept longer.",
        )
    return asked._replace(since_us=max(asked.since_us, since_us))


def _jobs(kept: Sequence[Job], asked: Asked) -> list[Job]:
    jobs = list(kept)
    if users := asked.words("users"):
        jobs = [job for job in jobs if job.spec.user in users]
    if partitions := asked.words("partitions"):
        jobs = [job for job in jobs if job.partition in partitions]
    if numbers := asked.words("jobs"):
        jobs = [job for job in jobs if str(job.id) in numbers or str(job.array_job) in numbers]
    if "nodes" in asked.given:
        hosts = frozenset(parse_hosts(asked.given["nodes"]))
        jobs = [job for job in jobs if not hosts.isdisjoint(job.hosts)]
    return jobs


def _seconds(job: Job, asked: Asked) -> float | None:
    """For how long it ran in the time, without being suspended; None: it did not run then."""
    if job.started_us is None:
        return None
    ended_us = time.time_ns() // 1000 if job.ended_us is None else job.ended_us
    first_us, last_us = max(job.started_us, asked.since_us), min(ended_us, asked.until_us)
    return None if last_us < first_us else max(0, last_us - first_us - job.stood_us) / 1e6
