"""The text of a dependency list: `afterok:12:13,after:7+5`, or with alternatives `afterok:12?afterany:13`.

Source: sbatch(1) of Slurm 22.05, --dependency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rm.arrays import INDEX_MAX, JobId, mask, parse_id, split
from rm.errors import UsageError
from rm.units import MINUTE_US

AFTER, AFTERANY, AFTEROK, AFTERNOTOK = "after", "afterany", "afterok", "afternotok"
AFTERCORR, SINGLETON = "aftercorr", "singleton"
KINDS = (AFTER, AFTERANY, AFTEROK, AFTERNOTOK, SINGLETON, AFTERCORR)
CONDITIONS_MAX = 1_000  # of one job: each change of one writes all of them
WRITTEN_MAX = 2 * CONDITIONS_MAX  # some of them more than once
# of the lists of elements that it names, together: each is worked on whole
LIST_INDICES_MAX, LIST_BYTES_MAX = 4 * INDEX_MAX, 100_000
MINUTES_MAX = 10 * 366 * 24 * 60

_JOB = r"([1-9]\d{0,17})(_(?:\*|\d{1,9}|\[[^\]]*\]))?(?:\+(\d{1,10}))?\Z"
_HINT = "Write KIND:JOB[:JOB...], KIND one of after, afterany, afterok, afternotok, aftercorr; or singleton."
# what Slurm knows besides, and why it is refused
_REFUSED = {
    "afterburstbuffer": "rm has no burst buffers",
    "expand": "rm does not change the hosts of a job",
}


class Condition(NamedTuple):
    """What is asked of one job; `job` is 0 for `singleton`. `delay_us` counts from its start (`after`).
    `tasks`: the elements of a job array that it is asked of, as rm.arrays writes them; "" = all."""

    kind: str
    job: int = 0
    delay_us: int = 0
    tasks: str = ""

    def __str__(self) -> str:
        if self.kind == SINGLETON:
            return self.kind
        delay = f"+{self.delay_us // MINUTE_US}" if self.delay_us else ""
        return f"{self.kind}:{JobId(self.job, self.tasks)}{delay}"


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
    parts = {between: split(text, between) for between in ",?"}
    if len(parts[","]) > 1 and len(parts["?"]) > 1:
        raise _wrong(text, "it has both ',' (all) and '?' (any)", "Separate the conditions by one of them.")
    any_of = len(parts["?"]) > 1
    found: list[Condition] = []
    indices = size = 0
    for part in parts["?" if any_of else ","]:
        for condition in _part(text, part.strip()):
            found.append(condition)
            if condition.tasks and not condition.tasks.isdigit():
                indices, size = indices + mask(condition.tasks).bit_length(), size + len(condition.tasks)
            if indices > LIST_INDICES_MAX or size > LIST_BYTES_MAX:
                raise UsageError("--dependency names too many elements of arrays.", "Name whole arrays.")
            if len(found) > WRITTEN_MAX:
                raise UsageError(
                    f"--dependency has more than {WRITTEN_MAX} conditions.", "Name each job once."
                )
    if any_of and any(one.kind == AFTERCORR for one in found) and any(one.delay_us for one in found):
        why = "beside '?' aftercorr and a time exclude each other"
        raise _wrong(text, why, "Let a job in between wait for the time.")
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


def _part(text: str, part: str) -> Iterable[Condition]:
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
    return (_condition(text, kind, job.strip()) for job in split(jobs, ":")[: WRITTEN_MAX + 1])


def _condition(text: str, kind: str, job: str) -> Condition:
    match = re.match(_JOB, job, re.ASCII)
    if match is None:
        raise _wrong(text, f"'{job[:80]}' is no job id", _HINT)
    minutes = int(match[3] or 0)
    if match[3] and kind != AFTER:
        raise _wrong(text, f"{kind} takes no time", f"Only after does: after:{match[1]}+{match[3]}.")
    if minutes > MINUTES_MAX:
        raise _wrong(text, f"{minutes} minutes are more than {MINUTES_MAX}", "Choose an earlier time.")
    return Condition(kind, int(match[1]), minutes * MINUTE_US, _tasks(text, kind, match[1], match[2] or ""))


def _tasks(text: str, kind: str, job: str, elements: str) -> str:
    """`_4`, `_[3-9]`, or `_*` for all, as rm.arrays writes them."""
    if elements in ("", "_*"):
        return ""
    if kind == AFTERCORR:
        raise _wrong(
            text, "aftercorr goes from element to element", f"Name the whole array: aftercorr:{job}."
        )
    try:
        return parse_id(job + elements).tasks
    except UsageError:
        raise _wrong(text, f"'{(job + elements)[:80]}' is no job id", _HINT) from None


def _wrong(text: str, why: str, hint: str) -> UsageError:
    return UsageError(f"--dependency is '{text[:200]}', and {why}.", hint)
