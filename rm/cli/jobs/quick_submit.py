"""`rmx submit [OPTION]... SCRIPT [ARG]...` without click, where all goes well.

It parses options, script and answer by the same functions as `rm.cli.jobs.submit`, which does whatever is
not simple, and says what is wrong.
"""

from __future__ import annotations

import os
import sys

from rm.cli.ending import ended
from rm.cli.output import note
from rm.cli.quiet import say_why
from rm.client.address import Address, find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.one_request import answered, opened
from rm.client.quick_json import dumps, loads
from rm.errors import RmError, UsageError
from rm.submission import directives
from rm.submission.batch import Source, Submitter, batch_job
from rm.submission.remarks import Remarks
from rm.submission.script import read_script
from rm.submission.typed import submit_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any

ASKS_MORE = ("clusters", "test_only", "wait")


def attempt(words: Sequence[str]) -> int | None:
    """The exit code; None: this is not simple, and nothing has been done."""
    door, made = None, None
    try:
        address = find_daemon(None, None)
        if path := at_hand(address):
            door = opened(path)
            made = _job(words)
    except (RmError, OSError):
        pass
    if made is None:
        if door is not None:
            door.close()
        return None
    spec, values, warnings = made
    for warning in warnings:
        note(f"Warning: {warning}")
    return ended(lambda: _submit(address, door, spec, bool(values.get("parsable"))))


def _job(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], list[str]] | None:
    """The specification, all options, and warnings; None where something is wrong, or more is asked for."""
    given, rest = directives.leading_options(words, "a flag")
    # a pipe, such as <(…), can be read only once: by click, if this should not be simple
    if not rest or not os.path.isfile(rest[0]):
        return None
    script, remarks = rest[0], Remarks()
    text = read_script(script)
    options = directives.parse(text, script, remarks)
    by = Submitter.here()
    flags = {option.key: value for option, value in given}
    source = Source(submit_line("rmx submit", words), script)
    name = os.path.basename(script) or script
    spec, values = batch_job(text, name, rest[1:], options, flags, by, remarks, source)
    if remarks.errors or any(values.get(key) for key in ASKS_MORE):
        return None
    return spec, values, remarks.warnings


def _submit(address: Address, door: socket | None, spec: dict[str, Any], parsable: bool) -> int:
    job = submitted(address, spec, door)
    print(job if parsable else f"Submitted batch job {job}")
    say_where_the_log_is(address, spec, job)
    return 0


def say_where_the_log_is(address: Address, spec: dict[str, Any], job: int) -> None:
    if address.scheme != "unix" and not spec.get("output"):
        sys.stdout.flush()
        note(f"The daemon is on another machine, so it puts no log here: `rmx logs {job}` shows it.")


def submitted(address: Address, spec: dict[str, Any], door: socket | None) -> int:
    """The id of the new job. `door`: a connection to the daemon that was opened before, if any.

    Raises:
        RmError: the daemon refuses it, or cannot be reached.
    """
    key = os.urandom(16).hex()
    job = _at_once(address, door, spec, key)
    if job is None:
        from contextlib import closing

        from rm.client.connection import Connection
        from rm.client.submission import submit

        with closing(Connection(address, on_wait=note)) as connection:
            job = submit(connection, spec, key)  # with the same key it is one job, whatever was heard
    return job


def _at_once(address: Address, door: socket | None, spec: dict[str, Any], key: str) -> int | None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}

    def refuse(status: int, body: bytes) -> None:
        from rm.client.failure import failure
        from rm.client.older_daemon import is_older

        error = failure(status, body)
        if not (isinstance(error, UsageError) and is_older(error)):  # else it is asked without the field
            raise error

    body = dumps({"spec": spec}).encode()
    answer = answered(door, "POST", "/v1/jobs", headers, body, refuse, on_quiet=lambda: say_why(address))
    if answer is None:
        return None
    try:
        return int(loads(answer.decode())["job"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
