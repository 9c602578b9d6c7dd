"""Never worse than doing nothing: a plan is taken only if it does better than what it replaces.

FORESIGHT Sec. IV: where no valid schedule exists (oversubscription 8), "we fall back to the baseline
network operation"; and no placement may lose by the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P")


def guarded(plan: P, evaluate: Callable[[P], float], baseline: P) -> P:
    """`plan`, or `baseline` where that has the lower value; `evaluate` is pure, lower is better.

    Its value is typically the mean iteration time in a simulation of the jobs under the plan.
    """
    return plan if evaluate(plan) <= evaluate(baseline) else baseline
