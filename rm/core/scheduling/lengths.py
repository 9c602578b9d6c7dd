"""How much of their time limits jobs use up, as those that have ended did: for plays of what is to come.

In each play a job takes a part of its limit that was drawn from those of its user's jobs, or of everybody's
where the user has too few, and among these from those with limits like its own, where there are enough; of
one that runs only from those parts that it has not passed. `n` parts leave `n` + 1 gaps, into each of which
the next falls as likely, also below the least and above the greatest: a gap is drawn, and a place in it. What
really happens is one draw more of the same kind: of `PLAYS` plays it lies below the least, or above the
greatest, once in `PLAYS` + 1 times each, as far as jobs are alike. Source: the exchangeability of conformal
prediction (V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, 2005).
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
LIKE_LEAST = 10  # with a limit of the same power of two
JUDGED_MAX = 1_000  # the newest of each
ENDS = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY})


class Lengths:
    """Of jobs that ended by themselves, or at their limit."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        ended = [one for one in jobs if one.state in ENDS and one.started_us is not None and _limit_us(one)]
        ended.sort(key=lambda one: (one.ended_us or 0, one.id))
        everybody, own = list[float](), dict[str, list[float]]()
        like, own_like = dict[int, list[float]](), dict[tuple[str, int], list[float]]()
        for one in ended:
            part = _part(one)
            everybody.append(part)
            user, size = one.spec.user, _limit_us(one).bit_length()
            own.setdefault(user, []).append(part)
            like.setdefault(size, []).append(part)
            own_like.setdefault((user, size), []).append(part)
        self._all = sorted(everybody[-JUDGED_MAX:])
        self._own = {
            user: sorted(parts[-JUDGED_MAX:]) for user, parts in own.items() if len(parts) >= OWN_LEAST
        }
        self._like = {
            key: sorted(parts[-JUDGED_MAX:]) for key, parts in like.items() if len(parts) >= LIKE_LEAST
        }
        self._own_like = {
            key: sorted(parts[-JUDGED_MAX:])
            for key, parts in own_like.items()
            if len(parts) >= LIKE_LEAST and key[0] in self._own
        }

    def __bool__(self) -> bool:
        """Is anything known?"""
        return len(self._all) >= ENDED_LEAST

    def left_us(self, job: Job, ran_us: int, play: int) -> int | None:
        """How long a job runs on in this play, that has run so long; None: it has no limit."""
        limit_us = _limit_us(job)
        if not limit_us:
            return None
        parts = self._parts(job.spec.user, limit_us.bit_length())
        ran = min(1.0, ran_us / limit_us)
        passed = bisect_right(parts, ran)
        gap, within = divmod(_chance(job.id, play) * (len(parts) - passed + 1), 1)
        after = passed + int(gap)
        low = parts[after - 1] if after > passed else ran
        high = parts[after] if after < len(parts) else 1.0
        return max(SECOND_US, round((low + within * (high - low)) * limit_us) - ran_us)

    def _parts(self, user: str, size: int) -> list[float]:
        """In order, those that a job with a limit of this power of two is judged by."""
        if user in self._own:
            return self._own_like.get((user, size), self._own[user])
        return self._like.get(size, self._all)


def _limit_us(job: Job) -> int:
    return job.allowed_us or job.spec.time_limit_us or 0


def _part(job: Job) -> float:
    ran_us = (job.ended_us or 0) - (job.started_us or 0) - job.stood_us
    return min(1.0, max(0, ran_us) / _limit_us(job))


def _chance(job: int, play: int) -> float:
    """From 0 to below 1, the same for the same question: nothing is drawn here by chance."""
    digest = blake2b(f"{job}/{play}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)  # 53 bits: more would be rounded, up to 1
