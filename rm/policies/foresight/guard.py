"""Never worse than doing nothing: a plan is taken only if it does better than what it replaces.

FORESIGHT Sec. IV: where no valid schedule exists (oversubscription 8), "we fall back to the baseline
network operation"; and no placement may lose by the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P")


def guarded(plan: P, evaluate: Callable[[P], float], baseline: P) -> tuple[P, float]:
    """`plan`, or `baseline` where that has the lower value, with its value; `evaluate` is pure, lower is
    better.

    Its value is typically the mean iteration time in a simulation of the jobs under the plan.
    """
    value, its_value = evaluate(plan), evaluate(baseline)
    return (plan, value) if value <= its_value else (baseline, its_value)
