"""Patterns of the names of jobs' files. Source: "filename pattern" of sbatch(1), Slurm 22.05."""

from __future__ import annotations

from rm.imported_later import re

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

Letters = dict[str, "str | int | None"]  # what each letter stands for; None: nothing

PATTERN = r"%([0-9]*)([A-Za-z%])"  # %j, %4t
WIDEST = 10
SCRIPT = "batch"  # the step that %s names
NO_ELEMENT = 4294967294  # what %a is in a job that is no array. Source: NO_VAL of slurm.h


def values_of(job: int, array_job: int | None, array_task: int | None, name: str, user: str) -> Letters:
    """What the letters stand for that are the same on all hosts of a job."""
    return {
        "j": job,
        "J": job,
        "A": array_job or job,
        "a": NO_ELEMENT if array_task is None else array_task,
        "s": SCRIPT,
        "x": name,
        "u": user,
    }


def replaced(pattern: str, values: Mapping[str, str | int | None]) -> str:
    """The pattern with each `%LETTER` of `values`; a number has as many digits as the width in `%4t` says.
    What is not there, or None, stays as it is; `%%` is a percent sign. In a pattern with a backslash nothing
    is replaced, and the backslash is left out."""
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern)

    def value_of(match: re.Match[str]) -> str:
        width, key = match[1], match[2]
        if key == "%":
            return "%"
        value = values.get(key)
        if isinstance(value, int) and width:
            return str(value).zfill(min(int(width[:3]), WIDEST))
        return match[0] if value is None else str(value)

    return re.sub(PATTERN, value_of, pattern)


def for_each_element(pattern: str) -> str:
    """`rm-%j.out` to `rm-%A_%a.out`, as Slurm names the output of the elements of an array."""
    return pattern if re.search(r"%\d*a", pattern) else re.sub(r"%\d*j", "%A_%a", pattern)


def for_each_task(pattern: str) -> str:
    """`rm-%j.out` to `rm-%j.%t.out`: the tasks of a job must not share a name."""
    if re.search(r"%\d*t", pattern):
        return pattern
    stem, dot, suffix = pattern.rpartition(".")
    return f"{stem}.%t{dot}{suffix}" if stem else f"{pattern}.%t"
