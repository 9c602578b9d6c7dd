"""The text of a dependency list: `afterok:12:13,after:7+5`, or with alternatives `afterok:12?afterany:13`.

Source: sbatch(1) of Slurm 22.05, --dependency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rm.errors import UsageError
from rm.units import MINUTE_US

AFTER, AFTERANY, AFTEROK, AFTERNOTOK, SINGLETON = "after", "afterany", "afterok", "afternotok", "singleton"
KINDS = (AFTER, AFTERANY, AFTEROK, AFTERNOTOK, SINGLETON)
CONDITIONS_MAX = 1_000  # of one job: each change of one writes all of them
MINUTES_MAX = 10 * 366 * 24 * 60

_JOB = r"([1-9]\d{0,17})(?:\+(\d{1,10}))?\Z"
_ELEMENT = r"\d+_(\d+|\*|\[.*\])\Z"
_HINT = "Write KIND:JOB[:JOB...], KIND one of after, afterany, afterok, afternotok; or singleton."
# what Slurm knows besides, and why it is refused
_REFUSED = {
    "aftercorr": "it goes from element to element of two job arrays; afterok waits for the whole array",
    "afterburstbuffer": "rm has no burst buffers",
    "expand": "rm does not change the hosts of a job",
}


class Condition(NamedTuple):
    """What is asked of one job; `job` is 0 for `singleton`. `delay_us` counts from its start (`after`)."""

    kind: str
    job: int = 0
    delay_us: int = 0

    def __str__(self) -> str:
        if self.kind == SINGLETON:
            return self.kind
        return f"{self.kind}:{self.job}" + (f"+{self.delay_us // MINUTE_US}" if self.delay_us else "")


class Conditions(NamedTuple):
    """`any_of`: one of them is enough; otherwise all must be met."""

    of: tuple[Condition, ...] = ()
    any_of: bool = False


def parse(text: str) -> Conditions:
    """The conditions of a list, each once; none for an empty text.

    Raises:
        UsageError: it is no such list; a single sentence says what is wrong.
    """
    text = text.strip()
    if not text:
        return Conditions()
    if "," in text and "?" in text:
        raise _wrong(text, "it has both ',' (all) and '?' (any)", "Separate the conditions by one of them.")
    any_of = "?" in text
    found = [one for part in text.split("?" if any_of else ",") for one in _part(text, part.strip())]
    unique = tuple(dict.fromkeys(found))
    if len(unique) > CONDITIONS_MAX:
        raise UsageError(
            f"--dependency has {len(unique)} conditions, and a job may have {CONDITIONS_MAX}.",
            "Let jobs in between wait for some of them each.",
        )
    return Conditions(unique, any_of)


def with_standings(standings: Iterable[tuple[Condition, str]], asked: str) -> str:
    """The list that was asked for in scontrol's form: `afterok:12(unfulfilled)`."""
    between = "?" if "?" in asked else ","
    return between.join(f"{condition}({standing})" for condition, standing in standings)


def _part(text: str, part: str) -> list[Condition]:
    if not part:
        raise _wrong(text, "a condition is empty", _HINT)
    kind, colon, jobs = part.partition(":")
    kind = kind.strip().lower()
    if kind == SINGLETON and not colon:
        return [Condition(SINGLETON)]
    if kind[:1].isdigit():  # Slurm's older form: job ids alone
        kind, jobs = AFTERANY, part
    if kind in _REFUSED:
        raise _wrong(text, f"{kind} is not supported: {_REFUSED[kind]}", _HINT)
    if kind not in KINDS or kind == SINGLETON:
        raise _wrong(text, f"'{part[:80]}' is no condition", _HINT)
    return [_condition(text, kind, job.strip()) for job in jobs.split(":")]


def _condition(text: str, kind: str, job: str) -> Condition:
    match = re.match(_JOB, job)
    if match is None:
        if re.match(_ELEMENT, job):
            raise _wrong(text, f"'{job[:80]}' names an element of a job array", "Name the whole array.")
        raise _wrong(text, f"'{job[:80]}' is no job id", _HINT)
    minutes = int(match[2] or 0)
    if match[2] and kind != AFTER:
        raise _wrong(text, f"{kind} takes no time", f"Only after does: after:{match[1]}+{match[2]}.")
    if minutes > MINUTES_MAX:
        raise _wrong(text, f"{minutes} minutes are more than {MINUTES_MAX}", "Choose an earlier time.")
    return Condition(kind, int(match[1]), minutes * MINUTE_US)


def _wrong(text: str, why: str, hint: str) -> UsageError:
    return UsageError(f"--dependency is '{text[:200]}', and {why}.", hint)
