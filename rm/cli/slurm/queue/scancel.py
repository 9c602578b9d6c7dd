"""`scancel`: cancel jobs, or send them a signal."""

from __future__ import annotations

import os
import sys

from rm.arrays import JobId, parse_id, split_ids
from rm.cli.array_elements import targets
from rm.cli.output import note
from rm.cli.slurm.changing import Changing
from rm.cli.slurm.clusters import OPTION, VARIABLES, cluster_of
from rm.cli.slurm.jobs import ENDED, NEVER, NONE, SHORT, STATES, rows, whole
from rm.cli.slurm.refusals import words_of
from rm.cli.slurm.users import named_by
from rm.cli.slurm.words import Given, Options, read
from rm.errors import Conflict, NotFound, Refusal, RmError, UsageError
from rm.units import number_of, parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rm.api.job_requests import SignalTo

OPTIONS = Options(
    taken=(
        "account/A=", "batch/b", OPTION, "full/f", "interactive/i", "me", "name/n=", "jobname=",
        "nodelist/w=", "partition/p=", "qos/q=", "reservation/R=", "signal/s=", "state/t=", "user/u=",
        "verbose/v",
    ),
    ignored=("ctld", "hurry/H", "quiet/Q"),
    refused=("sibling=", "wckey="),
    variables={
        **VARIABLES,
        "SCANCEL_ACCOUNT": "account", "SCANCEL_QOS": "qos", "SCANCEL_BATCH": "batch", "SCANCEL_FULL": "full",
        "SCANCEL_INTERACTIVE": "interactive", "SCANCEL_NAME": "name", "SCANCEL_PARTITION": "partition",
        "SCANCEL_STATE": "state", "SCANCEL_USER": "user",
    },
)  # fmt: skip
NAMING = ("account", "name", "nodelist", "partition", "qos", "reservation")
FILTERS = ("account", "me", "name", "nodelist", "partition", "qos", "reservation", "state", "user")
USEFUL = ("PENDING", "RUNNING", "SUSPENDED")  # states of jobs that can be cancelled
FAILED = 1
SIGKILL = 9


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    if "jobname" in given.options:
        given.options["name"] = given.options["jobname"]
    filters = {name: given.options[name] for name in FILTERS if name in given.options}
    words = [part for word in given.operands for part in split_ids(word) or [word]]
    named = [_named(word) for word in words]
    ids = [job for job, step in named if step is None]
    steps = [(job, step) for job, step in named if step is not None]
    if not words and not filters:
        raise UsageError("No job identification provided")
    cluster_of(given)
    signal, state = _signal(given), _state(filters["state"]) if "state" in filters else ""
    to = _receivers(given)
    if steps and filters:
        raise UsageError("Steps are named by themselves, without options that choose jobs.")
    if steps and to != "steps":
        raise UsageError("--batch and --full are for jobs: a signal to a step is for its tasks.")
    if given.names_nothing(NAMING):
        return 0
    if filters:
        ids = _matching(filters, state, ids)
    if not ids and not steps:
        return 0
    with Changing() as client:
        if "interactive" in given.options:
            ids = [job for job in ids if _confirmed(client, job)]
            steps = [(job, step) for job, step in steps if _confirmed(client, job, step)]
        verbose = "verbose" in given.options
        done = [_cancel(client, job, signal, to, verbose) for job in ids]
        return max([0, *done, *(_cancel_step(client, job, step, signal, verbose) for job, step in steps)])


def _named(word: str) -> tuple[JobId, int | None]:
    """The job that a word names, and the number of the step in `36.0` and `36_2.0`."""
    name, dot, step = word.partition(".")
    try:
        job = parse_id(name)
    except UsageError:
        raise UsageError(f"Invalid job id {word}") from None
    if not dot:
        return job, None
    number = number_of(step)
    if number is None:
        raise UsageError(
            f"Invalid job id {word:.80}: a step has a number.",
            f"`scancel --batch --signal=TERM {name}` reaches the job's script.",
        )
    if job.tasks and not job.tasks.isdigit():
        raise UsageError(
            f"Invalid job id {word}: a step is of one element.",
            f"Name each, as in {job.each()[0]}.{number}.",
        )
    return job, number


def _signal(given: Given) -> int | None:
    """None: SIGTERM, and SIGKILL after the grace time, as without an option."""
    text = given.options.get("signal")
    if text is None:
        return None
    from rm.submission.signals import signal_number

    return signal_number(text)


def _receivers(given: Given) -> SignalTo:
    """The steps, unless --batch names the script's shell alone, or --full all."""
    return "script" if "batch" in given.options else "all" if "full" in given.options else "steps"


def _state(text: str) -> str:
    state = SHORT.get(text.upper(), text.upper())
    if state not in (*STATES, *NEVER):
        raise UsageError(
            f"Invalid job state specified: {text}.", f"Valid job states are {', '.join(USEFUL)}."
        )
    return state


def _confirmed(client: Changing, job: JobId, step: int | None = None) -> bool:
    """Asks until the answer is y or n, as Slurm's does; the end of the answers is a no."""
    try:
        spec = client.job(JobId(job.job)).spec
    except NotFound:
        return True  # what becomes of it is said below
    what = f"job_id={job}" if step is None else f"step_id={job}.{step}"
    asks = f"Cancel {what} name={spec.name} partition={spec.partition or NONE} [y/n]? "
    while True:
        print(asks, end="", flush=True)
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "n") or not line:
            return answer == "y"


def _user(text: str) -> str:
    name = named_by(text)
    if name is None:
        raise NotFound(f"Invalid user name: {text}")
    return name


def _matching(filters: dict[str, str], state: str, ids: list[JobId]) -> list[JobId]:
    """Of the jobs that are named, or of all, those that fit."""
    user = _user(filters["user"]) if "user" in filters else ""
    asked = {"state": state, "mine": "me" in filters, "user": user, "name": filters.get("name", "")}
    reservation = filters.get("reservation")
    listed: Sequence[Any] = rows(**asked) if reservation is None else whole(**asked)
    hosts = frozenset(parse_hosts(filters["nodelist"])) if "nodelist" in filters else None
    arrays = frozenset() if state else frozenset(job.job for job in ids if not job.tasks)
    found = [
        job
        for job in listed
        if job.state not in ENDED
        and state in ("", job.state)  # of an array that is found lines of other states come, too
        and (job.array_rest != "" or job.id in arrays)  # its elements are there by themselves
        and filters.get("partition", job.partition or NONE) == (job.partition or NONE)
        and filters.get("account", job.account) == job.account
        and filters.get("qos", job.qos) == job.qos
        and (hosts is None or not hosts.isdisjoint(job.hosts))
        and (reservation is None or job.job.spec.reservation == reservation)
    ]
    taken = frozenset(job.id for job in found if job.array_rest == "")
    return targets([job for job in found if job.array_job not in taken], ids)


def _cancel(client: Changing, job: JobId, signal: int | None, to: SignalTo, verbose: bool) -> int:
    if verbose:
        note(f"Terminating job {job}" if signal in (None, SIGKILL) else f"Signal {signal} to job {job}")
    try:
        client.cancel(job, signal=signal, signal_to=to)
    except RmError as error:
        gone = error.refusal in (Refusal.UNKNOWN_JOB, Refusal.ENDED)
        over = signal is None and (gone or isinstance(error, NotFound | Conflict))
        if not over or verbose:  # Slurm does not mention that a job is over
            words = words_of(error)
            note(f"error: Kill job error on job id {job}: {f'{words}. ' if words else ''}{error}")
        return 0 if over else FAILED
    return 0


def _cancel_step(client: Changing, job: JobId, step: int, signal: int | None, verbose: bool) -> int:
    """By its `srun`, which passes the signal on; without one it ends the step."""
    from rm.client.step_signals import signal_step

    name = f"{job}.{step}"
    if verbose:
        note(f"Terminating step {name}" if signal is None else f"Signal {signal} to step {name}")
    try:
        signal_step(client.client, job, step, signal, note)
    except RmError as error:
        note(f"error: Kill job error on job step id {name}: {error}")
        return FAILED
    return 0
