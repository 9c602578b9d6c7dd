"""`rmx logs`: what tasks wrote, also while they run."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from rm.cli.session import Session, job_operand, note, one_job
from rm.errors import RmError, UsageError


@click.command()
@job_operand
@click.option("--task", type=click.IntRange(0), metavar="RANK", help="Which task (default: 0).")
@click.option("-l", "--label", is_flag=True, help="All tasks; each line begins with its task's rank.")
@click.option("--stderr", "error", is_flag=True, help="Standard error, when the job keeps it apart.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task ends.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="The last N lines only.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Begin there.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="Which attempt, from 1 (default: newest)."
)
@click.pass_obj
def logs(
    session: Session,
    /,
    job: str | None,
    job_word: str | None,
    task: int | None,
    label: bool,
    error: bool,
    follow: bool,
    tail: int | None,
    offset: int,
    attempt: int | None,
) -> None:
    """Print the output of a task of JOB, byte by byte as it was written."""
    if tail and offset:
        raise UsageError("--tail and --offset are mutually exclusive.")
    if label and task is not None:
        raise UsageError("--label prints all tasks, and --task names one.", "Leave one of them out.")
    job_id = one_job(job, job_word)
    asked = {
        "stream": "err" if error else "out", "offset": offset, "lines": tail, "follow": follow,
        "attempt": attempt,
    }  # fmt: skip
    if not label:
        write(stream(session, job_id, task or 0, asked))
        return
    spec = session.client.get("jobs", job_id)["job"]["spec"]
    file = spec["error" if error else "output"]
    if file and spec["ntasks"] > 1 and not re.search(r"%\d*t", file):
        raise UsageError(
            f"The tasks of job {job_id} share the file {file}, where no line tells which task wrote it.",
            "Leave --label out; --output with %t gives each task a file of its own.",
        )
    Labelled(session, job_id, asked, spec["ntasks"], sys.stdout.buffer.write).print(at_once=follow)


def stream(session: Session, job: int, rank: int, asked: dict[str, Any]) -> Iterator[bytes]:
    return session.client.stream("jobs", job, "logs", _note=note, task=rank, **asked)


def write(chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


class Labelled:
    """All tasks' output, line by line, each behind its rank: `srun --label`'s form."""

    def __init__(
        self, session: Session, job: int, asked: dict[str, Any], count: int, write: Callable[[bytes], object]
    ) -> None:
        self._session, self._job, self._asked, self._count = session, job, asked, count
        self._write = write
        self._width = len(str(count - 1))
        self._lock = threading.Lock()
        self._failures: list[RmError] = []

    def print(self, at_once: bool) -> None:
        """One task after the other, or all as they come. What some tasks lack does not keep the others'.

        Raises:
            RmError: of the first task whose log could not be read; the others' are told beside.
        """
        work = [partial(self._print, rank) for rank in range(self._count)]
        if at_once:
            threads = [threading.Thread(target=one, daemon=True) for one in work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for one in work:
                one()
        for failure in self._failures[1:]:
            note(str(failure))
        if self._failures:
            raise self._failures[0]

    def _print(self, rank: int) -> None:
        prefix = b"%*d: " % (self._width, rank)
        client, rest = self._session.new_client(), b""
        try:
            for chunk in client.stream("jobs", self._job, "logs", _note=note, task=rank, **self._asked):
                *whole, rest = (rest + chunk).split(b"\n")
                self._say(prefix, whole)
        except RmError as error:
            with self._lock:
                self._failures.append(error)
        finally:
            client.close()
        self._say(prefix, [rest] if rest else [])

    def _say(self, prefix: bytes, lines: list[bytes]) -> None:
        with self._lock:
            self._write(b"".join(prefix + line + b"\n" for line in lines))
            sys.stdout.buffer.flush()
