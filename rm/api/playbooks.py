"""Playbooks that may be started, their surveys, runs, what tasks came to, and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rm.api.answer import Answer, Request

OUTCOMES_MOST, RUNS_MOST = 1_000, 500  # in one answer
NOTES_MOST = 100  # in one request
Word = Annotated[str, Meta(max_length=100)]
Words = Annotated[Sequence[Word], Meta(max_length=50)]
Text = Annotated[str, Meta(max_length=4_096)]
Given = Annotated[dict[str, Any], Meta(max_length=500)]


class ListedPlaybook(msgspec.Struct, frozen=True, kw_only=True):
    """`about` is the comment in its first line."""

    name: str
    about: str = ""


class ListedPlaybooks(Answer, frozen=True, kw_only=True):
    playbooks: Sequence[ListedPlaybook]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that the survey asks for. `kind` is a type of Ansible's argument specifications; `choices`
    are all that it may be, `pattern` is for the whole of it. The default and the
    choices of a `private` one are not told; its answer is neither stored nor shown, and has at least four
    characters."""

    name: str
    text: str
    kind: str = "str"
    elements: str = ""
    default: Any = None
    required: bool = False
    choices: Sequence[Any] = ()
    private: bool = False
    pattern: str = ""


class Survey(Answer, frozen=True, kw_only=True):
    playbook: ListedPlaybook
    questions: Sequence[Question]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """As the options of `rmx playbook run`."""

    limit: str = ""
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    check: bool = False
    diff: bool = True


class StartPlaybook(Request, frozen=True, kw_only=True):
    """`answers` are those to the survey, by variable: a value of its type, or a text that says it."""

    answers: Given = msgspec.field(default_factory=dict)
    limit: Text = ""
    tags: Words = ()
    skip_tags: Words = ()
    check: bool = False
    diff: bool = True


class SchedulePlaybook(StartPlaybook, frozen=True, kw_only=True):
    """With a cron expression of five fields, in the time zone of `monitor.timezone`. Private answers cannot
    be given."""

    playbook: Annotated[str, Meta(min_length=1, max_length=100)]
    cron: Annotated[str, Meta(min_length=1, max_length=200)]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Ansible's counters of one host."""

    ok: int = 0
    changed: int = 0
    unreachable: int = 0
    failed: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is at, and since when."""

    task: str
    since_us: int


State = Literal["waiting", "running", "ok", "failed", "unreachable", "interrupted"]


class PlaybookRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `by` asked for it at `asked_us`; times are 0 until they come. `private` names the answers that
    are not kept. `schedule` began it, 0 = none. `told` by `rmx playbook run` in a shell: then `playbook` is
    its file, and `private` names its extra variables. `message` says why it ended so, where the counters do
    not. `not_reached` are hosts whose play was cut short."""

    id: int
    playbook: str
    by: str
    state: State
    asked_us: int
    began_us: int = 0
    ended_us: int = 0
    options: RunOptions
    answers: Mapping[str, Any] = {}
    private: Sequence[str] = ()
    schedule: int = 0
    told: bool = False
    message: str = ""
    notes: Sequence[str] = ()
    recap: Mapping[str, Counts] = {}
    not_reached: Sequence[str] = ()


class PlaybookRuns(Answer, frozen=True, kw_only=True):
    runs: Sequence[PlaybookRun]


class OnePlaybookRun(Answer, frozen=True, kw_only=True):
    """`doing`: by host, while it runs."""

    run: PlaybookRun
    doing: Mapping[str, Doing] = {}


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one task came to on one host, in the order of `number`. `status`: ok, changed, failed,
    unreachable, skipped, ignored or rescued. `took_us`: the time of its steps on the host, or until they were
    answered. `output` is the beginning of what a command printed, `diffs` what changed in files, `items`
    (label, status, message) of a loop. Secrets are ********."""

    number: int
    host: str
    play: str
    task: str
    module: str
    status: str
    at_us: int
    took_us: int
    message: str
    output: str
    diffs: Sequence[str]
    items: Sequence[tuple[str, str, str]]
    file: str
    line: int
    delegated: str


class TellPlaybook(Request, frozen=True, kw_only=True):
    """A run of a playbook that begins in a shell, outside the daemon. `variables` names its extra variables,
    whose values are not told."""

    playbook: Annotated[str, Meta(min_length=1, max_length=4_096)]
    variables: Annotated[Sequence[Word], Meta(max_length=500)] = ()
    limit: Text = ""
    tags: Words = ()
    skip_tags: Words = ()
    check: bool = False
    diff: bool = False


Short = Annotated[str, Meta(max_length=600)]
Long = Annotated[str, Meta(max_length=10_000)]


class ToldOutcome(TaskOutcome, frozen=True, kw_only=True):
    """The same, within the bounds of what is kept."""

    number: Annotated[int, Meta(ge=1, le=1 << 31)]
    host: Short
    play: Short
    task: Short
    module: Short
    status: Literal["ok", "changed", "failed", "unreachable", "skipped", "ignored", "rescued"]
    at_us: Annotated[int, Meta(ge=0, le=1 << 53)]
    took_us: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    message: Long = ""
    output: Long = ""
    diffs: Annotated[Sequence[Annotated[str, Meta(max_length=70_000)]], Meta(max_length=1_000)] = ()
    items: Annotated[Sequence[tuple[Short, Short, Long]], Meta(max_length=200)] = ()
    file: Text = ""
    line: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    delegated: Short = ""


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """A host has begun a task, after the outcomes of the same request, and is at it."""

    host: Short
    task: Short


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended."""

    state: Literal["ok", "failed", "unreachable", "interrupted"]
    message: Long = ""
    recap: Annotated[dict[Short, Counts], Meta(max_length=100_000)] = {}
    not_reached: Annotated[Sequence[Short], Meta(max_length=100_000)] = ()


class TellProgress(Request, frozen=True, kw_only=True):
    """What has happened since, without secrets; empty, it says that the run goes on. After `end` it is
    over. A `batch` with no larger number than one that has arrived was sent again, since its answer was lost,
    and changes nothing; 0: it has no number."""

    batch: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    began: Annotated[Sequence[Began], Meta(max_length=10_000)] = ()
    outcomes: Annotated[Sequence[ToldOutcome], Meta(max_length=OUTCOMES_MOST)] = ()
    notes: Annotated[Sequence[Short], Meta(max_length=NOTES_MOST)] = ()
    end: Ended | None = None


class TaskOutcomes(Answer, frozen=True, kw_only=True):
    """`next` is the `after` of those that follow, 0 = none: an answer has fewer than `limit` where they are
    long."""

    outcomes: Sequence[TaskOutcome]
    next: int = 0


class PlaybookSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """`next_us` is when it is due next, null = never. `last_run` is the run that it began last, and `last_us`
    when it was due; `message` says why it began none then."""

    id: int
    playbook: str
    cron: str
    by: str
    since_us: int
    options: RunOptions
    answers: Mapping[str, Any] = {}
    last_us: int = 0
    last_run: int = 0
    next_us: int | None = None
    message: str = ""


class PlaybookSchedules(Answer, frozen=True, kw_only=True):
    schedules: Sequence[PlaybookSchedule]


class OnePlaybookSchedule(Answer, frozen=True, kw_only=True):
    schedule: PlaybookSchedule
