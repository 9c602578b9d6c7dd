"""`sprio`: what the priorities of waiting jobs are made of."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rm import arrays
from rm.cli.formats import Column, by_letters
from rm.cli.shown import job_ref
from rm.cli.slurm.jobs import NONE
from rm.cli.slurm.words import Options, read
from rm.errors import Conflict, UsageError

OPTIONS = Options(
    taken=("format/o=", "jobs/j=", "long/l", "noheader/h", "partition/p=", "user/u="),
    ignored=("local", "verbose/v"),
    refused=("cluster=", "clusters/M=", "federation", "norm/n", "sibling", "sort/S=", "weights/w"),
    variables={"SPRIO_FORMAT": "format"},
)
USUAL = "%.15i %9r %.10Y %.10S %.10N"
LONG = "%.15i %9r %.8u %.10Y %.10S %.10N"
USUAL_OF_ALL = "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q %.10N"
LONG_OF_ALL = "%.15i %9r %.8u %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q %.10N"
BY_PRIORITY = ("priority", "backfill")  # queue policies
BY_PARTS = "multifactor"


COLUMNS = {
    "i": Column("JOBID", job_ref),
    "r": Column("PARTITION", lambda j: j.spec.partition or NONE),
    "u": Column("USER", lambda j: j.spec.user),
    "Y": Column("PRIORITY", lambda j: j.spec.priority - j.spec.nice),
    "S": Column("SITE", lambda j: j.spec.priority),
    "N": Column("NICE", lambda j: j.spec.nice),
}


def _of_job(column: Column) -> Column:
    return Column(column.header, lambda pair: column.text(pair[0]))


# with the queue policy multifactor: of pairs of a job and its parts
COLUMNS_OF_ALL = {
    **{letter: _of_job(COLUMNS[letter]) for letter in "iru"},
    "Y": Column("PRIORITY", lambda pair: f"{pair[1].sum:.0f}"),
    "S": Column("SITE", lambda pair: f"{pair[1].site:.0f}"),
    "A": Column("AGE", lambda pair: f"{pair[1].age:.0f}"),
    "F": Column("FAIRSHARE", lambda pair: f"{pair[1].fair_share:.0f}"),
    "J": Column("JOBSIZE", lambda pair: f"{pair[1].size:.0f}"),
    "Q": Column("QOS", lambda pair: f"{pair[1].qos:.0f}"),
    "P": Column("PARTITION", lambda pair: f"{pair[1].partition:.0f}"),
    "N": Column("NICE", lambda pair: f"{pair[1].nice:.0f}"),
}  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name jobs with --jobs=ID[,ID...].")
    from rm.client import Client

    with Client() as client:
        policy, found = client.status().policies["queue"], client.queue()
        parts = {one.job: one for one in client.priorities()} if policy == BY_PARTS else {}
    usual, long = (USUAL_OF_ALL, LONG_OF_ALL) if policy == BY_PARTS else (USUAL, LONG)
    columns = COLUMNS_OF_ALL if policy == BY_PARTS else COLUMNS
    form = by_letters(options.get("format") or (long if "long" in options else usual), columns)
    if policy not in (*BY_PRIORITY, BY_PARTS):
        raise Conflict(
            f"sprio does not know what priorities the queue policy {policy} gives.",
            "`rmx why ID` says where a job stands.",
        )
    if users := given.words("user"):
        found = [job for job in found if job.spec.user in users]
    if partitions := given.words("partition"):
        found = [job for job in found if partitions & set(job.spec.partition.split(","))]
    if "jobs" in options:
        ids = {arrays.parse_id(word).job for word in arrays.split_ids(given.all["jobs"])}
        found = [job for job in found if job.id in ids or job.array_job in ids]
    if "noheader" not in options:
        print(form.header())
    shown = [(job, parts[job.id]) for job in found if job.id in parts] if policy == BY_PARTS else found
    sys.stdout.writelines(f"{line}\n" for line in form.lines(shown))
    return 0
