"""How transfers share links, as TCP's flows do in a short queue: by how much of their own weight they count,
and what the link loses meanwhile.

Flows of one kind do not get the same. Who begins beside others meets their queue, and what is lost there is
mostly the newcomer's: the longer the first of the others has been under way, the more so, until its window
has filled the queue. And which of two like flows loses more is chance, and differs from burst to burst.

Who has lost packets sends less until its window has grown back, also where the others have ended; and the two
directions of an exchange lose independently, while each of its steps waits for both. So links idle at times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp
from random import Random
from statistics import NormalDist

from rm.errors import UsageError

LUCK_MOST = 2.0
# of a normal distribution, each as probable as the others: few weights, as rates are remembered by them
DEVIATIONS = tuple(NormalDist().inv_cdf((n + 0.5) / 8) for n in range(8))


@dataclass(frozen=True, slots=True)
class Unfairness:
    """A transfer that begins while others are under way on one of its links counts there by `newcomer` of its
    weight, until it ends; by more if the first of these began less than `head_start_us` ago, and by all of it
    if they begin together. `luck` is the standard deviation of the logarithm of each transfer's weight.
    `loss` is the share of its capacity that a link loses while several jobs send over it at one priority.

    Raises:
        UsageError: a number that makes no sense.
    """

    newcomer: float = 1.0
    head_start_us: float = 0.0
    luck: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.newcomer <= 1:
            raise UsageError(
                f"A newcomer counts by {self.newcomer:g} of its weight.", "Use above 0, up to 1."
            )
        if not self.head_start_us >= 0:
            raise UsageError(f"A head start of {self.head_start_us:g} us.", "Use 0 or more.")
        if not 0 <= self.luck <= LUCK_MOST:
            raise UsageError(
                f"The logarithms of weights have a standard deviation of {self.luck:g}.",
                f"Use 0 to {LUCK_MOST:g}.",
            )
        if not 0 <= self.loss < 1:
            raise UsageError(
                f"A link that jobs share loses {self.loss:g} of itself.", "Use 0, up to less than 1."
            )


FAIR = Unfairness()


class Weights:
    """Each transfer's part of its own weight; a job's luck comes from a generator of its own, by `seed`."""

    def __init__(self, unfair: Unfairness, seed: int) -> None:
        self._unfair, self._seed = unfair, seed
        self._lucky = tuple(exp(unfair.luck * deviation) for deviation in DEVIATIONS) if unfair.luck else ()
        self._chance: dict[int, Random] = {}

    def of(self, job: int, now_us: float, others_begun_us: Iterable[float]) -> float:
        """For a transfer that begins now beside others that are on its links."""
        weight = 1.0
        if self._unfair.newcomer < 1:
            lead_us = now_us - min(others_begun_us, default=now_us)
            if lead_us > 0:
                weight -= (1 - self._unfair.newcomer) * self._held_back(lead_us)
        if self._lucky:
            if (chance := self._chance.get(job)) is None:
                chance = self._chance[job] = Random(f"{self._seed} {job}")
            weight *= chance.choice(self._lucky)
        return weight

    def _held_back(self, lead_us: float) -> float:
        """1 from `head_start_us` on; in eighths, as rates are remembered by weights."""
        if lead_us >= self._unfair.head_start_us:
            return 1.0
        return round(8 * lead_us / self._unfair.head_start_us) / 8
