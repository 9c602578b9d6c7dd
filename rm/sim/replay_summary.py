"""What another policy would have changed: job by job, and in a few numbers.

Three columns: the journal's record; the policies of the journal in the model of `rm.sim.whatif`
(how far the model is from what happened); and the other policies in the same model. The second
and the third differ by the policies alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rm.sim.recording import Recording, Story
from rm.sim.summary import quantile
from rm.sim.whatif import Fate

# metric -> what it says, unit
METRICS: Mapping[str, tuple[str, str]] = {
    "mean_wait_s": ("from the submission (or --begin) to the start", "s"),
    "p95_wait_s": ("95th percentile of it", "s"),
    "mean_jct_s": ("from the submission to the end", "s"),
    "makespan_s": ("from the first submission to the last end", "s"),
    "mean_hosts": ("hosts per job", ""),
    "mean_score": ("mean score of the worst link a job shared when it was placed", ""),
    "worst_score": ("the worst of these", ""),
}
SAME_US = 1_000  # starts closer than this are the same


@dataclass(frozen=True, slots=True)
class Row:
    """One job under the three."""

    story: Story
    recorded: Fate
    modelled: Fate
    replayed: Fate

    @property
    def due_us(self) -> int:
        return max(self.story.submitted_us, self.story.spec.begin_us or 0)

    @property
    def started(self) -> bool:
        return all(f.start_us is not None for f in (self.recorded, self.modelled, self.replayed))

    @property
    def gain_us(self) -> int:
        """How much earlier it starts than under the policies of the journal."""
        return (self.modelled.start_us or 0) - (self.replayed.start_us or 0)

    @property
    def changed(self) -> bool:
        if not self.started:
            return self.modelled.start_us != self.replayed.start_us
        return abs(self.gain_us) >= SAME_US or self.modelled.hosts != self.replayed.hosts


def rows(recording: Recording, modelled: Mapping[int, Fate], replayed: Mapping[int, Fate]) -> list[Row]:
    """The jobs that waited at some time of the journal, by id."""
    found = []
    for job, story in sorted(recording.jobs.items()):
        run = story.began
        if not story.runs_itself:
            continue
        if run is not None and run.placed_us is None:
            continue  # it ran before the journal begins
        if story.state.final and not story.runs and (story.ended_us or 0) <= recording.from_us:
            continue  # it had ended before
        fate = Fate(state=story.state, end_us=story.ended_us)
        if run is not None:
            fate = Fate(run.began_us, run.hosts, run.score, story.ended_us, story.state)
        found.append(Row(story, fate, modelled.get(job, Fate()), replayed.get(job, Fate())))
    return found


def metrics(some: Iterable[Row], which: str) -> dict[str, float | None]:
    """METRICS over jobs that started under all three; None where no job has such a thing."""
    pairs = [(row, getattr(row, which)) for row in some if row.started]
    waits = [max(0, fate.start_us - row.due_us) / 1e6 for row, fate in pairs]
    ended = [(row, fate) for row, fate in pairs if _all_ended(row)]
    jct = [(fate.end_us - row.story.submitted_us) / 1e6 for row, fate in ended]
    scored = [r for r, _ in pairs if r.modelled.score is not None or r.replayed.score is not None]
    scores = [getattr(row, which).score for row in scored if getattr(row, which).score is not None]
    since_us = min((row.story.submitted_us for row, _ in ended), default=0)
    return {
        "mean_wait_s": fmean(waits) if waits else None,
        "p95_wait_s": quantile(waits, 0.95) if waits else None,
        "mean_jct_s": fmean(jct) if jct else None,
        "makespan_s": max(((fate.end_us - since_us) / 1e6 for _, fate in ended), default=None),
        "mean_hosts": fmean(len(fate.hosts) for _, fate in pairs) if pairs else None,
        "mean_score": fmean(scores) if scores else None,
        "worst_score": min(scores, default=None),
    }


def _all_ended(row: Row) -> bool:
    return all(f.end_us is not None for f in (row.recorded, row.modelled, row.replayed))


def counts(some: Iterable[Row]) -> dict[str, int]:
    """How many jobs start earlier, later, elsewhere; and how many start at all."""
    listed = list(some)
    both = [r for r in listed if r.started]
    return {
        "jobs": len(listed),
        "compared": len(both),
        "earlier": sum(r.gain_us >= SAME_US for r in both),
        "later": sum(r.gain_us <= -SAME_US for r in both),
        "elsewhere": sum(r.modelled.hosts != r.replayed.hosts for r in both),
    }


def row_to_json(row: Row) -> dict[str, Any]:
    """Times in microseconds since the epoch."""
    spec = row.story.spec
    return {
        "job": row.story.id,
        "name": spec.name,
        "user": spec.user,
        "submitted_us": row.story.submitted_us,
        **{which: _fate_to_json(row, getattr(row, which)) for which in ("recorded", "modelled", "replayed")},
    }


def _fate_to_json(row: Row, fate: Fate) -> dict[str, Any]:
    wait_us = None if fate.start_us is None else max(0, fate.start_us - row.due_us)
    return {
        "state": fate.state.value,
        "start_us": fate.start_us,
        "wait_us": wait_us,
        "end_us": fate.end_us,
        "hosts": list(fate.hosts),
        "score": fate.score,
    }
