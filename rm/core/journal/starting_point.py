"""The state as plain values, whole, and back: where a replay of the journal begins.

Unlike `rm.core.jobs.state.rebuild`, which makes a new daemon's state from what the store holds, this
gives back the very state that a leader had, with the order of its queue and of its deployments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from rm.core.jobs.state import ClusterState, placed_view
from rm.core.jobs.strays import Held
from rm.core.journal.plain import from_plain, to_plain
from rm.core.model.host import Host, Zone
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job
from rm.core.model.network.alignment import Alignment, Released
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import LinkStats
from rm.core.model.planned import Planned
from rm.core.model.progress import Progress
from rm.core.sharing.accounts import Accounts
from rm.core.sharing.ledger import Billing, Ledger
from rm.core.sharing.usage import Usage

# The fields of ClusterState that are not written: they are worked out from the others, or found
# again by a pass over all pending jobs.
FOUND_AGAIN = frozenset(
    {
        "ended",
        "free",
        "jobs_on",
        "reasons",
        "capacity_version",
        "freed",
        "fresh",
        "fresh_arrays",
        "changed",
        "submissions",
        "dependents",
        "elements",
        "slices",
        "behind",
        "by_user",
        "links",
        "touches",
        "yielding",
        "tally",
        "deadlines",
        "marks",
        "waits",
        "aside",
    }
)


def dump_state(state: ClusterState, now_us: int) -> dict[str, Any]:
    """Plain values (`rm.core.journal.plain`); jobs without what they run and without their story."""
    return {
        "jobs": jobs_to_plain(state.jobs.values()),
        "pending": list(state.pending),
        "placed": [[p.job, p.sequence] for p in state.placed.values()],
        "hosts": [to_plain(host) for host in state.hosts.values()],
        "zones": [to_plain(zone) for zone in state.zones.values()],
        "network": [[a, b, *stats_row(stats, now_us)] for (a, b), stats in state.network.items()],
        "progress": [to_plain(p) for p in state.progress.values()],
        "fabric": to_plain(state.fabric),
        "licenses": dict(state.licenses),
        "reservations": [to_plain(one) for one in state.reservations.values()],
        "accounts": to_plain(state.accounts),
        "ledger": ledger_to_plain(state.ledger),
        "alignment": to_plain(state.alignment),
        "released": [to_plain(one) for one in state.released.values()],
        "silent_since": dict(state.silent_since),
        "strays": [
            [host, *name, to_plain(held)]
            for host, strays in state.strays.items()
            for name, held in strays.items()
        ],
        "next_job": state.next_job,
        "next_action": state.next_action,
        "next_sequence": state.next_sequence,
        # jobs do not say themselves who borrows from them, nor whether the one they go for is placed by now
        "claims": [[by, job] for by, gone in state.claims.items() for job in gone],
        "planned": [to_plain(one) for one in state.planned.values()],
        "placed_version": state.placed_version,
        "rescheduled_us": state.rescheduled_us,
    }


def restore_state(plain: dict[str, Any], now_us: int) -> ClusterState:
    """The state that `dump_state` made `plain` of.

    Raises:
        KeyError, TypeError, ValueError: it did not.
    """
    state = ClusterState(
        network={(a, b): stats_from(row, now_us) for a, b, *row in plain["network"]},
        alignment=from_plain(Alignment, plain["alignment"]),
        fabric=None if plain["fabric"] is None else from_plain(Fabric, plain["fabric"]),
        licenses=dict(plain.get("licenses", {})),
        accounts=from_plain(Accounts, plain.get("accounts", {})),
        silent_since=dict(plain["silent_since"]),
        next_job=plain["next_job"],
        next_action=plain["next_action"],
        next_sequence=plain["next_sequence"],
        placed_version=plain["placed_version"],
        rescheduled_us=plain.get("rescheduled_us"),
    )
    state.ledger = ledger_from(plain.get("ledger", {}))
    for left_alone in (from_plain(Released, one) for one in plain.get("released", ())):
        state.released[left_alone.jobs] = left_alone
    for one in (from_plain(HostReservation, r) for r in plain.get("reservations", ())):
        state.reservations[one.name] = one
    for zone in (from_plain(Zone, z) for z in plain["zones"]):
        state.zones[zone.name] = zone
    for host in (from_plain(Host, h) for h in plain["hosts"]):
        state.hosts[host.name] = host
    for job in (from_plain(Job, j) for j in plain["jobs"]):
        state.recall(job)
        state.note_instants(job)
    state.pending = dict.fromkeys(plain["pending"])
    for progress in (from_plain(Progress, p) for p in plain["progress"]):
        state.progress[progress.job] = progress
    for job_id, sequence in plain["placed"]:
        job = state.jobs[job_id]
        if (placement := job.placement) is None:
            raise ValueError(f"job {job_id} is placed, but nowhere")
        state.placed[job_id] = placed_view(job, placement, sequence)
        state.join_slice(job)
        if job.spec.exclusive_user:
            state.by_user.add(job_id)
        if job.yields_to:
            state.yielding.add(job_id)
        for name in placement.hosts:
            state.jobs_on.setdefault(name, set()).add(job_id)
    for planned in (from_plain(Planned, one) for one in plain.get("planned", ())):
        state.planned[planned.job] = planned
    for by, job_id in plain.get("claims", ()):
        state.claims.setdefault(by, {})[job_id] = None
    for name, job_id, attempt, held in plain.get("strays", ()):
        state.strays.setdefault(name, {})[job_id, attempt] = from_plain(Held, held)
    for name in state.hosts:
        state.recount(name)
    state.recount_limits()
    state.judge_dependencies()
    return state


def jobs_to_plain(jobs: Iterable[Job]) -> list[Any]:
    """Jobs that were submitted in a loop share their specification, which is most of the work, once they were
    read from the store: each is made plain once."""
    specs: dict[int, Any] = {}  # by identity
    found = []
    for job in jobs:
        spec = specs.get(id(job.spec))
        if spec is None:
            spec = specs[id(job.spec)] = to_plain(job.spec)
        found.append(to_plain(job, {"spec": spec}))
    return found


def ledger_to_plain(ledger: Ledger) -> dict[str, Any]:
    return {
        "billing": to_plain(ledger.billing),
        "used": [[*pair, used.amount, used.rate, used.at_us] for pair, used in ledger.used.items()],
        "rates": [[job, *pair, rate] for job, (pair, rate) in ledger.rates.items()],
    }


def ledger_from(plain: dict[str, Any]) -> Ledger:
    used = {(account, user): Usage(*rest) for account, user, *rest in plain.get("used", ())}
    rates = {job: ((account, user), rate) for job, account, user, rate in plain.get("rates", ())}
    running = Counter(pair for pair, _ in rates.values())
    return Ledger(from_plain(Billing, plain.get("billing", {})), used, rates, running)


def stats_row(stats: LinkStats, now_us: int) -> list[Any]:
    """The fields in order, without the defaults at the end; instead of instants their age, which is
    short (None: never measured)."""
    row: list[Any] = [getattr(stats, name) for name, _ in STATS]
    for i in AGES:
        row[i] = now_us - row[i] if row[i] else None
    while row and row[-1] == STATS[len(row) - 1][1]:
        row.pop()
    return row


def stats_from(row: list[Any], now_us: int) -> LinkStats:
    values = dict(zip((name for name, _ in STATS), row, strict=False))
    for name in INSTANTS:
        age_us = values.pop(name, None)
        if age_us is not None:
            values[name] = now_us - age_us
    return from_plain(LinkStats, values)


INSTANTS = ("measured_at_us", "bandwidth_at_us")
STATS = tuple((f.name, None if f.name in INSTANTS else f.default) for f in fields(LinkStats))
AGES = tuple(i for i, (name, _) in enumerate(STATS) if name in INSTANTS)
