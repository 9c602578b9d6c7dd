"""How much of their time limits jobs use up, as those that have ended did: for plays of what is to come.

In each play a job takes a part of its limit that was drawn from those of its user's jobs, or of everybody's
where the user has too few; of one that runs only from those parts that it has not passed. What really happens
is one draw more of the same kind: of `PLAYS` plays it lies below the least, or above the greatest, once in
`PLAYS` + 1 times each. Source: the exchangeability of conformal prediction (V. Vovk, A. Gammerman and
G. Shafer, Algorithmic Learning in a Random World, 2005).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b

from rm.core.model.job import Job, JobState
from rm.units import SECOND_US

PLAYS = 9  # so 80 % of the starts lie between the first and the last of them
OWN_LEAST = 20  # ended jobs of a user, from which on these are asked alone
ENDED_LEAST = 10  # of everybody, below which nothing is known
JUDGED_MAX = 1_000  # the newest of each
ENDS = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY})


class Lengths:
    """Of jobs that ended by themselves, or at their limit."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        ended = [one for one in jobs if one.state in ENDS and one.started_us is not None and _limit_us(one)]
        ended.sort(key=lambda one: (one.ended_us or 0, one.id))
        everybody, own = list[float](), dict[str, list[float]]()
        for one in ended:
            part = _part(one)
            everybody.append(part)
            own.setdefault(one.spec.user, []).append(part)
        self._all = sorted(everybody[-JUDGED_MAX:])
        self._own = {
            user: sorted(parts[-JUDGED_MAX:]) for user, parts in own.items() if len(parts) >= OWN_LEAST
        }

    def __bool__(self) -> bool:
        """Is anything known?"""
        return len(self._all) >= ENDED_LEAST

    def left_us(self, job: Job, ran_us: int, play: int) -> int | None:
        """How long a job runs on in this play, that has run so long; None: it has no limit."""
        limit_us = _limit_us(job)
        if not limit_us:
            return None
        parts = self._own.get(job.spec.user, self._all)
        passed = bisect_right(parts, ran_us / limit_us)
        if passed == len(parts):  # longer than all before it
            return max(SECOND_US, limit_us - ran_us)
        drawn = parts[passed + int(_chance(job.id, play) * (len(parts) - passed))]
        return max(1, round(drawn * limit_us) - ran_us)


def _limit_us(job: Job) -> int:
    return job.allowed_us or job.spec.time_limit_us or 0


def _part(job: Job) -> float:
    ran_us = (job.ended_us or 0) - (job.started_us or 0) - job.stood_us
    return min(1.0, max(0, ran_us) / _limit_us(job))


def _chance(job: int, play: int) -> float:
    """From 0 to below 1, the same for the same question: nothing is drawn here by chance."""
    digest = blake2b(f"{job}/{play}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 64)
