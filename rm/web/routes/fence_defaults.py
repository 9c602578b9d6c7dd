"""The lease of a job that names none: its partition's, or all jobs' (`[jobs]` in rm.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rm.config import JobsConfig, partition_fences
from rm.core.model.job import JobSpec
from rm.units import parse_lease_us


@dataclass(frozen=True, slots=True)
class FenceDefaults:
    """Microseconds; 0: none."""

    of_all_us: int
    by_partition_us: Mapping[str, int]

    @classmethod
    def of(cls, config: JobsConfig) -> FenceDefaults:
        return cls(parse_lease_us(config.fence), partition_fences(config))

    def fence_us_of(self, spec: JobSpec) -> int:
        """Of several partitions that the job may run in, the shortest lease counts."""
        if spec.fence_us is not None:
            return spec.fence_us
        leases = {self.by_partition_us.get(name, self.of_all_us) for name in spec.partitions or ("",)}
        return min(leases - {0}, default=0)
