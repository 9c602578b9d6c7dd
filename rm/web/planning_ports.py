"""What the web needs of the daemon about plans: expected starts, priorities, reservations, accounts."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import JobSpec
from rm.core.model.priority_parts import PriorityParts
from rm.core.scheduling.foreseen import Foreseen
from rm.core.sharing.accounts import Accounts
from rm.core.sharing.ended import Heap, Sums
from rm.core.sharing.shares import Listed
from rm.core.sharing.usage_query import Asked

T = TypeVar("T")
Answer: TypeAlias = Awaitable[T] | T


class Foresight(Protocol):
    """When jobs are expected to start."""

    def starts(self) -> Answer[tuple[Foreseen, Mapping[int, str]]]:
        """Of the pending jobs, with their users."""
        ...

    def start_of_new(self, spec: JobSpec) -> Answer[Foreseen | None]:
        """It is job 0; None: it would wait for other jobs."""
        ...


class Priorities(Protocol):
    """What the priorities of pending jobs are made of."""

    def parts(self, job: int | None = None) -> Answer[Mapping[int, tuple[PriorityParts, str]]]:
        """Of one, or of all, with their users."""
        ...

    def weights(self) -> PriorityParts:
        """What each part is at most."""
        ...


class ReservationService(Protocol):
    """Reservations of hosts; what is wanted are fields of a ReservationRequest, or a ReservationUpdate."""

    def reservations(self) -> Answer[Sequence[HostReservation]]: ...

    def create(
        self, wanted: Mapping[str, Any], by: str, any_file: bool = False
    ) -> Answer[HostReservation]: ...

    def change(
        self,
        name: str,
        wanted: Mapping[str, Any],
        by: str,
        may_play: bool = False,
        any_file: bool = False,
    ) -> Answer[HostReservation]: ...

    def delete(self, name: str, by: str) -> Answer[HostReservation]: ...


class UsageService(Protocol):
    """What jobs used, added up."""

    def usage(
        self, by: Sequence[str], since_us: int, until_us: int, only: Sequence[tuple[str, str]]
    ) -> Answer[tuple[Asked, Sequence[tuple[Heap, Sums]]]]:
        """What was asked, as it is answered, and the lines."""
        ...

    def totals(self) -> Answer[Mapping[str, Sums]]:
        """By account, of what ended since the daemon leads."""
        ...


class AccountService(Protocol):
    """Accounts: what is wanted are fields of the requests of `rm.api.sharing`; each answers with all."""

    def accounts(self) -> Answer[Accounts]: ...

    def shares(self) -> Answer[Sequence[Listed]]: ...

    def add_account(self, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def set_account(self, name: str, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def remove_account(self, name: str, by: str) -> Answer[Accounts]: ...

    def put_members(self, name: str, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def remove_members(self, name: str, users: Sequence[str], by: str) -> Answer[Accounts]: ...

    def import_accounts(self, wanted: Accounts, by: str) -> Answer[Accounts]: ...

    def add_qos(self, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def set_qos(self, name: str, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def remove_qos(self, name: str, by: str) -> Answer[Accounts]: ...

    def add_partition(self, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def set_partition(self, name: str, wanted: Mapping[str, Any], by: str) -> Answer[Accounts]: ...

    def remove_partition(self, name: str, by: str) -> Answer[Accounts]: ...
