"""`sbatch`: as `rmx submit`, with Slurm's file for the output, messages and exit codes."""

from __future__ import annotations

import os
import sys

from rm.cli.jobs.quick_submit import submitted
from rm.cli.output import note
from rm.cli.slurm.refusals import no_parts, refused
from rm.client.address import find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.one_request import opened
from rm.errors import RmError, UsageError
from rm.submission import directives, place
from rm.submission.batch import Source, Submitter, batch_job
from rm.submission.options import Option
from rm.submission.remarks import Remarks
from rm.submission.script import SCRIPT_MAX_BYTES, read_script, script_text
from rm.submission.typed import found_script, submit_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping, Sequence
    from typing import Any

OWN = {"wrap": Option("wrap", ("wrap",))}
OUTPUT, OUTPUT_OF_ARRAY = "slurm-%j.out", "slurm-%A_%a.out"
LAUNCH = "batch"  # once, whatever it calls
FAILED = "Batch job submission failed"
BY_SIGNAL = 1  # with --wait, of a job that a signal ended. Source: sbatch(1), --wait
WAIT_FOR, LOOK_S = "--wait-for", 10.0  # inside a job: the first word of who waits, and between two looks
NOT_NOW = 3  # of `rmx submit --test-only`: Slurm's says when, and ends with 0


def run(words: Sequence[str]) -> int:
    try:
        given, rest = directives.leading_options(words, "a flag", OWN, abbreviated=True)
    except UsageError as error:
        from rm.cli.jobs import mistakes

        mistakes.refuse(words, OWN, error, abbreviated=True)
        raise
    no_parts(rest[:1])
    flags = {option.key: value for option, value in given}
    wrapped, quiet = flags.pop("wrap", None), flags.pop("quiet", False)
    flags.pop("verbose", None)  # says nothing more
    if wrapped is None and rest:
        rest = [found_script(rest[0]), *rest[1:]]
    text, name = _wrapped(wrapped, rest) if wrapped is not None else _script(rest)
    source = Source(submit_line("sbatch", words), rest[0] if rest else "")
    door = _opened()
    try:
        return _submit(flags, wrapped is not None, rest, text, name, quiet, door, source)
    finally:
        if door is not None:
            door.close()


def _opened() -> socket | None:
    """A connection to the daemon, which takes it while the options are read. What is wrong is said later."""
    try:
        path = at_hand(find_daemon(None, None))
    except (RmError, OSError):
        return None
    return opened(path) if path else None


def _submit(
    flags: Mapping[str, Any],
    wrapped: bool,
    rest: Sequence[str],
    text: str,
    name: str,
    quiet: bool,
    door: socket | None,
    source: Source,
) -> int:
    remarks = Remarks()
    options = {} if wrapped else directives.parse(text, rest[0] if rest else "stdin", remarks)
    by = Submitter.here()
    spec, values = batch_job(text, name, rest[1:], options, flags, by, remarks, source)
    for warning in () if quiet else remarks.warnings:
        note(f"warning: {warning}")
    with refused(FAILED):
        remarks.refuse()
    cluster = ""
    if asked := values.get("clusters"):
        from rm.cli.slurm.clusters import checked

        cluster = checked(asked)
    if "launch" not in values:
        spec["launch"] = LAUNCH
    if not values.get("output"):
        spec["output"] = OUTPUT_OF_ARRAY if spec.get("array") else OUTPUT
    if values.get("test_only"):
        from rm.cli.jobs.why import show_plan
        from rm.client import Client

        with Client() as client, refused("allocation failure"):
            code = show_plan(client.plan(spec), as_json=False)
        return 0 if code == NOT_NOW else code
    with refused(FAILED):
        job = submitted(find_daemon(None, None), spec, door)
    if not quiet:
        plain = f"{job};{cluster}" if cluster else job
        told = f"Submitted batch job {job} on cluster {cluster}" if cluster else f"Submitted batch job {job}"
        print(plain if values.get("parsable") else told, flush=True)
    if values.get("wait"):
        return code_at_end(job)
    return 0


def code_at_end(job: int) -> int:
    """Of --wait, once the job has ended."""
    from rm.client import Client, exit_code

    with Client() as client:
        if place.here.stays:
            ended = client.wait(job)
        else:
            ended = client.job(job)
            if ended.ended_us is None:
                place.here.pause(LOOK_S, [WAIT_FOR, str(job)])
        return BY_SIGNAL if ended.exit_signal else exit_code(ended)


def _wrapped(command: str, rest: Sequence[str]) -> tuple[str, str]:
    if rest:
        raise UsageError("Script arguments are not permitted with --wrap.")
    if not command.strip():
        raise UsageError("--wrap is empty.", "Write: sbatch --wrap 'COMMAND'.")
    return f"#!/bin/sh\n# made by --wrap\n{command}\n", "wrap"


def _script(rest: Sequence[str]) -> tuple[str, str]:
    """Its text, and the job's name where no option says another."""
    if rest:
        return read_script(rest[0]), os.path.basename(rest[0]) or rest[0]
    try:
        data = sys.stdin.buffer.read(SCRIPT_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The script on standard input cannot be read: {error.strerror}.") from None
    return script_text(data, None), "sbatch"
