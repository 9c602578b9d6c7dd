"""What a job's priority is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PriorityParts:
    """What each factor adds; `site` is the job's own priority, and `nice` is taken away. `partition` is the
    highest of what the partitions add that the job waits for; `partitions` has each, where it waits for
    several."""

    site: float = 0.0
    age: float = 0.0
    fair_share: float = 0.0
    size: float = 0.0
    qos: float = 0.0
    nice: float = 0.0
    partition: float = 0.0
    partitions: Mapping[str, float] = field(default_factory=dict)

    @property
    def sum(self) -> float:
        return self.site + self.age + self.fair_share + self.size + self.qos + self.partition - self.nice
