"""The state as the store holds it, put back into the state that a failed step may have half changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rm.core.jobs.changes import Changes
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.journal.plain import from_plain, to_plain
from rm.core.model.host import HostState
from rm.core.model.host_reservation import HostReservation
from rm.core.sharing.accounts import NO_ACCOUNTS, Accounts
from rm.core.sharing.fair_tree import Pair
from rm.core.sharing.ledger import Ledger
from rm.core.sharing.usage import Usage
from rm.core.store import Loaded

RESERVATION = "reservation/"  # of the names of documents
ACCOUNTS = "accounts"  # the name of one
USED = "usage/"
Damaged = Callable[[str, Exception], None]


def restore(state: ClusterState, loaded: Loaded, now_us: int) -> None:
    """Everything that is durable is as after the last commit; hosts that were up still are: no channel was
    lost. How far jobs have come is kept, and what follows from the rest is found anew."""
    network = {(m.source, m.destination): m.stats for m in loaded.measurements}
    fresh = rebuild(
        loaded.jobs,
        loaded.hosts,
        loaded.zones,
        network,
        loaded.next_job_id,
        loaded.next_action_id,
        now_us,
        fabric=state.fabric,
        licenses=state.licenses,
        reservations=reservations_in(loaded),
        accounts=accounts_in(loaded),
        ledger=Ledger(state.ledger.billing, usage_in(loaded)),
    )
    for host in loaded.hosts:
        if host.state is HostState.UP:
            fresh.hosts[host.name] = host
            del fresh.silent_since[host.name]
        else:
            fresh.silent_since[host.name] = state.silent_since.get(host.name, now_us)
    fresh.progress = {job: told for job, told in state.progress.items() if job in fresh.placed}
    fresh.strays = {name: strays for name, strays in state.strays.items() if name in fresh.hosts}
    for name in fresh.strays:
        fresh.recount(name)
    fresh.rescheduled_us = state.rescheduled_us
    fresh.planned = state.planned  # what is not possible any more is planned anew
    fresh.released = dict(state.released)  # of those that have gone the next alignment lets go
    # above all numbers that were seen: what was found for an earlier state must not pass for this one's
    fresh.capacity_version = state.capacity_version + 1
    fresh.placed_version = max(fresh.placed_version, state.placed_version) + 1
    for field in fields(ClusterState):
        setattr(state, field.name, getattr(fresh, field.name))


def reservations_in(loaded: Loaded, damaged: Damaged = lambda name, error: None) -> list[HostReservation]:
    """Those of hosts, a document each; `damaged` hears of what is none, and is left as it is."""
    found = []
    for name, body in loaded.documents:
        if name.startswith(RESERVATION):
            try:
                found.append(from_plain(HostReservation, body))
            except (KeyError, TypeError, ValueError) as error:
                damaged(name, error)
    return found


def accounts_in(loaded: Loaded, damaged: Damaged = lambda name, error: None) -> Accounts:
    """All accounts are one document; where it cannot be read there are none."""
    body = dict(loaded.documents).get(ACCOUNTS, {})
    try:
        return from_plain(Accounts, body)
    except (KeyError, TypeError, ValueError) as error:
        damaged(ACCOUNTS, error)
        return NO_ACCOUNTS


def usage_in(loaded: Loaded, damaged: Damaged = lambda name, error: None) -> dict[Pair, Usage]:
    """Of each account and user a document, without the rate, which comes from the jobs."""
    found: dict[Pair, Usage] = {}
    for name, body in loaded.documents:
        if name.startswith(USED):
            try:
                account, user = name.removeprefix(USED).split("/", 1)
                found[account, user] = Usage(float(body["amount"]), 0.0, int(body["at_us"]))
            except (KeyError, TypeError, ValueError) as error:
                damaged(name, error)
    return found


def documents_of(state: ClusterState, changes: Changes) -> tuple[tuple[str, dict[str, Any] | None], ...]:
    """What a commit says of reservations of hosts (None: it is gone), of accounts and of usage."""
    found: list[tuple[str, dict[str, Any] | None]] = [
        (RESERVATION + name, to_plain(one) if one is not None else None)
        for name, one in changes.reservations.items()
    ]
    if changes.accounts is not None:
        found.append((ACCOUNTS, to_plain(changes.accounts)))
    for account, user in sorted(changes.used):
        used = state.ledger.used[account, user]
        found.append((f"{USED}{account}/{user}", {"amount": used.amount, "at_us": used.at_us}))
    return tuple(found)
