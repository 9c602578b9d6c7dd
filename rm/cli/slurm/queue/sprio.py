"""`sprio`: what the priorities of waiting jobs are made of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rm import arrays
from rm.api.reasons import Priority
from rm.cli.formats import Column, by_letters
from rm.cli.shown import job_ref
from rm.cli.slurm.clusters import ALIAS, OPTION, VARIABLES, cluster_of
from rm.cli.slurm.jobs import NONE
from rm.cli.slurm.words import Given, Options, read
from rm.errors import Conflict, UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.api.reasons import PriorityWeights

OPTIONS = Options(
    taken=(
        OPTION, ALIAS,
        "format/o=", "jobs/j=", "long/l", "noheader/h", "norm/n", "partition/p=", "sort/S=", "user/u=",
        "weights/w",
    ),
    ignored=("local", "verbose/v"),
    refused=("federation", "sibling"),
    variables={**VARIABLES, "SPRIO_FORMAT": "format"},
)  # fmt: skip
BY_PRIORITY = ("priority", "backfill")  # queue policies
BY_PARTS = "multifactor"
WAITS = frozenset({"BeginTime", "Dependency", "DependencyNeverSatisfied"})  # not for its turn
WHOLE = 1 << 32  # of which --norm shows a priority as its part, as Slurm does


class Row(NamedTuple):
    """A job that waits, in one of its partitions, what its priority is made of there, and what each part is
    at most. With `job` None it stands for the weights themselves."""

    job: Job | None
    partition: str
    parts: Priority
    weights: PriorityWeights


def _of_job(text: Callable[[Job], Any]) -> Callable[[Row], Any]:
    return lambda row: "" if row.job is None else text(row.job)


def _sum(row: Row) -> float:
    return row.parts.sum


def _part(header: str, name: str) -> Column:
    """What the part is in the sum."""

    def value(row: Row) -> float:
        return float(getattr(row.weights if row.job is None else row.parts, name))

    return Column(header, lambda row: f"{value(row):.0f}", order=value)


def _norm(header: str, name: str) -> Column:
    """The factor, between 0 and 1; of the weights as it is."""

    def value(row: Row) -> float:
        weight = float(getattr(row.weights, name))
        if row.job is None:
            return weight
        return getattr(row.parts, name) / weight if weight else 0.0

    return Column(header, lambda row: f"{value(row):.{0 if row.job is None else 7}f}", order=value)


COLUMNS = {
    "i": Column("JOBID", lambda row: "Weights" if row.job is None else job_ref(row.job),
                order=lambda row: row.job.id),
    "r": Column("PARTITION", lambda row: row.partition),
    "u": Column("USER", _of_job(lambda job: job.spec.user)),
    "Y": Column("PRIORITY", lambda row: "" if row.job is None else f"{row.parts.sum:.0f}", order=_sum),
    "y": Column("PRIORITY", lambda row: "" if row.job is None else f"{_sum(row) / WHOLE:.8f}", order=_sum),
    "S": _part("SITE", "site"),
    "A": _part("AGE", "age"),
    "a": _norm("AGE", "age"),
    "B": Column("ASSOC", lambda _: "0"),  # rm weighs no association
    "b": Column("ASSOC", lambda row: "0" if row.job is None else f"{0:.7f}"),
    "F": _part("FAIRSHARE", "fair_share"),
    "f": _norm("FAIRSHARE", "fair_share"),
    "J": _part("JOBSIZE", "size"),
    "j": _norm("JOBSIZE", "size"),
    "P": _part("PARTITION", "partition"),
    "p": _norm("PARTITION", "partition"),
    "Q": _part("QOS", "qos"),
    "q": _norm("QOS", "qos"),
    "N": Column("NICE", _of_job(lambda job: job.spec.nice)),
    "T": Column("TRES", lambda row: NONE if row.job is None else ""),  # nor resources
    "t": Column("TRES", lambda _: ""),
}  # fmt: skip
WEIGHED = {"a": "age", "b": "", "f": "fair_share", "j": "size", "p": "partition", "q": "qos"}


def _form(options: Mapping[str, str], weights: PriorityWeights) -> str:
    """The format, where none is asked for: as Slurm's, with the parts that have a weight, or all of them."""
    long, norm = "long" in options, "norm" in options
    user = " %.8u" if long or "user" in options else ""
    form = f"%.15i %9r{user}" + (" %10y" if norm else " %.10Y %.10S")
    for letter, name in WEIGHED.items():
        if long or (name and getattr(weights, name)):
            form += f" %10{letter}" if norm else f" %.10{letter.upper()}"
    if long:
        form += " %20t" if norm else " %.11N %.20T"
    return form


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name jobs with --jobs=ID[,ID...].")
    cluster_of(given)
    from rm.client import Client

    with Client() as client:
        policy, weights = client.status().policies["queue"], client.priority_weights()
        found = client.queue() if "weights" not in options else []
        parts = {one.job: one for one in client.priorities()} if policy == BY_PARTS else {}
    form = by_letters(options.get("format") or _form(options, weights), COLUMNS)
    if policy not in (*BY_PRIORITY, BY_PARTS):
        raise Conflict(
            f"sprio does not know what priorities the queue policy {policy} gives.",
            "`rmx why ID` says where a job stands.",
        )
    named = given.words("partition")
    rows = [
        Row(job, partition or NONE, _in(partition, one), weights)
        for job in _chosen(found, given)
        if (one := _parts_of(job, policy, parts))
        for partition in job.spec.partition.split(",")
        if not named or partition in named
    ]
    if "weights" in options:
        rows = [Row(None, "", NO_PARTS, weights)]
    else:
        rows = _sorted(rows, options.get("sort", "i"), COLUMNS)
    if not rows and ("jobs" in options or "user" in options):
        print("Unable to find jobs matching user/id(s) specified")
        return 0
    if "noheader" not in options:
        print(form.header())
    sys.stdout.writelines(f"{line}\n" for line in form.lines(rows))
    return 0


NO_PARTS = Priority(job=0, sum=0, site=0, age=0, fair_share=0, size=0, nice=0)


def _parts_of(job: Job, policy: str, known: Mapping[int, Priority]) -> Priority | None:
    """None: the job has begun since the queue was asked for."""
    if policy == BY_PARTS:
        return known.get(job.id)
    site, nice = job.spec.priority, job.spec.nice
    return Priority(job=job.id, sum=site - nice, site=site, age=0, fair_share=0, size=0, nice=nice)


def _in(partition: str, parts: Priority) -> Priority:
    """The priority of a job in one of its partitions."""
    if partition not in parts.partitions:
        return parts
    there = parts.partitions[partition]
    return msgspec.structs.replace(parts, partition=there, sum=parts.sum - parts.partition + there)


def _chosen(found: Sequence[Job], given: Given) -> list[Job]:
    """Of those that wait for nothing but their turn, as in Slurm."""
    chosen = [job for job in found if not job.held and (job.reason is None or job.reason.code not in WAITS)]
    if users := given.words("user"):
        chosen = [job for job in chosen if job.spec.user in users]
    if "jobs" in given.options:
        ids = {arrays.parse_id(word).job for word in arrays.split_ids(given.all["jobs"])}
        chosen = [job for job in chosen if job.id in ids or job.array_job in ids]
    return chosen


def _sorted(rows: list[Row], by: str, columns: Mapping[str, Column]) -> list[Row]:
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        column = columns.get(word.lstrip("+-"))
        if column is None:
            raise UsageError(f"Invalid sort specification: {word}.", "Write letters: u,r,-Y.")
        rows = sorted(rows, key=column.order or column.text, reverse=word.startswith("-"))
    return rows
