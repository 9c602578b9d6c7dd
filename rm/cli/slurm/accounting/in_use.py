"""What the jobs of accounts, users and QOS hold, as Slurm counts it against their limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rm.arrays import mask
from rm.cli.shown import ends_by_us
from rm.cli.slurm.accounting.held import held
from rm.cli.slurm.accounting.sreport_used import ROOT, children_of
from rm.units import MINUTE_US

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.api.sharing import Accounts


@dataclass
class InUse:
    """Of the jobs that were added: how many run and are submitted, what those that run hold, and the minutes
    of it that are left until their time limits."""

    running: int = 0
    submitted: int = 0
    tres: Counter[str] = field(default_factory=Counter)
    minutes: Counter[str] = field(default_factory=Counter)

    def add(self, job: Job) -> None:
        if job.array is not None:  # of its elements those that are no jobs yet
            self.submitted += mask(job.array.waiting).bit_count() if job.array.waiting else 0
            return
        self.submitted += 1
        if not job.hosts:
            return
        self.running += 1
        ends_us = ends_by_us(job, job.spec.time_limit_us)
        left = 0 if ends_us is None else max(0, ends_us - time.time_ns() // 1000) // MINUTE_US
        for tres, count in held(job).items():
            self.tres[tres] += count
            self.minutes[tres] += count * left


def in_use_of(found: Accounts, jobs: Iterable[Job]) -> Mapping[tuple[str, str], InUse]:
    """By account, with all below it, and by (account, user)."""
    parents = {child: name for name, below in children_of(found).items() for child in below}
    in_use: dict[tuple[str, str], InUse] = {}
    for job in jobs:
        account = job.account or ROOT
        keys = [(account, job.spec.user), (account, "")]
        while account in parents:
            account = parents[account]
            keys.append((account, ""))
        for key in keys:
            in_use.setdefault(key, InUse()).add(job)
    return in_use
