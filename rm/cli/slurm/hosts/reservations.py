"""Reservations as `scontrol show reservation` and `sinfo -T` print them.

Source: slurm_sprint_reservation_info and print_sinfo_reservation of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rm.cli.slurm.jobs import NONE, clock, moment
from rm.errors import NotFound
from rm.units import fold_hosts

if TYPE_CHECKING:
    from rm.api.reservations import Reservation
    from rm.client import Client

LEAST_NAME = 9


def shown(client: Client, named: Sequence[str]) -> Iterator[Sequence[str]]:
    """The records of those that are named, or of all."""
    names = [word.partition("=")[2] or word for word in named]
    found = {one.name: one for one in client.reservations.list()}
    for name in names:
        if name not in found:
            raise NotFound(f"Reservation {name} not found.")
    cpus = {host.name: host.cpus for host in client.hosts()} if found else {}
    for name in names or list(found):
        one = found[name]
        yield _record(one, sum(cpus.get(host, 0) for host in one.hosts))


def listed() -> Iterator[str]:
    """The lines of `sinfo -T`, the header first; none where nothing is reserved."""
    from rm.client import Client

    with Client() as client:
        found = client.reservations.list()
    if not found:
        return
    width = max(LEAST_NAME, *(len(one.name) for one in found))
    titles = ("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
    rows = [titles, *((one.name, *_times(one), fold_hosts(list(one.hosts))) for one in found)]
    for name, state, begins, ends, lasts, hosts in rows:
        yield f"{name:<{width}}  {state:>8}  {begins:>19}  {ends:>19}  {lasts:>11}  {hosts}"


def _times(one: Reservation) -> tuple[str, str, str, str]:
    """State, begin, end and duration."""
    begins, ends = (moment(at_us) for at_us in one.windows[0]) if one.windows else ("N/A", "N/A")
    return "ACTIVE" if one.is_open else "INACTIVE", begins, ends, clock(one.lasts_us)


def _record(one: Reservation, cpus: int) -> Sequence[str]:
    state, begins, ends, lasts = _times(one)
    flags = [word for word, on in (("MAINT", one.maint), ("IGNORE_JOBS", one.ignore_jobs)) if on]
    record = [
        f"ReservationName={one.name} StartTime={begins} EndTime={ends} Duration={lasts}",
        f"Nodes={fold_hosts(list(one.hosts))} NodeCnt={len(one.hosts)} CoreCnt={cpus} Features={NONE} "
        f"PartitionName={NONE} Flags={','.join([*flags, 'SPEC_NODES'])}",
        f"TRES=cpu={cpus}",
        f"Users={','.join(one.users) or NONE} Groups={NONE} Accounts={','.join(one.accounts) or NONE} "
        f"Licenses={NONE} State={state} "
        f"BurstBuffer={NONE} Watts=n/a",
        f"MaxStartDelay={NONE}",
    ]
    return [*record, f"Comment={one.comment}"] if one.comment else record
