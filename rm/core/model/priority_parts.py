"""What a job's priority is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PriorityParts:
    """What each factor adds; `site` is the job's own priority, and `nice` is taken away."""

    site: float = 0.0
    age: float = 0.0
    fair_share: float = 0.0
    size: float = 0.0
    qos: float = 0.0
    nice: float = 0.0
    partition: float = 0.0

    @property
    def sum(self) -> float:
        return self.site + self.age + self.fair_share + self.size + self.qos + self.partition - self.nice
