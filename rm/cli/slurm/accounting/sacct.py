"""`sacct`: the jobs of a time, those that have ended too."""

from __future__ import annotations

import os
import sys

from rm.arrays import JobId, mask, parse_id, split_ids
from rm.cli.output import all_printable, printable
from rm.cli.slurm.accounting.sacct_fields import FIELDS, SUBMIT_LINE, Field, Line, derived_exit
from rm.cli.slurm.accounting.sacct_filters import filters, script_in, script_of
from rm.cli.slurm.accounting.sacct_times import times, within
from rm.cli.slurm.asking import Asking
from rm.cli.slurm.clusters import OPTION, cluster_of
from rm.cli.slurm.jobs import NEVER, SHORT, STATES, rest_of
from rm.cli.slurm.users import named_by
from rm.cli.slurm.words import Given, Options, read
from rm.errors import NotFound, UsageError
from rm.imported_later import re
from rm.submission import place
from rm.units import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re as real_re
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Protocol, TextIO, TypeVar

    from rm.api.job_steps import JobStep
    from rm.api.jobs import Job

    class Named(Protocol):
        """A field."""

        @property
        def name(self) -> str: ...
        @property
        def width(self) -> int: ...

    Shown = TypeVar("Shown", bound=Named)

OPTIONS = Options(
    taken=(
        "accounts/A=", "allocations/X", "allusers/a", "batch-script/B", "brief/b", OPTION,
        "constraints/C=", "delimiter=", "endtime/E=", "format/o=", "helpformat/e", "jobs/j=", "json",
        "long/l", "name=", "ncpus/I=", "nnodes/i=", "nodelist/N=", "noheader/n", "parsable/p", "parsable2/P",
        "partition/r=", "qos/q=", "starttime/S=", "state/s=", "timelimit-max/K=", "timelimit-min/k=", "uid=",
        "units=", "user/u=",
    ),
    ignored=(
        "allclusters/L", "array", "duplicates/D", "federation", "local", "noconvert", "truncate/T",
        "use-local-uid", "verbose/v", "whole-hetjob?",
    ),
    refused=(
        "associations/x=", "completion/c", "env-vars", "file/f=", "flags/F=", "gid/g=", "group=",
        "reason/R=", "wckeys/W=", "yaml",
    ),
    variables={"SACCT_FORMAT": "format"},
    yielding={"format": ("brief", "long")},
)  # fmt: skip
# options whose values add up where they are given several times
LISTS = ("accounts", "format", "name", "partition", "qos", "state", "uid", "user")
USUAL = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
LONG = (
    "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxRSS,AveRSS,AveCPU,NTasks,AllocCPUS,Elapsed,State,ExitCode,"
    "ReqMem,ReqTRES,AllocTRES"
)
ALL = "ALL"
UNITS = "KMGTP"
SIZE = r"(?<![\w.])(\d+(?:\.\d+)?)([KMGTP])(?![\w.])"
SIZED = r"(Max|Ave)(RSS|VMSize|Disk(Read|Write))\Z|ReqMem\Z|(Req|Alloc)TRES\Z|TRESUsage"
STEP = "batch"  # the script
BATCH = "batch"  # of jobs whose script runs once


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    options |= {name: given.all[name] for name in LISTS if given.all.get(name)}
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name jobs with --jobs=ID[,ID...].")
    if "helpformat" in options:
        for start in range(0, len(FIELDS), 4):
            print(" ".join(f"{field.name:<19}" for field in FIELDS[start : start + 4]).rstrip())
        return 0
    cluster_of(given)
    usual = BRIEF if "brief" in options else LONG if "long" in options else USUAL
    fields = read_fields(options.get("format") or usual, FIELDS, "`sacct --helpformat` lists the fields.")
    if "batch-script" in options and "jobs" not in options:
        raise UsageError("--batch-script needs --jobs.", "Name the jobs: sacct -B -j 42.")
    jobs = _jobs(given)
    if "batch-script" in options:
        of_arrays = _scripts_of_arrays(jobs)
        sys.stdout.writelines(script_of(job, of_arrays) for job in jobs)
        return 0
    names = {field.name for field, _ in fields}
    typed = _lines_typed(jobs) if SUBMIT_LINE in names else {}
    named = [(_id(word), word.partition(".")[2]) for word in split_ids(given.all.get("jobs", ""))]
    wants = "allocations" not in options or any(step for _, step in named) or "DerivedExitCode" in names
    steps = steps_of(jobs) if wants else {}
    lines = [
        line
        for job in jobs
        for line in _lines(
            job, steps.get(job.id, ()), _steps_named(job, named), "allocations" in options, typed
        )
    ]
    if "json" in options:
        import json

        from rm.cli.slurm.accounting.sacct_json import document

        print(json.dumps(document(lines)))
        return 0
    if unit := options.get("units", ""):
        fields = [(in_unit(field, unit), width) for field, width in fields]
    printed(fields, lines, given, sys.stdout)
    return 0


def read_fields(text: str, known: Sequence[Shown], hint: str) -> list[tuple[Shown, int]]:
    """`JobID%20,State` to fields with their widths.

    Raises:
        UsageError: there is no such field; `hint` says where they are listed.
    """
    found = []
    if text.strip().upper() == ALL:
        return [(field, field.width) for field in known]
    by_name = {field.name.lower(): field for field in known}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, width = word.partition("%")
        field = by_name.get(name.lower())
        if field is None or (width and not re.match(r"-?\d{1,4}\Z", width)):
            raise UsageError(f'Invalid field requested: "{word}"', hint)
        found.append((field, int(width) if width else field.width))
    return found


def in_unit(field: Field, unit: str) -> Field:
    """The field with its sizes in this unit, with two decimals where they are not whole.

    Raises:
        UsageError: there is no such unit.
    """
    at = UNITS.find(unit.upper())
    if len(unit) != 1 or at < 0:
        raise UsageError(f"--units is '{unit[:20]}'.", f"Write one of {', '.join(UNITS)}.")

    def written(size: real_re.Match[str]) -> str:
        value = float(size[1]) * 1024.0 ** (UNITS.index(size[2]) - at)
        return f"{value:.0f}{unit.upper()}" if value == int(value) else f"{value:.2f}{unit.upper()}"

    def text(line: Line) -> str:
        return re.sub(SIZE, written, str(field.text(line)))

    return field._replace(text=text) if re.match(SIZED, field.name) else field


def printed(fields: Sequence[tuple[Any, int]], lines: Iterable[Any], given: Given, out: TextIO) -> None:
    """As a table, or parsable, by the options of `sacct` and `sstat`."""
    options, header = given.options, "noheader" not in given.options
    if "parsable" in options or "parsable2" in options:
        between = options.get("delimiter", "|")
        end = between if "parsable" in options and "parsable2" not in options else ""
        if header:
            out.write(between.join(field.name for field, _ in fields) + end + "\n")
        for line in lines:
            cells = [str(field.text(line)) for field, _ in fields]
            out.write(between.join(all_printable(cells)) + end + "\n")
        return
    if header:
        out.write("".join(f"{_cell(field.name, width)} " for field, width in fields) + "\n")
        out.write("".join(f"{'-' * abs(width)} " for _, width in fields) + "\n")
    for line in lines:
        out.write(
            printable("".join(f"{_cell(str(field.text(line)), width)} " for field, width in fields)) + "\n"
        )


def _cell(text: str, width: int) -> str:
    """What is longer is cut, and ends in a plus."""
    most = abs(width)
    shown = text if len(text) <= most else f"{text[: most - 1]}+"
    return shown.ljust(most) if width < 0 else shown.rjust(most)


def steps_of(jobs: Iterable[Job]) -> dict[int, list[JobStep]]:
    """What `srun` ran of each job's last attempt: only scripts that run once have steps."""
    attempts = {job.id: job.attempt for job in jobs if job.spec.launch == BATCH and job.attempt}
    found: dict[int, list[JobStep]] = {}
    if attempts:
        with Asking() as client:
            for step in client.job_steps(list(attempts)):
                if step.attempt == attempts[step.job]:
                    found.setdefault(step.job, []).append(step)
    return found


def _steps_named(job: Job, named: Sequence[tuple[JobId, str]]) -> frozenset[str]:
    """Those of the job, of ids with the step behind each; none if the job is meant as a whole."""
    task = job.array_task
    steps = frozenset(
        step
        for one, step in named
        if one.job == job.id
        or (one.job == job.array_job and task is not None and (not one.tasks or mask(one.tasks) >> task & 1))
    )
    return frozenset() if "" in steps else steps


def _lines(
    job: Job, steps: Sequence[JobStep], named: frozenset[str], alone: bool, typed: Mapping[int, str]
) -> Iterator[Line]:
    """The job, once it has started its script as a step, and what `srun` ran; or the steps that are named.
    `alone`: nothing but the job."""
    if not named:
        yield Line(job, derived=derived_exit(job, steps), typed=typed.get(job.array_job or job.id, ""))
    if named or not alone:
        if (STEP in named or not named) and job.started_us is not None:
            yield Line(job, STEP)
        for step in steps:
            if str(step.step) in named or not named:
                yield Line(job, str(step.step), step)


def _jobs(given: Given) -> list[Job]:
    options = given.options
    ids = [_id(word) for word in split_ids(given.all.get("jobs", ""))]
    wanted = _states(given)
    with Asking() as client:
        if ids:
            found: Sequence[Job] = _named(client, ids)
        else:
            mine = "allusers" not in options and not _users(given) and not place.here.is_root()
            found = client.jobs(ended=True, mine=mine)
    tests: list[Callable[[Job], bool]] = []
    if users := _users(given):
        tests.append(lambda job: job.spec.user in users)
    if names := given.words("name"):
        tests.append(lambda job: job.spec.name in names)
    if accounts := given.words("accounts"):
        tests.append(lambda job: job.account in accounts)
    if qos := given.words("qos"):
        tests.append(lambda job: job.qos in qos)
    if partitions := given.words("partition"):
        tests.append(lambda job: not partitions.isdisjoint(job.spec.partition.split(",")))
    if "nodelist" in options:
        hosts = frozenset(parse_hosts(options["nodelist"]))
        tests.append(lambda job: not hosts.isdisjoint(job.hosts))
    tests += filters(options)
    tests.append(within(wanted, *times(given, bool(ids))))
    # an array of which nothing is left is its elements
    tests.append(lambda job: job.array is None or bool(job.array.waiting or job.array.dropped))
    chosen = [job for job in map(rest_of, found) if all(test(job) for test in tests)]
    return sorted(chosen, key=lambda job: (job.array_job or job.id, job.array is not None, job.id))


def _id(word: str) -> JobId:
    return parse_id(word.partition(".")[0])


def _named(client: Asking, ids: Sequence[JobId]) -> list[Job]:
    """By their ids; one that is not known is no error, as in Slurm."""
    found: dict[int, Job] = {}
    arrays: dict[int, int | None] = {}  # None: all elements
    for one in ids:
        try:
            first = client.job(JobId(one.job))
        except NotFound:
            continue
        if not (one.tasks and first.array is not None):  # who names elements does not mean those that wait
            found[first.id] = first
        if first.array is not None:
            before = arrays.get(one.job, 0)
            arrays[one.job] = None if before is None or not one.tasks else before | mask(one.tasks)
    if arrays:
        for job in client.jobs(ended=True):
            chosen = arrays.get(job.array_job, 0)
            if job.array_job in arrays and (chosen is None or chosen >> (job.array_task or 0) & 1):
                found[job.id] = job
    return [found[job_id] for job_id in sorted(found)]


def _scripts_of_arrays(jobs: Sequence[Job]) -> dict[int, str]:
    """Of each array that has elements among the jobs: lists of jobs come without scripts."""
    found = {job.id: script_in(job) for job in jobs if job.array is not None}
    unknown = {job.array_job for job in jobs if job.array_job is not None and not script_in(job)} - set(found)
    if unknown:
        from contextlib import suppress

        with Asking() as client:
            for array in sorted(unknown):
                with suppress(NotFound):  # it was forgotten just now
                    found[array] = script_in(client.job(JobId(array)))
    return found


def _lines_typed(jobs: Iterable[Job]) -> dict[int, str]:
    """By the ids of jobs, and of the arrays of elements: what was typed. Lists of jobs come without it, and
    for others' jobs it is told to administrators alone."""
    from contextlib import suppress

    found: dict[int, str] = {}
    with Asking() as client:
        me = client.client.accounts.me()
        for job in jobs:
            first = job.array_job or job.id
            if first not in found and (me.role == "admin" or me.user == job.spec.user):
                with suppress(NotFound):  # it was forgotten just now
                    line = getattr(job.spec, "submit_line", None)
                    line = line if isinstance(line, str) else client.job(JobId(first)).spec.submit_line
                    found[first] = line if isinstance(line, str) else ""  # it is another user's
    return found


def _users(given: Given) -> frozenset[str]:
    if given.names_nothing(("user",)):
        raise NotFound("Invalid user id: the name is empty")
    names = set()
    for word in given.words("user") | given.words("uid"):
        name = named_by(word)
        if name is None:
            raise NotFound(f"Invalid user id: {word}")
        names.add(name)
    return frozenset(names)


def _states(given: Given) -> frozenset[str]:
    words = {word.upper() for word in given.words("state")}
    for word in words:
        if word not in SHORT and word not in STATES and word not in NEVER:
            raise UsageError(f"Invalid state: {word}.", f"Valid states include: {','.join(STATES)}")
    return frozenset(SHORT.get(word, word) for word in words)
