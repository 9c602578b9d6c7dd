"""Which jobs `sacct` lists by what they had and asked for, and the scripts of jobs.

Source: sacct(1) of Slurm 22.05, and as_mysql_jobacct_process.c: a number alone is that number.
"""

from __future__ import annotations

from rm.cli.shown import job_ref
from rm.cli.slurm.accounting.sacct_fields import cpus
from rm.errors import UsageError
from rm.imported_later import re
from rm.units import parse_time_limit_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rm.api.jobs import Job

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_WORD = re.compile(r"[\w.-]+")
ENDLESS_US = 1 << 62  # no time limit: longer than each
NO_SCRIPT = "NONE"


def filters(options: Mapping[str, str]) -> list[Callable[[Job], bool]]:
    """Each must be true of a job. Jobs that never ran had neither hosts nor processors.

    Raises:
        UsageError: a range or a time cannot be read.
    """
    tests: list[Callable[[Job], bool]] = []
    if text := options.get("nnodes"):
        tests.append(_within(text, "nnodes", lambda job: len(job.hosts)))
    if text := options.get("ncpus"):
        tests.append(_within(text, "ncpus", lambda job: cpus(job) if job.hosts else 0))
    if text := options.get("timelimit-min"):
        least_us = _time_us(text)
        most_us = _time_us(options["timelimit-max"]) if options.get("timelimit-max") else least_us
        tests.append(lambda job: least_us <= (job.spec.time_limit_us or ENDLESS_US) <= most_us)
    if names := {word.strip() for word in options.get("constraints", "").split(",") if word.strip()}:
        tests.append(lambda job: names <= set(_WORD.findall(job.spec.constraint)))
    return tests


def _within(text: str, option: str, number: Callable[[Job], int]) -> Callable[[Job], bool]:
    found = _RANGE.match(text.strip())
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UsageError(f"--{option} is '{text[:40]}'.", "Write a number, or a range such as 2-4.")
    least, most = int(found[1]), int(found[2] or found[1])
    return lambda job: least <= number(job) <= most


def _time_us(text: str) -> int:
    limit_us = parse_time_limit_us(text)
    return ENDLESS_US if limit_us is None else limit_us


def script_in(job: Job) -> str:
    """The script; "" where it is not told: of another user's job, or one from a list."""
    script = getattr(job.spec, "script", None)
    return script if isinstance(script, str) else ""


def script_of(job: Job, of_arrays: Mapping[int, str]) -> str:
    """As --batch-script shows it, under the id that users know (`36_2`); NONE where it is not told.
    `of_arrays`: by the id of an array, for its elements."""
    text = script_in(job) or of_arrays.get(job.array_job or 0) or f"{NO_SCRIPT}\n"
    return f"Batch Script for {job_ref(job)}\n{'-' * 80}\n{text}{'' if text.endswith(chr(10)) else chr(10)}"
