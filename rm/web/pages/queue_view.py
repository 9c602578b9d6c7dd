"""The queue: running jobs, waiting ones in the order of their turns, and those that ended lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.api.jobs import Job
from rm.units import fold_hosts, format_elapsed
from rm.web.pages.text import Look, look, shown

OCCUPYING = ("CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING")
MOST = 100  # jobs of each group on the page
OWN_MOST = 30  # of the person's own


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    name: str
    user: str
    owner: str
    state: str
    short: str
    look: str  # "" = it has not run
    elapsed: str
    tasks: int
    hosts: str
    reason: str  # (Code) sentence
    high: bool


@dataclass(frozen=True, slots=True)
class Group:
    """`title`, the jobs shown, and how many there are."""

    key: str
    title: str
    rows: tuple[Row, ...]
    count: int


def elapsed_us(job: Job, now_us: int) -> int:
    """How long it has run, or ran, without the time for which it was suspended."""
    if job.started_us is None:
        return 0
    return max(0, int((job.ended_us or job.suspended_us or now_us) - job.started_us - job.stood_us))


def group_of(state: str) -> str:
    if state in OCCUPYING:
        return "running"
    return "pending" if state == "PENDING" else "ended"


def queue(jobs: Sequence[Job], counts: Mapping[str, int], now_us: int, look: Look = look) -> list[Group]:
    """`counts` of all jobs by state: there may be more than the page shows."""
    found: dict[str, list[Job]] = {"running": [], "pending": [], "ended": []}
    for job in jobs:
        found[group_of(job.state)].append(job)
    ended = found["ended"]
    ended.sort(key=lambda job: job.ended_us or 0)
    totals = dict.fromkeys(found, 0)
    for state, count in counts.items():
        totals[group_of(state)] += count
    titles = {"running": "Running", "pending": "Waiting", "ended": "Ended lately"}
    drawn = {
        "running": found["running"][-MOST:],
        "pending": found["pending"][:MOST],
        "ended": found["ended"][: -MOST - 1 : -1],
    }
    return [
        Group(
            key,
            titles[key],
            tuple(row(job, now_us, look) for job in drawn[key]),
            max(len(group), totals[key]),
        )
        for key, group in found.items()
    ]


def own(jobs: Sequence[Job], now_us: int, look: Look = look) -> Group:
    """A person's own: those that run, those that wait, and the newest that have ended."""
    order = {"running": 0, "pending": 1, "ended": 2}
    shown = sorted(jobs, key=lambda job: (order[group_of(job.state)], -job.id))
    return Group("own", "Your jobs", tuple(row(job, now_us, look) for job in shown[:OWN_MOST]), len(jobs))


def row(job: Job, now_us: int, look: Look = look) -> Row:
    reason = job.reason
    return Row(
        id=job.id,
        name=shown(job.spec.name),
        user=shown(job.spec.user, 32),
        owner=job.spec.user,
        state=job.state + (" (held)" if job.held else ""),
        short=job.short_state,
        look=look(job.id) if job.started_us is not None else "",
        elapsed=format_elapsed(elapsed_us(job, now_us)) if job.started_us is not None else "–",
        tasks=job.spec.ntasks,
        hosts=shown(fold_hosts(job.hosts)) if job.hosts else "–",
        reason=f"({shown(reason.code)}) {shown(reason.message, 300)}" if reason else "",
        high=job.spec.priority >= 100,
    )
