"""Processors of jobs that stand still for others: who of these has how many of them.

A job that was suspended for another keeps all that it has, and lends its processors to that one alone: what
is over nobody else gets. Its memory, its GPUs and its licences are not lent, as in Slurm, where a suspended
job keeps its memory and its GRES.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rm.core.model.host import Host
from rm.core.model.job import Job, Placement

NOBODY = -1 << 62  # a job that is to borrow, and has no number yet


def cpus_on(job: Job, placement: Placement, host: Host) -> int:
    """The processors that the job counts for on one of its hosts."""
    return host.cpus if job.spec.exclusive else job.spec.cpus_per_task * len(placement.on(host.name))


def lent(there: Iterable[tuple[Job, int]]) -> int:
    """How many processors of a host are lent; `there` are the jobs on it with their processors."""
    return _Loans(there).all()


def to_one_more(there: Iterable[tuple[Job, int]], lenders: Collection[int]) -> int:
    """How many processors these would lend to one more, as far as all others keep what they borrow."""
    loans = _Loans(there)
    loans.all()
    return loans.more(NOBODY, loans.total, lenders)


class _Loans:
    """As many processors as can be lent are: a maximal flow from lenders to borrowers (L. Ford and
    D. Fulkerson, 1956). So it does not matter who borrowed first."""

    def __init__(self, there: Iterable[tuple[Job, int]]) -> None:
        jobs = sorted(there, key=lambda one: one[0].id)
        self._wanted = {job.id: cpus for job, cpus in jobs}
        self._left = {job.id: cpus for job, cpus in jobs if job.yields_to}
        self._may: dict[int, list[int]] = {}  # by who borrows: from whom
        for job, _ in jobs:
            for by in job.yields_to:
                if by in self._wanted:
                    self._may.setdefault(by, []).append(job.id)
        self._has: dict[tuple[int, int], int] = {}  # (who borrows, from whom)

    @property
    def total(self) -> int:
        return sum(self._left.values())

    def all(self) -> int:
        return sum(self.more(by, self._wanted[by], self._may[by]) for by in self._may)

    def more(self, by: int, wanted: int, lenders: Collection[int]) -> int:
        self._may[by], found = [*lenders], 0
        while found < wanted and (part := self._lend(by, wanted - found, set())):
            found += part
        return found

    def _lend(self, by: int, wanted: int, seen: set[int]) -> int:
        """Some more, for which others may have to borrow elsewhere what they have."""
        for lender in self._may[by]:
            if lender in seen:
                continue
            seen.add(lender)
            part = min(wanted, self._left.get(lender, 0))
            if part:
                self._left[lender] -= part
                self._has[by, lender] = self._has.get((by, lender), 0) + part
                return part
            for (other, of), has in list(self._has.items()):
                if (
                    of == lender
                    and other != by
                    and has
                    and (part := self._lend(other, min(wanted, has), seen))
                ):
                    self._has[other, lender] -= part
                    self._has[by, lender] = self._has.get((by, lender), 0) + part
                    return part
        return 0
