"""`sstat`: what the scripts and steps of running jobs use so far."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rm.arrays import parse_id, split_ids
from rm.cli.output import note
from rm.cli.shown import job_ref
from rm.cli.slurm.accounting import step_used
from rm.cli.slurm.accounting.sacct import printed, read_fields
from rm.cli.slurm.accounting.sacct_fields import script_hosts
from rm.cli.slurm.words import Options, read
from rm.errors import NotFound, UsageError
from rm.units import fold_hosts, number_of

if TYPE_CHECKING:
    from rm.api.job_steps import JobStep, StepUsed
    from rm.api.jobs import Job
    from rm.client import Client

OPTIONS = Options(
    taken=(
        "allsteps/a", "format/o=", "fields=", "helpformat/e", "jobs/j=", "noheader/n", "parsable/p",
        "parsable2/P",
    ),
    ignored=("noconvert", "verbose/v"),
    refused=("pidformat/i",),
)  # fmt: skip
SCRIPT, BATCH = -1, "batch"


class Line(NamedTuple):
    """What runs of a job: a step, or its script."""

    ref: str
    used: StepUsed | None
    tasks: int
    hosts: str


class Field(NamedTuple):
    """`width` as Slurm prints it: to the left where it is negative."""

    name: str
    width: int
    text: Callable[[Line], object]


WIDE = {"TRESUsageInAve": 14, "TRESUsageInMax": 14, "TRESUsageInMin": 14, "TRESUsageInTot": 14}
# Source: sstat(1) of Slurm 22.05, "--helpformat"; what rm does not measure is empty
NOTHING = """
    AveCPUFreq AvePages AveVMSize ConsumedEnergy ConsumedEnergyRaw MaxPages MaxPagesNode MaxPagesTask
    MaxVMSize MaxVMSizeNode MaxVMSizeTask Pids ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin
    TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMinNode TRESUsageInMinTask TRESUsageOutMaxNode
    TRESUsageOutMaxTask TRESUsageOutMinNode TRESUsageOutMinTask
"""
FIELDS = tuple(sorted(
    (
        Field("JobID", -12, lambda line: line.ref),
        Field("Nodelist", 20, lambda line: line.hosts),
        Field("NTasks", 8, lambda line: line.tasks),
        *(Field(name, WIDE.get(name, 10), text) for name, text in step_used.FIELDS.items()),
        *(Field(name, 10, lambda line: "") for name in NOTHING.split()),
    ),
    key=lambda field: field.name.lower(),
))  # fmt: skip
USUAL = (
    "JobID,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,MaxDiskRead,"
    "MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite"
)


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if "helpformat" in options:
        for start in range(0, len(FIELDS), 4):
            print(" ".join(f"{field.name:<19}" for field in FIELDS[start : start + 4]).rstrip())
        return 0
    form = given.all.get("format") or given.all.get("fields") or USUAL  # several add up
    fields = read_fields(form, FIELDS, "`sstat --helpformat` lists the fields.")
    named = [*split_ids(given.all.get("jobs", "")), *given.operands]
    if not named:
        raise UsageError("You didn't give me any jobs to stat.", "Name them: --jobs=ID[.STEP][,...].")
    from rm.client import Client

    lines: list[Line] = []
    failed = False
    with Client() as client:
        for word in named:
            try:
                lines += _lines(client, word, "allsteps" in options)
            except NotFound as error:
                note(f"error: {error}")
                failed = True
    printed(fields, lines, given, sys.stdout)
    return 1 if failed else 0


def _lines(client: Client, word: str, everything: bool) -> Iterable[Line]:
    """Source: sstat(1), "--jobs": without a step the one with the lowest number that runs, with --allsteps
    all of them. Where none runs it is the script, of which Slurm's says nothing unless it is named."""
    ref, _, step = word.partition(".")
    named = number_of(step)
    if step not in ("", BATCH) and named is None:
        raise UsageError(f"'{word:.80}' is no step.", "Write 42.0 or 42.batch.")
    job = client.job(parse_id(ref))
    now = client.used_now(job.id)
    for host in now.silent:
        note(f"{host} does not tell what job {job_ref(job)} uses: it is missing here.")
    used = {line.step: line.used for line in now.lines}
    recorded = {one.step: one for one in client.job_steps([job.id]) if one.attempt == now.attempt}
    over = {number for number, one in recorded.items() if one.ended_us is not None}
    # a host tells what a step uses as soon as it runs, and that it began a little later
    numbers = sorted(used.keys() - over - {SCRIPT})
    if step == BATCH or (not step and not numbers and SCRIPT in used):
        chosen = [SCRIPT]
    elif named is not None:
        chosen = [named]
    else:
        chosen = numbers if everything else numbers[:1]
    if not chosen or any(number not in used or number in over for number in chosen):
        raise NotFound(f"couldn't get steps for job {word}.", "`sacct` tells of what has ended.")
    return [_line(job, number, used[number], recorded.get(number)) for number in chosen]


def _line(job: Job, number: int, used: StepUsed, step: JobStep | None) -> Line:
    if number == SCRIPT:
        tasks = 1 if job.spec.launch == BATCH else len(job.tasks)
        return Line(f"{job_ref(job)}.{BATCH}", used, tasks, fold_hosts(script_hosts(job)))
    if step is None:
        hosts = {used.cpu_us.most_host, used.cpu_us.least_host} - {""}
        return Line(f"{job_ref(job)}.{number}", used, used.tasks, fold_hosts(sorted(hosts)))
    return Line(f"{job_ref(job)}.{number}", used, step.tasks, step.hosts)
