"""`squeue`: the jobs that have not ended, one a line."""

from __future__ import annotations

import os
import sys
import time

from rm.api.job_rows import JobRow
from rm.cli.array_elements import tasks_of
from rm.cli.formats import Format, by_letters, by_names
from rm.cli.output import note
from rm.cli.slurm.clusters import ALIAS, OPTION, VARIABLES, cluster_of, say_cluster
from rm.cli.slurm.jobs import ENDED, NEVER, NONE, SHORT, STATES, expect, rank, rows, whole
from rm.cli.slurm.queue.squeue_columns import COLUMNS, NAMED
from rm.cli.slurm.queue.squeue_sort import letter_of, sorted_by, sorting
from rm.cli.slurm.users import named_by
from rm.cli.slurm.words import Given, Options, read
from rm.errors import NotFound, UsageError
from rm.units import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

OPTIONS = Options(
    taken=(
        "account/A=", "array/r", OPTION, ALIAS, "Format/O=", "format/o=", "iterate/i=",
        "job/j?", "jobs?", "json", "licenses/L=", "long/l", "me", "name/n=", "nodelist/w=", "noheader/h",
        "partition/p=", "qos/q=", "reservation/R=", "sort/S=", "start", "states/t=", "step/s?", "steps?",
        "user/u=", "users=",
    ),
    ignored=("all/a", "array-unique", "hide", "local", "noconvert", "priority/P", "verbose/v"),
    refused=("federation", "sibling", "yaml"),
    variables={
        **VARIABLES,
        "SQUEUE_ACCOUNT": "account", "SQUEUE_QOS": "qos", "SQUEUE_ARRAY": "array",
        "SQUEUE_FORMAT": "format", "SQUEUE_FORMAT2": "Format", "SQUEUE_LICENSES": "licenses",
        "SQUEUE_NAMES": "name", "SQUEUE_PARTITION": "partition", "SQUEUE_SORT": "sort",
        "SQUEUE_STATES": "states", "SQUEUE_USERS": "user",
    },
    yielding={
        "format": ("Format", "long", "start", "step", "steps"),
        "Format": ("format", "long", "start", "step", "steps"),
    },
)  # fmt: skip
FILTERS = ("account", "licenses", "name", "nodelist", "partition", "qos", "reservation", "states", "user")
_NO_JOB = frozenset({"--job=", "--jobs="})
_ALIASES = (("jobs", "job"), ("users", "user"), ("step", "steps"))
USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
WHOLE = ("json", "licenses", "reservation")  # for which a row says too little
SORT, SORT_START = "P,t,-Q", "S"
RANK = "PRIORITY"  # the header of columns of the priority that a job is ordered by


def run(words: Sequence[str]) -> int:
    given = _aliases(read(words, OPTIONS, os.environ), words)
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name jobs with --jobs=ID[,ID...].")
    if seconds := given.options.pop("iterate", ""):
        from rm.cli.slurm.again import again_and_again

        return again_and_again(seconds, lambda: _list(given))
    return _list(given)


def _list(given: Given) -> int:
    given.one_format()
    (cluster_of if "json" in given.options else say_cluster)(given)
    _check_users(given)
    if "steps" in given.options:
        from rm.cli.slurm.queue import squeue_steps

        running = whole(state=squeue_steps.STATES, mine="me" in given.options)
        running = [] if given.names_nothing(FILTERS) else running
        sys.stdout.writelines(f"{line}\n" for line in squeue_steps.lines(given, running))
        return 0
    form, options = _format(given), given.options
    sort = options.get("sort") or (SORT_START if "start" in options else "")
    sorts_by = {COLUMNS[letter_of(word)] for word in sorting(sort, COLUMNS)}
    wanted = _states(given)
    # the cancelled rest of an array is in the state of the array, where whole jobs are asked for
    states = "" if "CANCELLED" in wanted else ",".join(sorted(wanted & frozenset(STATES)))
    asked: dict[str, Any] = {"state": states, "mine": "me" in options}
    named = {"user": given.words("user"), "name": given.words("name")}
    asked |= {what: next(iter(found)) for what, found in named.items() if len(found) == 1}
    jobs = options.get("job")
    if jobs:
        asked["state"] = ""  # one that exists, and is in another state, is no error
    needs_whole = any(column.whole for column in (*form.columns, *sorts_by))
    needs_whole = needs_whole or any(name in options for name in WHOLE)
    listed: Sequence[Any] = whole(**asked) if needs_whole else rows(**asked)
    found = _chosen(listed, given, wanted)
    rank_first = "json" in options or any(column.header == RANK for column in sorts_by)
    if found and rank_first:
        rank(found)
    if "start" in options and found:
        expect(found)
    if "json" in options:
        import json

        from rm.cli.slurm.queue.squeue_json import document

        print(json.dumps(document(found)))
        return 0
    found = sorted_by(found, sort or SORT, COLUMNS)
    shows = any(column.header == RANK for column in form.columns)
    if found and shows and not rank_first:  # the usual order is the same whatever is shown
        rank(found)
    if "long" in options and "noheader" not in options:
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if "noheader" not in options:
        print(form.header())
    sys.stdout.writelines(f"{line}\n" for line in form.lines(found))
    return 0


def _aliases(given: Given, words: Sequence[str]) -> Given:
    for alias, name in _ALIASES:
        if alias in given.options:
            given.options[name] = given.options[alias]
    if given.options.get("job") == "" and given.operands:  # as Slurm reads `-j 42`
        given.options["job"] = given.operands.pop(0)
    elif given.options.get("job") == "" and _NO_JOB.isdisjoint(words):
        del given.options["job"]  # the option alone lists all, and `-j ""` none
    if given.options.get("steps") == "" and given.operands:
        given.options["steps"] = given.operands.pop(0)
    return given


def _check_users(given: Given) -> None:
    """Names for user ids; as in Slurm, who does not exist is said, and has no jobs."""
    names = sorted(given.words("user"))
    if not names:
        return
    found = []
    for word in names:
        name = named_by(word)
        found.append(word if name is None else name)
        if name is None:
            note(f"error: Invalid user: {word}")
    given.options["user"] = ",".join(found)


def _check_hosts(named: frozenset[str]) -> None:
    from rm.client import Client

    with Client() as client:
        there = {host.name for host in client.hosts()}
    if strange := sorted(named - there):
        raise NotFound(f"Invalid node name {strange[0]}")


def _format(given: Given) -> Format:
    options = given.options
    if {"format", "Format"} <= options.keys():
        raise UsageError("-o (--format) is incompatible with -O (--Format)")
    if long := options.get("Format"):
        return by_names(long, {**COLUMNS, **NAMED})
    usual = START if "start" in options else LONG if "long" in options else USUAL
    return by_letters(options.get("format") or usual, COLUMNS)


def _states(given: Given) -> frozenset[str]:
    """Those to show; empty for all."""
    words = {word.upper() for word in given.words("states")}
    if "ALL" in words:
        return frozenset()
    if not words and "start" in given.options:
        return frozenset({"PENDING"})
    if not words:
        return frozenset(STATES) - frozenset(ENDED)
    for word in words:
        if word not in SHORT and word not in STATES and word not in NEVER:
            raise UsageError(
                f"Invalid job state specified: {word}.", f"Valid job states include: {','.join(STATES)}"
            )
    return frozenset(SHORT.get(word, word) for word in words)


def _chosen(listed: Sequence[Any], given: Given, wanted: frozenset[str]) -> list[Any]:
    options = given.options
    if given.names_nothing(FILTERS):
        return []
    found = [
        job for job in listed if job.array_rest != ""
    ]  # an array of which nothing is left is its elements
    if (jobs := options.get("job")) is not None:
        found = _named(found, listed, jobs)
    if wanted:
        found = [job for job in found if job.state in wanted]
    for name in ("user", "name", "account", "qos"):
        if words := given.words(name):
            found = [job for job in found if getattr(job, name) in words]
    if partitions := given.words("partition"):
        none = NONE in partitions
        found = [job for job in found if job.partition_in(partitions) or (none and not job.partition)]
    if names := given.words("reservation"):
        found = [job for job in found if job.job.spec.reservation in names]
    if names := given.words("licenses"):
        from rm.licenses import parse as licences

        found = [job for job in found if names & {name for name, _ in licences(job.job.spec.licenses)}]
    if "nodelist" in options:
        hosts = frozenset(parse_hosts(options["nodelist"]))
        _check_hosts(hosts)
        found = [job for job in found if not hosts.isdisjoint(job.hosts)]
    return [one for job in found for one in _elements(job)] if "array" in options else found


def _named(found: list[Any], listed: Sequence[Any], words: str) -> list[Any]:
    """The jobs and elements of arrays that are named: of an array that waits, these elements alone. As in
    Slurm no id at all names no job: scripts ask for an id that they did not get."""
    from rm import arrays

    ids = [arrays.parse_id(word) for word in arrays.split_ids(words)]
    if not ids:
        return []
    known = {job.id for job in listed} | {job.array_job for job in listed}
    if len(ids) == 1 and ids[0].job not in known:
        raise NotFound("slurm_load_jobs error: Invalid job id specified.")
    chosen = ((job, tasks_of(job, ids)) for job in found)
    return [_part(job, tasks) if tasks else job for job, tasks in chosen if tasks is not None]


def _part(job: Any, tasks: str) -> Any:
    """These elements of an array that waits, without its `%N` unless they are all that do."""
    row: JobRow = getattr(job, "row", job)
    if tasks == row.array_rest:
        return job
    part = row._replace(array_job=job.id, array_rest=tasks, array_limit=0)
    if tasks.isdigit():
        part = part._replace(array_task=int(tasks), array_rest=None)
    return part if row is job else job.with_row(part)


def _elements(job: Any) -> list[Any]:
    """Each waiting element of an array by itself."""
    if not job.array_rest:
        return [job]
    from rm import arrays

    row: JobRow = getattr(job, "row", job)
    parts = [
        row._replace(array_job=job.id, array_task=task, array_rest=None, array_limit=0)
        for task in arrays.each(arrays.mask(job.array_rest))
    ]
    if row is job:
        return parts
    return [job.with_row(part) for part in parts]
