"""`rmx logs`: what tasks wrote, also while they run."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from rm.cli.output import note
from rm.cli.session import Session, job_operand, one_job
from rm.client.job_files import writers
from rm.errors import RmError, UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Spec


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
    client = session.client
    read = partial(
        client.logs, job_id, stream="err" if error else "out", offset=offset, lines=tail, follow=follow,
        attempt=attempt, on_note=note,
    )  # fmt: skip
    if not label:
        write(read(task or 0))
        return
    spec = client.job(job_id).spec
    if file := shared_file(spec, error):
        raise UsageError(
            f"The tasks of job {job_id} share the file {file}, where no line tells which task wrote it.",
            "Leave --label out; --output with %t gives each task a file of its own.",
        )
    Labelled(read, writers(spec), sys.stdout.buffer.write).print(at_once=follow)


def shared_file(spec: Spec, error: bool) -> str:
    """The file into which several tasks of the job write; "" if each has its own."""
    file = spec.error if error else spec.output
    return "" if writers(spec) == 1 or re.search(r"%\d*t", file) else file


def write(chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


class Labelled:
    """All tasks' output, line by line, each behind its rank: `srun --label`'s form."""

    def __init__(
        self, read: Callable[[int], Iterator[bytes]], count: int, write: Callable[[bytes], object]
    ) -> None:
        """`read` gives the output of a rank."""
        self._read, self._count, self._write = read, count, write
        self._width = len(str(count - 1))
        self._lock = threading.Lock()
        self._failures: list[RmError] = []

    def print(self, at_once: bool) -> None:
        """One task after the other, or all as they come. What some tasks lack does not keep the others'.

        Raises:
            RmError: of the first task whose log could not be read; the others' are reported beside it.
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
        rest = b""
        try:
            for chunk in self._read(rank):
                *whole, rest = (rest + chunk).split(b"\n")
                self._say(prefix, whole)
        except RmError as error:
            with self._lock:
                self._failures.append(error)
        self._say(prefix, [rest] if rest else [])

    def _say(self, prefix: bytes, lines: list[bytes]) -> None:
        with self._lock:
            self._write(b"".join(prefix + line + b"\n" for line in lines))
            sys.stdout.buffer.flush()
