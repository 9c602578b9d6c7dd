"""Jobs that managing has made slower are left alone: what of an alignment that leaves.

Who they are is found by measuring (rm/policies/regulate/verifying.py) and comes as events; as soon as a job
joins such a group or leaves it, the group is another one, and is managed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from rm.core.model.network.alignment import Alignment, Released, in_words
from rm.core.model.reasons import Reason, ReasonCode


def is_verified(comm: object) -> bool:
    """Is it measured whether managing jobs as this policy says makes them faster?"""
    return bool(getattr(comm, "verified", False))


def left_alone(alignment: Alignment, released: Mapping[tuple[int, ...], Released]) -> Alignment:
    """The policy's alignment without schedules and classes of the groups that were released. A policy that
    has grounds knows the groups itself."""
    together = groups(alignment) if alignment.grounds is None else alignment.together
    found = tuple(released[jobs] for jobs in together if jobs in released)
    alone = {job for one in found for job in one.jobs}
    if not alone:
        return replace(alignment, together=together)
    controlled = {s.job for s in alignment.schedules} & alone
    return replace(
        alignment,
        schedules=tuple(s for s in alignment.schedules if s.job not in alone),
        shaping=tuple(rule for rule in alignment.shaping if rule.job not in alone),
        unmatched=tuple(sorted({*alignment.unmatched, *controlled})),
        together=together,
        released=found,
    )


def groups(alignment: Alignment) -> tuple[tuple[int, ...], ...]:
    """The jobs that share contended links or classes, directly or through others, each group in order; not
    those that the alignment leaves alone itself."""
    first: dict[int, int] = {}  # of each job one of its group, in the end the smallest

    def root(job: int) -> int:
        while (before := first.setdefault(job, job)) != job:
            first[job] = first[before]
            job = before
        return job

    shared = [link.jobs for link in alignment.links]
    by_host: dict[str, list[int]] = {}
    for rule in alignment.shaping:
        by_host.setdefault(rule.host, []).append(rule.job)
    for link in alignment.links:  # jobs that have classes on a link meet those that only use it
        by_host.get(link.link, []).extend(link.jobs)
    for jobs in (*shared, *by_host.values()):
        for one, other in pairwise(jobs):
            a, b = root(one), root(other)
            first[max(a, b)] = min(a, b)
    managed = {s.job for s in alignment.schedules} | {rule.job for rule in alignment.shaping}
    together: dict[int, list[int]] = {}
    for job in sorted(first):
        together.setdefault(root(job), []).append(job)
    return tuple(tuple(met) for met in together.values() if len(met) > 1 and not managed.isdisjoint(met))


def why_alone(alignment: Alignment, job: int) -> Reason | None:
    """Why nothing manages the job's links, if that is so because it was measured; for users."""
    found = next((one for one in alignment.released if job in one.jobs), None)
    if found is None:
        return None
    numbers: list[tuple[str, float | int | str]] = [("jobs", len(found.jobs)), ("managed", found.managed)]
    if found.unmanaged is not None:
        numbers.append(("unmanaged", found.unmanaged))
    if found.until_us is not None:
        numbers.append(("managed_again_us", found.until_us))
    return Reason(ReasonCode.LEFT_ALONE, in_words(found), tuple(numbers))
