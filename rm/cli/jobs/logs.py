"""`rmx logs`: what tasks wrote, also while they run."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import click

from rm.arrays import JobId, each, mask, text_of
from rm.cli.array_elements import chosen_of
from rm.cli.output import note
from rm.cli.session import Session, job_operand, one_job
from rm.client.job_files import writers
from rm.errors import Conflict, RmError, UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Job, Spec

FOLLOWED_MAX = 32  # elements of an array: each over a connection of its own


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
    """Print the output of a task of JOB, byte by byte as it was written.

    Of an array, or of elements such as 36_[3-9], those that have begun are printed one after the other, each
    below its name; with --follow each line begins with its element.
    """
    if tail and offset:
        raise UsageError("--tail and --offset are mutually exclusive.")
    if label and task is not None:
        raise UsageError("--label prints all tasks, and --task names one.", "Leave one of them out.")
    named = one_job(job, job_word, several=True)
    client = session.client
    read = partial(
        client.logs, stream="err" if error else "out", offset=offset, lines=tail, follow=follow,
        attempt=attempt, on_note=note,
    )  # fmt: skip
    if not label and (not named.tasks or named.tasks.isdigit()):
        try:
            write(read(named, task or 0))
            return
        except Conflict:  # is it one of a whole array?
            if named.tasks or client.job(named).array is None:
                raise
    found = client.job(JobId(named.job) if not named.tasks.isdigit() else named)
    if found.array is not None:
        if label:
            raise UsageError("--label prints the tasks of one job.", "Name one element of the array.")
        names = _begun(found, named, follow)
        if follow:
            Labelled(lambda one: read(names[one], task or 0), names, sys.stdout.buffer.write).print(True)
        else:
            _one_below_the_other(names, lambda one: read(one, task or 0))
        return
    if named.tasks and not named.tasks.isdigit():
        chosen_of(found, named.tasks)  # which says that it is no array
    spec = found.spec
    if file := shared_file(spec, error):
        raise UsageError(
            f"The tasks of job {named} share the file {file}, where no line tells which task wrote it.",
            "Leave --label out; --output with %t gives each task a file of its own.",
        )
    ranks = range(writers(spec))
    Labelled(partial(read, named), ranks, sys.stdout.buffer.write).print(at_once=follow)


def _begun(job: Job, named: JobId, follow: bool) -> list[JobId]:
    """Those of the elements that have jobs of their own; a note names the others."""
    chosen = chosen_of(job, named.tasks)
    assert job.array is not None
    rest = (mask(job.array.waiting) | mask(job.array.dropped)) & chosen
    begun = chosen & ~rest
    if rest:
        note(f"Job {str(JobId(job.id, text_of(rest)))[:80]} has not begun, and has no output.")
    if follow and begun.bit_count() > FOLLOWED_MAX:
        raise UsageError(
            f"{begun.bit_count()} elements have begun, and at most {FOLLOWED_MAX} are followed at once.",
            "Name fewer, or leave --follow out.",
        )
    return [JobId(job.id, str(task)) for task in each(begun)]


def _one_below_the_other(names: Sequence[JobId], read: Callable[[JobId], Iterator[bytes]]) -> None:
    """What one element lacks does not keep the others'.

    Raises:
        RmError: of the last one whose log could not be read; the others' are reported beside it.
    """
    failure: RmError | None = None
    for name in names:
        try:
            found = read(name)
            first = next(found, b"")
        except RmError as error:
            if failure is not None:
                note(str(failure))
            failure = error
            continue
        write(chain([f"==> {name} <==\n".encode(), first], found))
    if failure is not None:
        raise failure


def shared_file(spec: Spec, error: bool) -> str:
    """The file into which several tasks of the job write; "" if each has its own."""
    file = spec.error if error else spec.output
    return "" if writers(spec) == 1 or re.search(r"%\d*t", file) else file


def write(chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


class Labelled:
    """All tasks' output, line by line, each behind its rank, `srun --label`'s form, or its element."""

    def __init__(
        self,
        read: Callable[[int], Iterator[bytes]],
        labels: Sequence[object],
        write: Callable[[bytes], object],
    ) -> None:
        """`read` gives the output of the task with that number among the labels."""
        self._read, self._write = read, write
        self._labels = [str(label) for label in labels]
        self._width = max(map(len, self._labels), default=0)
        self._lock = threading.Lock()
        self._failures: list[RmError] = []

    def print(self, at_once: bool) -> None:
        """One task after the other, or all as they come. What some tasks lack does not keep the others'.

        Raises:
            RmError: of the first task whose log could not be read; the others' are reported beside it.
        """
        work = [partial(self._print, rank) for rank in range(len(self._labels))]
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
        prefix = f"{self._labels[rank]:>{self._width}}: ".encode()
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
