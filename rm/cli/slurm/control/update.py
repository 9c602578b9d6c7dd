"""The fields that `scontrol update JobId=` changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from rm.arrays import JobId
from rm.cli.shown import ends_by_us
from rm.errors import UsageError
from rm.submission.begin import begin_us
from rm.submission.updates import fields_of
from rm.units import number_of, parse_time_limit_us

if TYPE_CHECKING:
    from rm.cli.slurm.changing import Changing

Change = Callable[["Changing", JobId], object]

# Slurm's name in lower case -> the long option of `rmx submit`
OPTIONS = {
    "jobname": "job-name", "name": "job-name", "comment": "comment",
    "mailtype": "mail-type", "mailuser": "mail-user", "partition": "partition",
    "priority": "priority", "nice": "nice", "timelimit": "time", "starttime": "begin",
    "eligibletime": "begin", "deadline": "deadline", "timemin": "time-min",
    "requeue": "requeue", "dependency": "dependency", "nodelist": "nodelist",
    "reqnodelist": "nodelist", "excnodelist": "exclude", "features": "constraint", "licenses": "licenses",
    "numnodes": "nodes", "minnodes": "nodes",
    "reqnodes": "nodes", "reservation": "reservation", "reservationname": "reservation",
    "numtasks": "ntasks", "ntaskspernode": "ntasks-per-node", "cpuspertask": "cpus-per-task",
    "cpus-per-task": "cpus-per-task", "minmemorynode": "mem", "trespernode": "gpus-per-node",
    "gres": "gpus-per-node", "trespertask": "gpus-per-task", "account": "account", "qos": "qos",
}  # fmt: skip
# Slurm's other fields, as scontrol(1) of 22.05 names them -> what tells or changes the same here
_COUNTS = "NumTasks and CPUsPerTask change how many processors a job has."
_PATHS = "Files and directories of a submitted job stay as they are."
_IGNORED = "It has no effect on a job here."
REFUSED = {
    **dict.fromkeys(("numcpus", "mincpus", "reqcpus", "reqprocs", "reqcores", "reqsockets", "reqthreads",
                     "mincpusnode"), _COUNTS),
    **dict.fromkeys(("stdin", "stdout", "stderr", "workdir"), _PATHS),
    **dict.fromkeys(("contiguous", "corespec", "threadspec", "delayboot", "mintmpdisknode", "tresfreq",
                     "tresbind", "resetaccruetime", "clusterfeatures"), _IGNORED),
    **dict.fromkeys(("switches", "reqswitch", "wait-for-switch"), "--switches of a submitted job stays."),
    **dict.fromkeys(("tresperjob", "trespersocket"), "TresPerNode and TresPerTask change its GPUs."),
    **dict.fromkeys(("cpuspertres", "mempertres", "minmemorycpu"),
                    "CPUsPerTask and MinMemoryNode change what it has."),
    **dict.fromkeys(("admincomment", "systemcomment", "extra"), "Comment changes the one comment of a job."),
    "sitefactor": "Priority changes its place in the queue.",
    "userid": "A job stays with the user who submitted it.",
    **dict.fromkeys(("burstbuffer", "clusters", "container", "wckey", "mcslabel"), "rm has no counterpart."),
}  # fmt: skip
_RELATIVE = re.compile(r"([+-])\s*=?\s*(.+)\Z")
_GRES = re.compile(r"(?:gres[:/])?gpu[:=/]", re.IGNORECASE)
_SHARING = ("oversubscribe", "shared")


def changes_of(fields: dict[str, str]) -> list[Change]:
    """What is to be asked of the daemon, each for a job. `fields`: by Slurm's names, as they were written.

    Raises:
        UsageError: a field cannot be changed, or not so.
    """
    changes: list[Change] = []
    values: dict[str, str] = {}
    relative = ""
    for given, value in fields.items():
        name = given.lower()
        if name == "arraytaskthrottle" and re.match(r"\d{1,9}\Z", value):
            changes.append(_limit_array(int(value)))
        elif name == "priority" and value == "0":
            changes.append(lambda client, job: client.hold(job))
        elif name == "timelimit" and _RELATIVE.match(value):
            relative = value
        elif name == "endtime":
            changes.append(_ending_at(value))
        elif name in _SHARING:
            changes.append(_sharing(given, value))
        elif option := OPTIONS.get(name):
            values[option] = _value(name, value)
        else:
            raise UsageError(
                f"Update of this parameter is not supported: {given}={value}.",
                REFUSED.get(name) or "docs/slurm-commands.md has those that can be changed.",
            )
    if values or relative:
        fields_of(values, _now())  # all that is wrong is said before anything is done
        changes.append(lambda client, job: _update(client, job, values, relative))
    return changes


def _now() -> datetime:
    return datetime.now().astimezone()


def _limit_array(limit: int) -> Change:
    def change(client: Changing, job: JobId) -> None:
        if job.tasks:
            raise UsageError(
                "ArrayTaskThrottle is the whole array's.",
                f"Write: scontrol update JobId={job.job} ArrayTaskThrottle={limit}.",
            )
        client.limit_array(job, limit)

    return change


def _ending_at(text: str) -> Change:
    """EndTime is what the time limit leaves of a job that runs. Source: scontrol(1)."""
    end_us = begin_us(text, _now(), "EndTime")

    def limit_of(client: Changing, job: JobId) -> str:
        begun_us = ends_by_us(client.job(job), 0)  # later by as long as it stood
        if begun_us is None:
            raise UsageError("EndTime is of a job that runs.", "TimeLimit changes its limit before.")
        seconds = (end_us - begun_us) // 1_000_000
        if seconds < 1:
            raise UsageError(f"EndTime={text} is before the job's start.")
        return _clock(seconds)

    def change(client: Changing, job: JobId) -> None:
        limits = {one: limit_of(client, one) for one in job.each()}  # of all, before one is changed
        for one, limit in limits.items():
            _update(client, one, {"time": limit}, "")

    return change


def _sharing(name: str, value: str) -> Change:
    """Slurm's YES, or a number but 0, lets other jobs onto the job's processors, and so ends --exclusive. NO
    takes that back and ends --exclusive=user; it makes no job exclusive. Seen of Slurm 22.05."""
    number = number_of(value)
    shares = value.upper() == "YES" or bool(number)
    if not shares and value.upper() not in ("", "NO") and number is None:
        raise UsageError(
            f"Invalid {name} value: {value:.80}.",
            "Write YES or NO; `rmx set ID exclusive=yes` gives a job whole hosts.",
        )

    def change(client: Changing, job: JobId) -> None:
        if shares or not client.job(job).spec.exclusive:
            _update(client, job, {"exclusive": "no"}, "")

    return change


def _value(name: str, value: str) -> str:
    return _GRES.sub("", value) if name in ("trespernode", "trespertask", "gres") else value


def _update(client: Changing, job: JobId, values: dict[str, str], relative: str) -> None:
    if "priority" in values and client.job(job).held:
        raise UsageError("Job is in held state, pending scheduler release.", "Release it first.")
    for one in job.each() if relative else [job]:
        told = dict(values)
        if relative:
            told["time"] = _moved(client.job(one).spec.time_limit_us, relative)
        if update := fields_of(told, _now()):
            client.update(one, update)


def _moved(limit_us: int | None, relative: str) -> str:
    """The time limit, so much longer or shorter, as `--time` has it."""
    match = _RELATIVE.match(relative)
    by_us = parse_time_limit_us(match[2]) if match else None
    if match is None or by_us is None:
        raise UsageError(f"TimeLimit is '{relative}'.", "Write TimeLimit=+30 or TimeLimit=-1:00:00.")
    if limit_us is None:
        raise UsageError(
            "The job has no time limit that a difference could change.", "Write TimeLimit=2:00:00."
        )
    new_us = limit_us + (by_us if match[1] == "+" else -by_us)
    if new_us < 1_000_000:
        raise UsageError(f"TimeLimit={relative} leaves the job no time.")
    return _clock(new_us // 1_000_000)


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
