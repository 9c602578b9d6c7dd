"""Transfers as the admission policies look at them: their order, and who is on which host.

Source: Ada-SRSF, Algorithm 3, lines 14-21.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.ports import Transfer


def srsf(waiting: Iterable[Transfer]) -> list[Transfer]:
    """Shortest remaining service first: the job's remaining time times its GPUs, then its id."""
    return sorted(waiting, key=lambda t: (t.remaining_us * t.gpus, t.job))


def by_host(ongoing: Sequence[Transfer]) -> dict[str, list[Transfer]]:
    """The transfers under way on each host; hosts without any are left out."""
    found: dict[str, list[Transfer]] = {}
    for transfer in ongoing:
        for host in transfer.hosts:
            found.setdefault(host, []).append(transfer)
    return found
