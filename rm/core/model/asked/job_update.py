"""What `rmx set` changes of a job's specification after its submission."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from rm.core.model.quickly_made import quickly_made

Spec = TypeVar("Spec")  # a JobSpec, which a job has beside its updates


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """New values of fields of a JobSpec, in its units; None: the field stays. Of
    the times, 0 is none."""

    name: str | None = None
    comment: str | None = None
    mail_events: str | None = None
    mail_user: str | None = None
    partition: str | None = None
    priority: int | None = None
    nice: int | None = None
    time_limit_us: int | None = None
    begin_us: int | None = None
    deadline_us: int | None = None
    time_min_us: int | None = None
    requeue: bool | None = None
    hosts_only: tuple[str, ...] | None = None
    hosts_excluded: tuple[str, ...] | None = None
    constraint: str | None = None
    prefer: str | None = None
    licenses: str | None = None
    reservation: str | None = None
    account: str | None = None
    qos: str | None = None
    dependency: str | None = None
    hosts_min: int | None = None
    hosts_max: int | None = None
    ntasks: int | None = None
    tasks_per_host: int | None = None
    cpus_per_task: int | None = None
    mem_bytes_per_task: int | None = None
    mem_bytes_per_host: int | None = None
    mem_all: bool | None = None
    gpus_per_task: int | None = None
    gpus_per_host: int | None = None
    gpu_type: str | None = None
    exclusive: bool | None = None
    exclusive_user: bool | None = None

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that get a new value, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    def and_then(self, other: JobUpdate) -> JobUpdate:
        """Both changes, of which the other is the later one."""
        return replace(self, **other.changed)

    def without(self, other: JobUpdate) -> JobUpdate | None:
        """What is left of this change where another one has set its own fields anew; None: nothing."""
        left = replace(self, **dict.fromkeys(other.changed))
        return left if left.changed else None

    def applied(self, spec: Spec) -> Spec:
        """The specification with the new values."""
        changed = self.changed
        for name in TIMES:
            if name in changed:
                changed[name] = changed[name] or None
        if "exclusive" in changed:
            changed.setdefault("exclusive_user", False)
        elif changed.get("exclusive_user"):
            changed["exclusive"] = False
        given: Any = spec
        applied: Spec = replace(given, **changed)
        return applied

    def __str__(self) -> str:
        """For a job's story: `name=x, time_limit_us=none`."""
        return ", ".join(f"{name}={_shown(value)}" for name, value in self.changed.items())


TIMES = ("time_limit_us", "begin_us", "deadline_us", "time_min_us")
NAMES = tuple(field.name for field in fields(JobUpdate))
# what may change while the job runs: nothing that its hosts or other jobs have been promised
WHILE_RUNNING = frozenset({"name", "comment", "requeue", "nice", "time_limit_us", "mail_events", "mail_user"})
# what its hosts have given to a job that runs; an array's elements share their specification
GIVEN = frozenset(
    {"ntasks", "tasks_per_host", "cpus_per_task", "mem_bytes_per_task", "mem_bytes_per_host", "mem_all",
     "gpus_per_task", "gpus_per_host", "gpu_type", "exclusive", "exclusive_user", "licenses", "hosts_min",
     "hosts_max", "priority", "account", "qos"}
)  # fmt: skip
# what decides neither where nor when a job starts
SAID_ONLY = frozenset({"name", "comment", "requeue", "mail_events", "mail_user"})
SHOWN_MAX = 80


def _shown(value: Any) -> str:
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return (text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...") or "none"
