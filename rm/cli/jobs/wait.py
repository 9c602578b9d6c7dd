"""`rmx wait` and `rmx submit --wait`: until jobs have ended, with their exit code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rm.cli.session import Session, emit_json, job_ids, jobs_operand, json_option, note
from rm.errors import Unreachable

POLL_S = 60
PATIENCE_S = 60.0  # a daemon that restarts meanwhile is waited for
TIMED_OUT = 124  # as timeout(1)


def exit_code(job: Mapping[str, Any]) -> int:
    """The job's code as a shell would say it: its own, or 128 + signal; never 0 unless COMPLETED."""
    code = 128 + job["exit_signal"] if job["exit_signal"] else job["exit_code"] or 0
    return code if code or job["state"] == "COMPLETED" else 1


def _final(session: Session, job_id: int, deadline: float | None) -> dict[str, Any] | None:
    lost: float | None = None
    while True:
        left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if left <= 0:
            return None
        try:
            answer = session.client.get(
                "jobs", job_id, "wait", timeout_s=round(left, 3), _timeout_s=POLL_S + 30
            )
            lost = None
        except Unreachable as error:
            now = time.monotonic()
            if lost is None:
                note(f"{error.what} Waiting for it to come back.")
            lost = now if lost is None else lost
            if now - lost > PATIENCE_S:
                raise
            time.sleep(0.5)
            continue
        if answer["final"]:
            job: dict[str, Any] = answer["job"]
            return job


def wait_for(
    session: Session, ids: Sequence[int], timeout_s: float | None = None, as_json: bool = False
) -> int:
    """The largest exit code of the jobs; TIMED_OUT when not all have ended in time."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ended = []
    for job_id in ids:
        job = _final(session, job_id, deadline)
        if job is None:
            note(f"Job {job_id} has not ended within {timeout_s:g} s.")
            return TIMED_OUT
        ended.append(job)
        if exit_code(job):
            reason = f" {job['reason']['message']}" if job.get("reason") else ""
            note(f"Job {job_id} ended {job['state']} ({job['exit'] or '-'}).{reason}")
    if as_json:
        emit_json({"jobs": ended})
    return max(map(exit_code, ended), default=0)


@click.command()
@jobs_operand
@click.option("--timeout", metavar="TIME", help="Give up after this time, such as 30s; exit with 124.")
@json_option
@click.pass_obj
def wait(
    session: Session, /, jobs: tuple[str, ...], job_words: tuple[str, ...], timeout: str | None, as_json: bool
) -> int:
    """Wait until all JOBs have ended; exit with the largest of their codes."""
    from rm.units import SECOND_US, parse_duration_us

    timeout_s = None if timeout is None else parse_duration_us(timeout) / SECOND_US
    return wait_for(session, job_ids((*jobs, *job_words)), timeout_s, as_json)
