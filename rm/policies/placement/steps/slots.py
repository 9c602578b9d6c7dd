"""Which slots a gang takes: host by host in some order, or one by one wherever they are best.

A slot is room for one task: its GPUs, or a share of a host for tasks without GPUs. A host gives its
slots best first, so it is enough to know how many of each host are taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rm.policies.placement.steps.capacity import Mask
from rm.policies.placement.steps.gang import Filling, Gang, Ints
from rm.policies.placement.steps.network_score import Floats

Counts = list[tuple[int, int]]  # (host number, tasks), in the order of the ranks


def host_by_host(order: Sequence[int] | Ints, caps: Ints, gang: Gang) -> Counts:
    """The hosts in this order, each filled as far as it goes; given that the gang fits.

    Where the user asks for more hosts than the tasks need, they are spread evenly.
    """
    order = np.asarray(order, dtype=np.int64)
    chosen = order[_first_hosts(caps[order], gang)]
    return list(zip(chosen.tolist(), gang.spread(caps[chosen].tolist()), strict=True))


def _first_hosts(caps: Ints, gang: Gang) -> Ints:
    """The first hosts with which the gang, given that it fits, stays feasible."""
    if gang.hosts_min <= 1 and not gang.hosts_max:
        room: Ints = caps.nonzero()[0]
        return room[: int(caps[room].cumsum().searchsorted(gang.tasks)) + 1]
    chosen: list[int] = []
    picked = 0
    rest = caps.copy()
    while picked < gang.tasks or len(chosen) < gang.hosts_min:
        slots = gang.most_hosts - len(chosen) - 1
        least = max(gang.least_cap(picked, rest, slots), 1)
        n = int(np.argmax(rest >= least))
        chosen.append(n)
        # hosts still owed to hosts_min get a task each
        owed = max(gang.hosts_min - len(chosen), 0)
        picked += min(int(rest[n]), max(gang.tasks - picked - owed, 1))
        rest[n] = 0
    return np.array(chosen, dtype=np.int64)


def one_by_one(keys: Floats, caps: Ints, gang: Gang) -> Counts:
    """The slots of the least keys, ties by host and slot; given that the gang fits.

    `keys` are hosts x slots and do not fall along a host's slots; a host has `caps` slots.
    """
    slots = np.where(np.arange(keys.shape[1]) < caps[:, None], keys, np.inf)
    counts: dict[int, int] = {}
    if gang.hosts_min <= 1 and not gang.hosts_max:
        flat = slots.ravel()
        last = np.partition(flat, gang.tasks - 1)[gang.tasks - 1]
        near = np.flatnonzero(flat <= last)
        first = near[np.argsort(flat[near], kind="stable")[: gang.tasks]]
        for host in (first // keys.shape[1]).tolist():
            counts[host] = counts.get(host, 0) + 1
        return list(counts.items())
    filling = Filling(gang, np.minimum(caps, keys.shape[1]))
    rows = np.arange(len(caps))
    padded = np.concatenate([slots, np.full((len(caps), 1), np.inf)], axis=1)
    while filling.left:
        keys_next = padded[rows, filling.counts]
        filling.give(int(np.argmin(np.where(filling.may_take(), keys_next, np.inf))))
    return list(filling.given.items())


def preferred(usable: Mask, keys: Floats) -> Ints:
    """The GPU positions of one host in the order of choice: usable ones of the least key first."""
    return np.argsort(np.where(usable, keys, np.inf), kind="stable")


def slot_sums(usable: Mask, keys: Floats, per_task: int) -> Floats:
    """The keys of each host's slots: of the GPUs in order of choice, `per_task` together."""
    ordered = np.sort(np.where(usable, keys, np.inf), axis=1)
    slots = ordered.shape[1] // per_task
    sums: Floats = ordered[:, : slots * per_task].reshape(len(ordered), slots, per_task).sum(axis=2)
    return sums
