"""`scontrol`: show, change, hold, release and requeue; drain and resume hosts."""

from __future__ import annotations

import os
import sys

from rm.arrays import JobId, parse_id, split_ids
from rm.cli.jobs.own_job import is_own, requeue_itself
from rm.cli.output import all_printable, note
from rm.cli.slurm.changing import Changing
from rm.cli.slurm.clusters import ALIAS, OPTION, VARIABLES, cluster_of
from rm.cli.slurm.refusals import WORDS, words_of
from rm.cli.slurm.words import Options, read
from rm.errors import IllegalTransition, NotFound, Refusal, RmError, UsageError
from rm.imported_later import re
from rm.submission import place
from rm.units import fold_hosts, hosts_in_order, parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


OPTIONS = Options(
    taken=(OPTION, ALIAS, "details/d", "oneliner/o"),
    ignored=("all/a", "future/F", "hide", "local", "quiet/Q", "verbose/v"),
    refused=("federation", "sibling", "uid/u="),
    variables={**VARIABLES, "SCONTROL_ONELINER": "oneliner"},
)
# commands that say how the following ones of the prompt are done, and that end it
OF_PROMPT = ("all", "details", "exit", "hide", "oneliner", "quiet", "quit", "verbose")
LISTS = ("hostnames", "hostlist", "hostlistsorted")
ENTITIES = ("job", "step", "node", "partition", "reservation", "config", "licenses", "assoc_mgr", *LISTS)
ALIASES = {"jobid": "job", "stepid": "step", "nodename": "node", "partitionname": "partition",
           "reservationname": "reservation", "cache": "assoc_mgr"}  # fmt: skip
ELSEWHERE = {
    "daemons": "`rmx status` tells of the daemon, `rmx hosts` of the agents.",
    "topology": "`rmx hosts --json` has the leaf of each host, `rmx network` the measured paths.",
    "aliases": "", "burstbuffer": "", "dwstat": "", "federation": "", "frontend": "", "slurmd": "",
}  # fmt: skip
NOTHING = {
    "reservation": "No reservations in the system", "licenses": "No licenses configured in Slurm.",
}  # fmt: skip
BETWEEN = {"config": "\n", "licenses": "\n    "}  # the lines of a record; of others three blanks
FAILED = 1
NO_COUNTERPART = "rm has no counterpart."
NAMED = "`rmx reservation {0}`, `rmx partition {1}` and `rmx host {1}` do that."
REFUSED = {
    "create": NAMED.format("create", "add"),
    "delete": NAMED.format("delete", "remove"),
    **dict.fromkeys(
        ("top", "notify", "cancel_reboot", "reboot", "listpids", "pidinfo", "token"), NO_COUNTERPART
    ),
}
STARTED = ("RUNNING", "SUSPENDED")
SHORTEST = 3  # letters of a keyword
LOOK_S = 1.0
NICE = "100"  # of `Nice` without a value. Source: scontrol(1) of Slurm 22.05
ADMIN = ("abort", "create", "delete", "reconfigure", "setdebug", "setdebugflags", "shutdown", "takeover")


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    cluster_of(given)
    if given.operands:
        return _command(given.operands, given.options)
    if not place.here.stays:
        raise UsageError("No command is named.", "Write: scontrol show job ID. In a job there is no prompt.")
    from rm.cli.slurm.control.prompt import commands

    return commands(dict(given.options), _verb, _command)


def _command(words: Sequence[str], options: Mapping[str, str]) -> int:
    verb, acts = _verb(words[0]), _acts(options)
    if verb in REFUSED:
        raise UsageError(f"'{verb}' is not supported.", REFUSED[verb])
    if verb not in acts:
        known = ", ".join(act for act in acts if act not in OF_PROMPT)
        raise UsageError(f"invalid keyword: {verb}.", f"Known are {known}.")
    return acts[verb]([*words[1:]])


def _verb(word: str) -> str:
    return _whole(word, (*_acts({}), *REFUSED))


def _acts(options: Mapping[str, str]) -> dict[str, Callable[[list[str]], int]]:
    return {
        "hold": lambda jobs: _each(jobs, lambda client, job: client.hold(job)),
        "uhold": lambda jobs: _each(jobs, lambda client, job: client.hold(job, uhold=True)),
        "release": lambda jobs: _each(jobs, _release),
        "suspend": lambda jobs: _each(jobs, _suspend),
        "resume": lambda jobs: _each(jobs, lambda client, job: client.resume_job(job)),
        "requeue": _requeue,
        "requeuehold": lambda jobs: _each(jobs, lambda client, job: client.requeue(job, hold=True)),
        "completing": _completing,
        "show": lambda words: _show(words, "oneliner" in options, "details" in options),
        "update": _update,
        "ping": _ping,
        "version": _version,
        "help": _help,
        **dict.fromkeys(OF_PROMPT, lambda _: 0),
        "wait_job": _wait,
        "write": _write,
    }


def _whole(word: str, known: Iterable[str]) -> str:
    """The keyword that the word is the only beginning of, else the word itself."""
    found = [one for one in known if one.startswith(word.lower())]
    whole = word.lower() in found or (len(found) == 1 and len(word) >= SHORTEST)
    return (word.lower() if word.lower() in found else found[0]) if whole else word


def _ids(words: Iterable[str]) -> list[JobId]:
    """The jobs that are named: by their ids, with commas, or `jobname=NAME` for all of that name."""
    found = []
    for word in words:
        kind, equals, name = word.partition("=")
        if equals and kind.lower() in ("jobname", "name"):
            found += _of_name(name)
            continue
        for part in split_ids(re.sub(r"(?i)^job(id)?=", "", word)):
            try:
                found.append(parse_id(part))
            except UsageError as error:
                unknown = WORDS[Refusal.UNKNOWN_JOB]
                raise UsageError(f"{unknown} for job {part}. {error.what}", error.hint) from None
    if not found:
        raise UsageError("too few arguments: no job is named.")
    return found


def _of_name(name: str) -> list[JobId]:
    from rm.cli.slurm.jobs import ENDED, rows

    # no name is nobody's, and not everybody's: a script's variable may be empty
    found = [JobId(row.id) for row in rows(name=name) if row.state not in ENDED] if name else []
    if not found:
        raise NotFound(f"{WORDS[Refusal.UNKNOWN_JOB]}: no job that has not ended has the name '{name}'.")
    return found


def _each(words: list[str], act: Callable[[Changing, JobId], object]) -> int:
    """Do it to every job; a failure does not keep the others from it."""
    code = 0
    with Changing() as client:
        for job in _ids(words):
            try:
                act(client, job)
            except RmError as error:
                known = words_of(error)
                note(f"error: {f'{known} for job {job}. ' if known else ''}{error}")
                code = FAILED
    return code


def _release(client: Changing, job: JobId) -> None:
    """As in Slurm, one that runs is held by nobody, and that is no error."""
    try:
        client.release(job)
    except IllegalTransition:
        if client.job(job).state not in (*STARTED, "CONFIGURING", "COMPLETING"):
            raise


def _suspend(client: Changing, job: JobId) -> None:
    """As in Slurm, one that is suspended stays so, and that is no error. One that stands still for another
    job goes on by itself."""
    try:
        client.suspend(job)
    except IllegalTransition:
        found = client.job(job)
        if found.state != "SUSPENDED" or (found.reason is not None and found.reason.code == "Preempted"):
            raise


def _completing(_: list[str]) -> int:
    """The jobs that have ended, and whose hosts are not yet done with them."""
    from rm.cli.slurm.jobs import moment, rows

    for row in rows(state="COMPLETING"):
        hosts, began = fold_hosts(row.hosts), moment(row.started_us)
        print(f"JobId={row.id} EndTime=Unknown StartTime={began} Nodes(COMPLETING)={hosts}")
    return 0


def _requeue(words: list[str]) -> int:
    """A job may requeue itself on any host, also where no daemon can be reached."""
    ids = [part for word in words for part in split_ids(word)]
    own = [word for word in ids if place.here.stays and is_own(word, os.environ)]
    if own and requeue_itself(os.environ):
        words = [word for word in ids if word not in own]
        if not words:
            return 0
    return _each(words, lambda client, job: client.requeue(job))


def _ping(_: list[str]) -> int:
    from rm.client import Client

    with Client() as client:
        client.status()
        where = client.connection.address if place.here.stays else os.uname().nodename
        print(f"Slurmctld(primary) at {where} is UP")
    return 0


def _wait(words: list[str]) -> int:
    """Until the job runs; 1 where it has ended."""
    from rm.client import Client

    with Client() as client:
        for job in _ids(words):
            while (found := client.job(job)).state not in STARTED:
                if found.ended_us is not None:
                    raise UsageError(f"Job {words[0]} no longer running.")
                place.here.pause(LOOK_S)
    print(f"Nodes are ready for job {words[0]}", file=sys.stderr)
    return 0


def _write(words: list[str]) -> int:
    """The job's script into a file, or with `-` here."""
    if len(words) < 2 or not "batch_script".startswith(words[0]):
        raise UsageError(
            "Nothing is named that can be written.", "Write: scontrol write batch_script ID [FILE|-]."
        )
    from rm.client import Client

    with Client() as client:
        (job,) = _ids(words[1:2])
        script = client.job(job).spec.script
    if not isinstance(script, str):
        raise UsageError(f"job script retrieval failed: job {words[1]} is another user's.")
    file = words[2] if len(words) > 2 else f"slurm-{words[1]}.sh"
    if file == "-":
        sys.stdout.write(script)
        return 0
    try:
        place.here.write(file, script)
    except OSError as error:
        raise UsageError(f"The file {file} cannot be written: {error.strerror}.") from None
    print(f"batch script for job {words[1]} written to {file}")
    return 0


def _help(_: list[str]) -> int:
    from rm.cli.slurm.program import usage

    print(usage("scontrol"))
    return 0


def _version(_: list[str]) -> int:
    from rm import __version__
    from rm.cli.slurm.program import SLURM

    print(f"{SLURM} by rm {__version__}")
    return 0


def _show(words: list[str], oneliner: bool, details: bool) -> int:
    what, *named = words or [""]
    what, equals, value = what.partition("=")  # show job=42
    what, named = ALIASES.get(what.lower(), what), [value, *named] if equals else named
    plural = next((one for one in ENTITIES if what and what.lower().rstrip("s") == one.rstrip("s")), what)
    entity = _whole(plural, ENTITIES)
    if entity in LISTS:
        return _host_list(entity, named)
    other = _whole(what, ELSEWHERE)
    if other in ELSEWHERE and entity not in ENTITIES:
        raise UsageError(f"show {other} is not supported.", ELSEWHERE[other] or "rm has no counterpart.")
    if entity not in ENTITIES:
        raise UsageError(f"invalid entity: {what} for keyword: show.", f"Known are {', '.join(ENTITIES)}.")
    from rm.cli.slurm.asking import Asking
    from rm.cli.slurm.control import show

    with Asking() as client:
        if entity == "assoc_mgr":
            from rm.cli.slurm.accounting import assoc_mgr

            print("\n".join(assoc_mgr.shown(client.client, named, oneliner)))
            return 0
        between, nothing = BETWEEN.get(entity, "\n   "), NOTHING.get(entity, "")
        end = "" if entity == "licenses" else "\n"
        for record in (show.DETAILED if details else show.SHOWN)[entity](client, named):
            lines, nothing = all_printable(record), ""
            print(" ".join(lines) if oneliner and entity != "config" else between.join(lines) + end)
        if nothing:
            print(nothing)
    return 0


def _host_list(how: str, named: list[str]) -> int:
    """Of the job's own hosts where none are named."""
    text = ",".join(named) or os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST")
    if not text:
        raise UsageError("No hosts are named.", "Write: scontrol show hostnames h[1-3].")
    hosts = parse_hosts(text)
    if how == "hostnames":
        sys.stdout.writelines(f"{host}\n" for host in hosts)
    else:
        print(fold_hosts(sorted(hosts)) if how == "hostlistsorted" else hosts_in_order(hosts))
    return 0


def _update(words: list[str]) -> int:
    fields: dict[str, str] = {}
    if len(words) > 1 and words[0].lower() in ("job", "jobid"):
        words = [f"{words[0]}={words[1]}", *words[2:]]
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name.lower() != "nice":
            raise UsageError(f"Update of this parameter is not supported: {word}.", "Write NAME=VALUE.")
        fields[_whole_name(name)] = value if equals else NICE
    lower = {name.lower(): value for name, value in fields.items()}
    for kind, act in UPDATED.items():
        if lower.get(kind):
            return act(lower[kind], {name: value for name, value in fields.items() if name.lower() != kind})
        if kind in lower and kind != "jobname":  # an empty variable of a script names nothing
            break
    raise UsageError(
        "No JobId, JobName, NodeName or PartitionName is named.",
        "Write: scontrol update JobId=42 NAME=VALUE.",
    )


def _whole_name(name: str) -> str:
    """Of what says what is updated, which may be abbreviated: `node=h1`; `Partition` is a field of jobs."""
    said = name.lower()
    return next((kind for kind, least in NAMES.items() if len(said) >= least and kind.startswith(said)), name)


def _update_job(job: str, fields: dict[str, str]) -> int:
    if not fields:
        raise UsageError("The request changes nothing.", "Write: scontrol update JobId=42 NAME=VALUE.")
    from rm.cli.slurm.control.update import changes_of

    return max(_each([job], change) for change in changes_of(fields))


def _update_partition(name: str, fields: dict[str, str]) -> int:
    from rm.cli.slurm.control.update_partition import update_partition
    from rm.client import Client

    with Client() as client:
        update_partition(client, name, {field.lower(): value for field, value in fields.items()})
    return 0


def _update_hosts(named: str, given: dict[str, str]) -> int:
    hosts, fields = parse_hosts(named), {name.lower(): value for name, value in given.items()}
    state, reason = fields.pop("state", "").upper(), fields.pop("reason", "")
    if fields or state not in ("DRAIN", "RESUME", "UNDRAIN"):
        asked = f"{next(iter(fields))}=" if fields else f"State={state}"
        raise UsageError(
            f"Update of this parameter is not supported: {asked}.",
            "Write State=DRAIN Reason=…, or State=RESUME.",
        )
    if state == "DRAIN" and not reason:
        raise UsageError("You must specify a reason when DRAINING a node.", "Write Reason=….")
    from rm.client import Client

    code = 0
    with Client() as client:
        for host in hosts:
            try:
                if state == "DRAIN":
                    client.drain(host, reason)
                else:
                    client.resume(host)
            except RmError as error:
                known = words_of(error)
                note(f"error: {f'{known}. ' if known else ''}{error}")
                code = FAILED
    return code


# what names the things to change, in this order: JobName is a job's new name beside JobId
NAMES = {"jobid": 3, "nodename": 3, "jobname": 4, "partitionname": 10}  # with the fewest letters of each
UPDATED: dict[str, Callable[[str, dict[str, str]], int]] = {
    "jobid": _update_job,
    "nodename": _update_hosts,
    "partitionname": _update_partition,
    "jobname": lambda name, fields: _update_job(f"jobname={name}", fields),
}
