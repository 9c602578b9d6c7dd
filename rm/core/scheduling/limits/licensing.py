"""Licences: how many of each the cluster has, and which jobs hold them.

What is held is worked out from the jobs that are placed, so that it is right in every snapshot: now, within a
pass, at the time of a reservation, and without a certain job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rm.core.model.asked.demand import Demand
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot

HOLDERS_MAX = 8  # jobs that a sentence names


def lacking(demand: Demand, snapshot: Snapshot) -> Reason | None:
    """The first licence of which too few are free; None when all are there."""
    for name, number in demand.licenses:
        total = snapshot.licenses.get(name, 0)
        held = _holders(name, snapshot)
        free = max(total - sum(held.values()), 0)
        if free < number:
            return Reason(
                ReasonCode.LICENSES,
                f"needs {number} of the licences {name}, {free} free of {total}{_said(held)}",
                (("licenses_needed", number), ("licenses_free", free), ("licenses", total)),
            )
    return None


def counted(jobs: Iterable[Job], licenses: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """(how many there are, how many of them jobs hold) of each licence, by name."""
    held = Counter[str]()
    for job in jobs if licenses else ():
        if job.placement is not None and not job.state.final:
            held.update(dict(job.spec.demand.licenses))
    return {name: (total, held[name]) for name, total in sorted(licenses.items())}


def _holders(name: str, snapshot: Snapshot) -> dict[int, int]:
    """How many each placed job holds of a licence."""
    asked = ((job, dict(placed.licenses)) for job, placed in snapshot.placed.items() if placed.licenses)
    return {job: licenses[name] for job, licenses in asked if name in licenses}


def _said(held: dict[int, int]) -> str:
    if not held:
        return ""
    more = ", …" if len(held) > HOLDERS_MAX else ""
    jobs = ", ".join(map(str, list(held)[:HOLDERS_MAX]))
    return f" (held by job{'s' if len(held) > 1 else ''} {jobs}{more})"
