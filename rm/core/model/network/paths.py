"""Over which spine what a job sends from one of its hosts goes, for as long as the job runs.

Live hosts carry this out: they write the spine's code point into the packets (`Fabric.dscp`), and switches
choose by static rules. FORESIGHT's plans say more, for single iterations (`rm.core.model.network.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobPath:
    """All that `job` sends from `host` to hosts below other leaves goes over this spine, counted from 0."""

    job: int
    host: str
    spine: int
