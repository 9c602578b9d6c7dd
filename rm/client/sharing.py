"""`client.sharing`: accounts, their shares and limits, who is in them, QOS and rules of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rm.api.sharing import (
    Account,
    AccountRequest,
    Accounts,
    AccountsImport,
    AccountUpdate,
    Member,
    MemberRequest,
    Partition,
    PartitionRequest,
    Partitions,
    PartitionUpdate,
    Qos,
    QosRequest,
    QosUpdate,
    Share,
    Shares,
)
from rm.api.usage import Usage
from rm.client.asking import Asking


class Sharing:
    """Each change answers with all accounts."""

    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def accounts(self) -> Accounts:
        """All accounts, and all members."""
        return self._ask.get(Accounts, "accounts")

    def shares(self) -> Sequence[Share]:
        """What accounts and users have used, and their fair share, in the order of the tree."""
        return self._ask.get(Shares, "shares").shares

    def usage(self, by: Sequence[str] = (), *, since_us: int = 0, until_us: int = 0, **only: str) -> Usage:
        """What jobs used that ended from `since_us` until before `until_us` (0: now), by some of account,
        user, qos and partition, or by host, and by day; `only` those of one account=…, user=… and so on."""
        query: dict[str, Any] = {"by": ",".join(by), "since_us": since_us, "until_us": until_us, **only}
        return self._ask.get(Usage, "usage", **query)

    def add_account(self, name: str, **fields: Any) -> Accounts:
        """Add one, of the fields of an AccountRequest."""
        return self._ask.post(Accounts, "accounts", body=AccountRequest(name=name, **fields))

    def set_account(self, name: str, **fields: Any) -> Accounts:
        """Change fields of an AccountUpdate; what is left out stays."""
        return self._ask.post(Accounts, "accounts", name, body=AccountUpdate(**fields))

    def remove_account(self, name: str) -> Accounts:
        """Remove one that has no users, and no accounts below it."""
        return self._ask.delete(Accounts, "accounts", name)

    def put_members(self, name: str, users: Sequence[str], **fields: Any) -> Accounts:
        """Let users be in the account, with fields of a MemberRequest."""
        body = MemberRequest(users=users, **fields)
        return self._ask.post(Accounts, "accounts", name, "members", body=body)

    def remove_member(self, name: str, user: str) -> Accounts:
        """Take a user out of the account, whose jobs for it have ended."""
        return self._ask.delete(Accounts, "accounts", name, "members", user)

    def add_qos(self, name: str, **fields: Any) -> Accounts:
        """Add a QOS, of the fields of a QosRequest."""
        return self._ask.post(Accounts, "qos", body=QosRequest(name=name, **fields))

    def set_qos(self, name: str, **fields: Any) -> Accounts:
        """Change fields of a QosUpdate; what is left out stays."""
        return self._ask.post(Accounts, "qos", name, body=QosUpdate(**fields))

    def remove_qos(self, name: str) -> Accounts:
        """Remove one in which no job runs or waits."""
        return self._ask.delete(Accounts, "qos", name)

    def partitions(self) -> Sequence[Partition]:
        """What is ruled of partitions."""
        return self._ask.get(Partitions, "partitions").partitions

    def add_partition(self, name: str, **fields: Any) -> Sequence[Partition]:
        """Give a partition rules, of the fields of a PartitionRequest."""
        body = PartitionRequest(name=name, **fields)
        return self._ask.post(Partitions, "partitions", body=body).partitions

    def set_partition(self, name: str, **fields: Any) -> Sequence[Partition]:
        """Change fields of a PartitionUpdate; what is left out stays."""
        return self._ask.post(Partitions, "partitions", name, body=PartitionUpdate(**fields)).partitions

    def remove_partition(self, name: str) -> Sequence[Partition]:
        """Take its rules from a partition, whose hosts stay in it."""
        return self._ask.delete(Partitions, "partitions", name).partitions

    def import_accounts(
        self,
        accounts: Iterable[Account],
        members: Iterable[Member] = (),
        qos: Iterable[Qos] = (),
        limits: Mapping[str, int] | None = None,
        partitions: Iterable[Partition] = (),
    ) -> Accounts:
        """Let these be all accounts, members, QOS and rules of partitions, and these the limits of the
        cluster."""
        body = AccountsImport(
            accounts=[*accounts],
            members=[*members],
            qos=[*qos],
            limits=limits or {},
            partitions=[*partitions],
        )
        return self._ask.post(Accounts, "accounts-import", body=body)
