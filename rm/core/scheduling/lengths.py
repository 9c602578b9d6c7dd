"""How much of their time limits jobs use up, as those that have ended did: for plays of what is to come.

In each play a job takes a part of its limit that was drawn from those of its user's jobs, or of everybody's
where the user has too few, and among these from those with limits like its own, where there are enough; of
one that runs only from those parts that it has not passed. `n` parts leave `n` + 1 gaps, into each of which
the next falls as likely, also below the least and above the greatest: a gap is drawn, and a place in it. What
really happens is one draw more of the same kind: of `PLAYS` plays it lies below the least, or above the
greatest, once in `PLAYS` + 1 times each, as far as jobs are alike. Source: the exchangeability of conformal
prediction (V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, 2005).

Those that ended are the short ones: who runs long has not ended yet. So jobs that run count, too, as longer
than they have run so far: what such a one counts for is divided among all parts above. Sources: E. Kaplan and
P. Meier, Nonparametric Estimation from Incomplete Observations (JASA 53, 1958); B. Efron's redistribution to
the right (1967).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from rm.core.model.job import Job, JobState
from rm.core.model.progress import attained_us
from rm.units import SECOND_US

PLAYS = 9  # so 80 % of the starts lie between the first and the last of them
OWN_LEAST = 20  # ended jobs of a user, from which on these are asked alone
ENDED_LEAST = 10  # of everybody, below which nothing is known
LIKE_LEAST = 10  # with a limit of the same power of two
JUDGED_MAX = 1_000  # the newest of each
ENDS = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY})


class _Judges:
    """The newest jobs of a kind, each as the part of its limit that it took, or has run so far."""

    def __init__(self) -> None:
        self.ended: list[float] = []
        self.running: list[float] = []

    def gaps(self) -> _Gaps:
        newest = self.ended[-JUDGED_MAX:]
        return _Gaps.of(
            [*((part, 0) for part in newest), *((part, 1) for part in self.running[-JUDGED_MAX:])]
        )


class _Gaps(NamedTuple):
    """Between `parts`, in order: into the gap below the first, the second … and above the last the next one
    falls by the differences of `upto`."""

    parts: Sequence[float]
    upto: Sequence[float]

    @classmethod
    def of(cls, seen: list[tuple[float, int]]) -> _Gaps:
        """(part, 0: it ended there, 1: it runs)"""
        seen.sort()
        parts, upto, each, whole = list[float](), list[float](), 1.0, 0.0
        for number, (part, runs) in enumerate(seen):
            if runs:
                each += each / (len(seen) - number)
            else:
                parts.append(part)
                whole += each
                upto.append(whole)
        return cls(parts, [*upto, whole + each])

    def drawn(self, ran: float, chance: float) -> float:
        """A part of the limit that is not below `ran`; `chance`: from 0 to below 1."""
        passed = bisect_right(self.parts, ran)
        before = self.upto[passed - 1] if passed else 0.0
        at = before + chance * (self.upto[-1] - before)
        gap = min(bisect_right(self.upto, at, passed), len(self.parts))
        since = self.upto[gap - 1] if gap else 0.0
        within = (at - since) / (self.upto[gap] - since)
        low = self.parts[gap - 1] if gap > passed else ran
        high = self.parts[gap] if gap < len(self.parts) else 1.0
        return low + within * (high - low)


class Lengths:
    """Of jobs that ended by themselves, or at their limit, and of those that run at `now_us`."""

    def __init__(self, jobs: Iterable[Job], now_us: int) -> None:
        everybody, own, like = (
            _Judges(),
            defaultdict[str, _Judges](_Judges),
            defaultdict[int, _Judges](_Judges),
        )
        own_like = defaultdict[tuple[str, int], _Judges](_Judges)
        for one in sorted(filter(_tells, jobs), key=lambda job: (job.ended_us or now_us, job.id)):
            runs, user, size = one.state not in ENDS, one.spec.user, _limit_us(one).bit_length()
            part = min(1.0, (attained_us(one, None, now_us) if runs else _took_us(one)) / _limit_us(one))
            for judges in (everybody, own[user], like[size], own_like[user, size]):
                (judges.running if runs else judges.ended).append(part)
        self._known = len(everybody.ended) >= ENDED_LEAST
        self._all = everybody.gaps()
        self._own = {key: one.gaps() for key, one in own.items() if len(one.ended) >= OWN_LEAST}
        self._like = {key: one.gaps() for key, one in like.items() if len(one.ended) >= LIKE_LEAST}
        self._own_like = {
            key: one.gaps()
            for key, one in own_like.items()
            if len(one.ended) >= LIKE_LEAST and key[0] in self._own
        }

    def __bool__(self) -> bool:
        """Is anything known?"""
        return self._known

    def left_us(self, job: Job, ran_us: int, play: int) -> int | None:
        """How long a job runs on in this play, that has run so long; None: it has no limit."""
        limit_us = _limit_us(job)
        if not limit_us:
            return None
        gaps = self._gaps(job.spec.user, limit_us.bit_length())
        part = gaps.drawn(min(1.0, ran_us / limit_us), _chance(job.id, play))
        return max(SECOND_US, round(part * limit_us) - ran_us)

    def _gaps(self, user: str, size: int) -> _Gaps:
        """Those that a job with a limit of this power of two is judged by."""
        if user in self._own:
            return self._own_like.get((user, size), self._own[user])
        return self._like.get(size, self._all)


def _limit_us(job: Job) -> int:
    return job.allowed_us or job.spec.time_limit_us or 0


def _tells(job: Job) -> bool:
    """Does it say how much of a limit a job takes?"""
    return job.started_us is not None and bool(_limit_us(job)) and (job.state in ENDS or job.occupies)


def _took_us(job: Job) -> int:
    return max(0, (job.ended_us or 0) - (job.started_us or 0) - job.stood_us)


def _chance(job: int, play: int) -> float:
    """From 0 to below 1, the same for the same question: nothing is drawn here by chance."""
    digest = blake2b(f"{job}/{play}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)  # 53 bits: more would be rounded, up to 1
