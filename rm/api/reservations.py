"""Reservations of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import Answer, Count, Request, Time

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Names = Annotated[Sequence[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=4096)]
Text = Annotated[str, Meta(max_length=4096)]


class ReservationRequest(Request, frozen=True, kw_only=True):
    """A reservation to make: on the `hosts`, or on `count` of those that have the `features` and are in the
    `zone` and the `partition`. It begins at `start_us` (null: now) and lasts `lasts_us`, or ends at `end_us`;
    with `cron` it begins at each time of the expression. `maint`: for maintenance, for nobody else's jobs but
    those of the `users`, or for the `accounts`, or where both are there, of these users for these accounts.
    `playbook` runs on its hosts when it begins, for administrators. `ignore_jobs`: also where jobs run that
    may not be over in time."""

    name: Name
    hosts: Names = ()
    count: Count = 0
    features: Text = ""
    zone: Text = ""
    partition: Text = ""
    users: Names = ()
    accounts: Names = ()
    start_us: Time | None = None
    end_us: Time | None = None
    lasts_us: Count = 0
    cron: Text = ""
    maint: bool = False
    ignore_jobs: bool = False
    playbook: Text = ""
    comment: Text = ""


class ReservationUpdate(Request, frozen=True, kw_only=True):
    """Other values of fields of `ReservationRequest`; what is left out stays."""

    hosts: Names | UnsetType = UNSET
    users: Names | UnsetType = UNSET
    accounts: Names | UnsetType = UNSET
    start_us: Time | UnsetType = UNSET
    end_us: Time | UnsetType = UNSET
    lasts_us: Count | UnsetType = UNSET
    cron: Text | UnsetType = UNSET
    maint: bool | UnsetType = UNSET
    ignore_jobs: bool | UnsetType = UNSET
    playbook: Text | UnsetType = UNSET
    comment: Text | UnsetType = UNSET


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """`windows`: [from, to] of the one that is open and of those to come that are known; `is_open`: the first
    of them has begun. `by` made it at `since_us`. `result` is what became of the playbook in the window that
    began at `played_us`."""

    name: str
    hosts: Sequence[str]
    windows: Sequence[tuple[int, int]]
    users: Sequence[str]
    cron: str
    lasts_us: int
    maint: bool
    ignore_jobs: bool
    playbook: str
    comment: str
    by: str
    since_us: int
    is_open: bool
    played_us: int = 0
    result: str = ""
    accounts: Sequence[str] = ()


class Reservations(Answer, frozen=True, kw_only=True):
    reservations: Sequence[Reservation]


class OneReservation(Answer, frozen=True, kw_only=True):
    reservation: Reservation
