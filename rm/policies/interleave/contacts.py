"""Where two jobs on a circle touch: rotations at which the one's demand rises as the other's falls.

Turning a job between two such contacts changes nothing for the better, which is why the exact
searches try only these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rm.policies.interleave.circle import Circle

Rotations = NDArray[np.int64]


def contacts(circle: Circle, i: int, j: int, both: bool = True) -> Rotations:
    """Rotations of job j at which it touches job i, which is at 0, on any link they share.

    Job j begins as i ends, or (`both`) ends as i begins; steps inside a profile count alike.
    """
    n, copies = circle.n[j], circle.n[i] * np.arange(circle.mul[i], dtype=np.int64)
    found = [np.zeros(0, dtype=np.int64)]
    for patterns in circle.pattern:
        if any(patterns[i]) and any(patterns[j]):
            up, down = _steps(patterns[i])
            rises, falls = _steps(patterns[j])
            found.append(((down[:, None] + copies).reshape(-1, 1) - rises).ravel() % n)
            if both:
                found.append(((up[:, None] + copies).reshape(-1, 1) - falls).ravel() % n)
    return np.concatenate(found)


def twins(circle: Circle, demands: Sequence[Sequence[Any]]) -> list[int]:
    """For each job the first one, the reference aside, that it may change places with.

    `demands[link][job]` must be equal on every link, and so must the iterations per circle.
    """
    keys = [(b, tuple(link[j] for link in demands)) for j, b in enumerate(circle.mul)]
    return [j if j == 0 else keys.index(keys[j], 1) for j in range(len(keys))]


def _steps(pattern: Sequence[int]) -> tuple[Rotations, Rotations]:
    """The slots at whose beginning the demand rises, and those at whose beginning it falls."""
    levels = np.array(pattern, dtype=np.int64)
    change = levels - np.roll(levels, 1)
    return np.flatnonzero(change > 0), np.flatnonzero(change < 0)
