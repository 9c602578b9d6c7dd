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
BY_PRIORITY = ("priority", "backfill")  # queue policies


COLUMNS = {
    "i": Column("JOBID", job_ref),
    "r": Column("PARTITION", lambda j: j.spec.partition or NONE),
    "u": Column("USER", lambda j: j.spec.user),
    "Y": Column("PRIORITY", lambda j: j.spec.priority - j.spec.nice),
    "S": Column("SITE", lambda j: j.spec.priority),
    "N": Column("NICE", lambda j: j.spec.nice),
}


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name jobs with --jobs=ID[,ID...].")
    form = by_letters(options.get("format") or (LONG if "long" in options else USUAL), COLUMNS)
    from rm.client import Client

    with Client() as client:
        policy, found = client.status().policies["queue"], client.queue()
    if policy not in BY_PRIORITY:
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
    sys.stdout.writelines(f"{line}\n" for line in form.lines(found))
    return 0
