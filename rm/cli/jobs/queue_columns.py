"""The columns of `rmx queue`: their names, and the letters that Slurm's `squeue -o` has for them."""

from __future__ import annotations

from _operator import attrgetter, itemgetter  # the module around it is not needed

from rm.api.job_rows import JobRow
from rm.cli.shown import elapsed_us, ends_by_us, moment, row_ref
from rm.errors import UsageError
from rm.quick_tuple import NamedTuple
from rm.units import fold_hosts, format_bytes, format_elapsed, format_time_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from rm.cli.formats import Format


def _by_array(job: JobRow) -> tuple[int, int]:
    return job.array_job or job.id, job.array_task or 0


def _array_task(job: JobRow) -> str:
    if job.array_rest is not None:
        return job.array_rest
    return "N/A" if job.array_task is None else str(job.array_task)


def where_or_why(job: JobRow) -> str:
    if job.state == "PENDING":
        return f"({job.reason or None})"
    reason = f"({job.reason})" if job.reason else ""
    return " ".join(filter(None, (fold_hosts(job.hosts), reason)))


def _refs(jobs: Sequence[JobRow]) -> Iterable[str]:
    if set(map(attrgetter("array_task"), jobs)) <= {None} and not any(map(attrgetter("array_rest"), jobs)):
        return map(str, map(attrgetter("id"), jobs))
    return map(row_ref, jobs)


def _mem(job: JobRow) -> str:
    """Of each host or each task, as it was asked for."""
    if not job.mem_each:
        return "all/host"
    return f"{format_bytes(job.mem_bytes)}/{job.mem_each}" if job.mem_bytes else "0"


def _ends_by_us(job: JobRow) -> int | None:
    return ends_by_us(job, job.time_limit_us)


def _left_us(job: JobRow) -> int | None:
    limit_us = job.time_limit_us
    return None if limit_us is None else max(0, limit_us - elapsed_us(job))


class Column(NamedTuple):
    """`text` is what is shown, `order` what is sorted by (the text, unless given). `of`: the fields that the
    text of a job without hosts follows from; none: it is each job's own. `of_many`: the texts of many jobs,
    where that takes less than asking for each."""

    name: str
    header: str
    letter: str
    text: Callable[[JobRow], Any]
    order: Callable[[JobRow], Any] | None = None
    right: bool = False
    of: Sequence[str] = ()
    of_many: Callable[[Sequence[JobRow]], Iterable[Any]] | None = None

    def texts(self, jobs: Sequence[JobRow]) -> Iterable[Any]:
        """Of each job what is shown."""
        return map(self.text, jobs) if self.of_many is None else self.of_many(jobs)

    def key(self, job: JobRow) -> tuple[bool, Any]:
        """Sorts; what there is none of comes last."""
        value = (self.order or self.text)(job)
        return value is None, value


COLUMNS = {
    column.name: column
    for column in (
        Column("jobid", "JOBID", "i", row_ref, _by_array, right=True, of_many=_refs),
        Column("arrayjobid", "ARRAY_JOB_ID", "F", lambda j: j.array_job or j.id, right=True),
        Column("arraytaskid", "ARRAY_TASK_ID", "K", _array_task, right=True),
        Column("partition", "PARTITION", "P", lambda j: j.partition or "-", of=("partition",)),
        Column("name", "NAME", "j", attrgetter("name"), of=("name",)),
        Column("user", "USER", "u", attrgetter("user"), of=("user",)),
        Column("st", "ST", "t", attrgetter("short_state"), of=("short_state",)),
        Column("state", "STATE", "T", attrgetter("state"), of=("state",)),
        Column(
            "time", "TIME", "M", lambda j: format_elapsed(elapsed_us(j)), elapsed_us, right=True,
            of=("started_us", "ended_us", "suspended_us", "stood_us"),
        ),
        Column(
            "timelimit", "TIME_LIMIT", "l", lambda j: format_time_limit(j.time_limit_us),
            attrgetter("time_limit_us"), right=True,
            of=("time_limit_us",),
        ),
        Column("timeleft", "TIME_LEFT", "L", lambda j: format_time_limit(_left_us(j)), _left_us, right=True),
        Column("gpus", "GPUS", "b", attrgetter("gpus"), right=True, of=("gpus",)),
        Column("tasks", "TASKS", "n", attrgetter("tasks"), right=True, of=("tasks",)),
        Column("hosts", "HOSTS", "D", lambda j: len(j.hosts), right=True),
        Column("cpus", "CPUS", "C", attrgetter("cpus"), right=True, of=("cpus",)),
        Column("mem", "MEM", "m", _mem, attrgetter("mem_bytes"), right=True),
        Column("priority", "PRIORITY", "Q", attrgetter("priority"), right=True),
        Column(
            "submit", "SUBMIT_TIME", "V", lambda j: moment(j.submitted_us), attrgetter("submitted_us")
        ),
        Column("start", "START_TIME", "S", lambda j: moment(j.started_us), attrgetter("started_us")),
        Column("end", "END_TIME", "e", lambda j: moment(_ends_by_us(j)), _ends_by_us),
        Column("workdir", "WORK_DIR", "Z", attrgetter("chdir")),
        Column("comment", "COMMENT", "k", attrgetter("comment")),
        Column("nodelist", "NODELIST", "N", lambda j: fold_hosts(j.hosts)),
        Column("reason", "REASON", "r", lambda j: j.reason or "None"),
        Column("where", "HOSTS(REASON)", "R", where_or_why, of=("state", "reason")),
    )
}  # fmt: skip
USUAL = ("jobid", "partition", "name", "user", "st", "time", "gpus", "tasks", "where")
LONG = (
    "jobid",
    "partition",
    "name",
    "user",
    "state",
    "submit",
    "time",
    "timelimit",
    "gpus",
    "cpus",
    "tasks",
    "where",
)
_NUMBER = Column("id", "JOBID", "A", attrgetter("id"), right=True)
_LETTERS = {column.letter: column for column in (*COLUMNS.values(), _NUMBER)}


def kinds_of(jobs: Sequence[JobRow], columns: Sequence[Column]) -> tuple[Sequence[JobRow], Sequence[int]]:
    """Jobs that differ in what these columns show, and of each job which of them is like it: of ten thousand
    that wait there are a few kinds. A job that has hosts is like no other."""
    # never one field alone, which would come without its tuple
    fields = {"state", "reason", *(field for column in columns for field in column.of)}
    pick = itemgetter(*(place for place, name in enumerate(JobRow._fields) if name in fields))
    number_of: dict[Any, int] = {}
    kinds: list[JobRow] = []
    numbers: list[int] = []
    for job in jobs:  # each is looked at once, as long as it is at hand
        key = (len(kinds),) if job.hosts else pick(job)
        number = number_of.setdefault(key, len(kinds))
        if number == len(kinds):
            kinds.append(job)
        numbers.append(number)
    return kinds, numbers


def _no_column(word: str) -> UsageError:
    return UsageError(f"'{word}' is not a column of the queue.", f"Choose from {', '.join(COLUMNS)}.")


def named(text: str) -> Column:
    """A column by its name, its header or Slurm's letter.

    Raises:
        UsageError: there is none; the message has those there are.
    """
    word = text.strip()
    by_header = {column.header.lower(): column for column in COLUMNS.values()}
    found = _LETTERS.get(word.removeprefix("%")) or COLUMNS.get(word.lower()) or by_header.get(word.lower())
    if found is None:
        raise _no_column(word)
    return found


def chosen(names: str) -> list[Column]:
    """`jobid,name,gpus`"""
    return [named(name) for name in names.split(",") if name.strip()]


def slurm_format(form: str) -> Format:
    """Slurm's `%.8i %j`: as squeue cuts and aligns.

    Raises:
        UsageError: a % without a letter that names a column.
    """
    from rm.cli.formats import by_letters  # here: the usual list starts without it

    return by_letters(form, _LETTERS, lambda letter, _: _no_column("%" + letter))


def ordered(jobs: Sequence[JobRow], by: str) -> list[JobRow]:
    """Sorted by `name,-gpus` or Slurm's letters: the first decides, a minus turns the order round."""
    found = list(jobs)
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        column = named(word.lstrip("+-"))
        found.sort(key=column.key, reverse=word.startswith("-"))
    return found
