"""How many elements of a job array go to a host at once, to run there one after the other.

A slice takes one slot, as its first element would alone. So it can be no longer than other jobs may be kept
waiting for that slot, and the elements that are left are enough for all slots.
"""

from __future__ import annotations

from rm.core.jobs.dependents import is_singleton
from rm.core.model.host import HostState
from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot
from rm.core.scheduling.gates import accounts_of
from rm.core.sharing.preempt_terms import is_suspended_by_others

SLICE_MAX = 64  # elements: one message, and one turn of the leader
CAUTION = 2  # times as long as expected a slice may take before its host gives back the rest


def slice_length(array: Job, element: Job, left: int, snapshot: Snapshot, bound_us: int, shares: int) -> int:
    """How many elements may go together, the first included; 1 where they may not.

    Args:
        array: the record of the array.
        element: the first of them.
        left: how many of the array's elements may be placed now, with the first.
        bound_us: when its host gives back what is left of it; 0: no slices.
        shares: slices that what is left is enough for, of each slot: the last ones are short, so that all
            slots end together; 0: any number.
    """
    known, spec = array.array, array.spec
    if snapshot.reservations:
        return 1  # each begins when the one before has ended, which may be within a window
    if known is None or not bound_us or not known.turn_us or left < 2:
        return 1
    alone = spec.ntasks > 1 or spec.hosts_min > 1 or spec.exclusive or spec.exclusive_user or not spec.requeue
    if alone or spec.runs_once or spec.licenses or spec.fence_us or spec.deadline_us or is_singleton(array):
        return 1
    if is_suspended_by_others(accounts_of(snapshot), array):
        return 1  # those that wait in line could not stand still with the one that runs
    if element.traffic is not None or element.demand.traffic is not None:
        return 1  # where it runs beside others is decided for each
    expected = bound_us // (CAUTION * known.turn_us)
    at_once = slots(element, snapshot)
    if known.limit:
        at_once = min(at_once, known.limit)
    share = -(-left // (shares * at_once)) if shares else left
    return max(1, min(expected, share, left, SLICE_MAX))


def slots(element: Job, snapshot: Snapshot) -> int:
    """About how many such elements the cluster can run at once."""
    spec, found = element.spec, 0
    for host in snapshot.hosts.values():
        if host.state is not HostState.UP or host.drained_by:
            continue
        fits = host.cpus // max(1, spec.cpus_per_task)
        if gpus := spec.gpus_per_task or spec.gpus_per_host:
            fits = min(fits, len(host.gpus) // gpus)
        found += fits
    return max(1, found)
