"""What happens by chance in a modelled world: drawn from a seed and written down, or played from a list.

Each chance has a quiet outcome. Only what is not quiet is written down, under a name that does not shift
when something else is left out; so a list of a seed's events can be made shorter and played again.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TypeVar

T = TypeVar("T")
Event = tuple[int, str, int]  # step, what, outcome
OUTCOMES = 1 << 30
NEVER = 1 << 60


class Choices:
    """Drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step = seed, 0
        self._random = random.Random(seed)
        self._share = self._random.random  # asked for thousands of times
        self._drawn: dict[tuple[int, str], int] = {}
        self._soonest: dict[str, int] = {}  # of what may happen in each step: the step at which it will

    def happens(self, what: str, probability: float, *of: object) -> bool:
        """Quiet: it does not. `of` is written into the braces of its name, which is seldom needed."""
        if self._share() >= probability:
            return False
        self._drawn[self.step, what.format(*of)] = 1
        return True

    def strikes(self, what: str, probability: float) -> bool:
        """As `happens`, of what may happen in each step: one number is drawn for each time that it does, and
        not for each step, so that `soonest` knows which steps nothing happens in."""
        if not probability:
            return False
        at = self._soonest.get(what, -1)
        if at < self.step:
            at = self._soonest[what] = self.step + self._steps_without(probability)
        if at > self.step:
            return False
        self._drawn[self.step, what] = 1
        return True

    def soonest(self, what: str, probability: float) -> int:
        """The next step after this one at which it strikes."""
        if not probability:
            return NEVER
        at = self._soonest.get(what, -1)
        if at <= self.step:
            at = self._soonest[what] = self.step + 1 + self._steps_without(probability)
        return at

    def none_before(self, *names: str) -> int:
        """A step until which none of these strikes, however likely they are; 0: it is not drawn yet."""
        return min(map(self._soonest.get, names, repeat(0)), default=NEVER)

    def _steps_without(self, probability: float) -> int:
        """How many steps pass before what happens in each with this probability: the geometric
        distribution, by its inverse (Devroye: Non-Uniform Random Variate Generation, Sec. X.2)."""
        return int(math.log(1.0 - self._share()) / math.log(1.0 - probability)) if probability < 1 else 0

    def number(self, what: str, least: int, most: int) -> int:
        """Quiet: the least."""
        drawn = self._random.randint(least, most)
        if drawn != least:
            self._drawn[self.step, what] = drawn
        return drawn

    def among(self, what: str, options: Sequence[T]) -> T:
        """Quiet: the first."""
        return options[self.number(what, 0, len(options) - 1)]

    def shuffle(self, what: str, items: list[T], probability: float) -> None:
        """Quiet: they stay in order."""
        if len(items) > 1 and self.happens(what, probability):
            order = self.number(f"order of the {what}", 0, OUTCOMES)
            random.Random(order).shuffle(items)

    def events(self) -> list[Event]:
        return [(step, what, outcome) for (step, what), outcome in self._drawn.items()]


class Played(Choices):
    """What is listed happens, and nothing else does."""

    def __init__(self, events: Iterable[Event]) -> None:
        super().__init__(0)
        self._listed = {(step, what): outcome for step, what, outcome in events}

    def happens(self, what: str, probability: float, *of: object) -> bool:
        return probability > 0 and (self.step, what.format(*of)) in self._listed

    def strikes(self, what: str, probability: float) -> bool:
        return self.happens(what, probability)

    def soonest(self, what: str, probability: float) -> int:
        later = (step for step, listed in self._listed if listed == what and step > self.step)
        return min(later, default=NEVER) if probability else NEVER

    def none_before(self, *names: str) -> int:
        return min((self.soonest(what, 1.0) for what in names), default=NEVER)

    def number(self, what: str, least: int, most: int) -> int:
        return min(self._listed.get((self.step, what), least), most)


def shrunk(events: Sequence[Event], fails: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """A list of events that still fails, from which none can be left out (Zeller's ddmin)."""
    left, parts = list(events), 2
    while left:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if fails(rest):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left


def told(events: Sequence[Event]) -> str:
    return json.dumps(events)
