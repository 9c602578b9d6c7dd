"""The use cases of accounts, QOS and rules of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.scheduling.cycle import Cycle
from rm.core.sharing import accounts as sharing
from rm.core.sharing import requests
from rm.core.sharing.accounts import Accounts
from rm.core.sharing.partitions import without_partition
from rm.core.sharing.qos import refuse_lost_qos, without_qos
from rm.core.sharing.shares import Listed, Shares
from rm.daemon.services.asking import Asking


class AccountService:
    """Its methods run in the web server's event loop; each gives back all accounts and QOS. What is `wanted`
    are fields of the requests of `rm.api.sharing`."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def accounts(self) -> Accounts:
        def ask(cycle: Cycle, now_us: int) -> Accounts:
            return cycle.state.accounts

        found: Accounts = await self._asking.ask(ask)
        return found

    async def shares(self) -> list[Listed]:
        def ask(cycle: Cycle, now_us: int) -> Shares:
            state = cycle.state
            return Shares(state.accounts, state.ledger.copy(), now_us)

        found: Shares = await self._asking.ask(ask)
        return found.listed()

    async def add_account(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.add_account(old, wanted), by)

    async def set_account(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.set_account(old, name, wanted), by)

    async def remove_account(self, name: str, by: str) -> Accounts:
        return await self._change(lambda old: sharing.without_account(old, name), by)

    async def put_members(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.put_members(old, name, wanted), by)

    async def remove_members(self, name: str, users: Sequence[str], by: str) -> Accounts:
        return await self._change(lambda old: requests.remove_members(old, name, users), by)

    async def add_qos(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.add_qos(old, wanted), by)

    async def set_qos(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.set_qos(old, name, wanted), by)

    async def remove_qos(self, name: str, by: str) -> Accounts:
        return await self._change(lambda old: without_qos(old, name), by)

    async def add_partition(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.add_partition(old, wanted), by)

    async def set_partition(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return await self._change(lambda old: requests.set_partition(old, name, wanted), by)

    async def remove_partition(self, name: str, by: str) -> Accounts:
        return await self._change(lambda old: without_partition(old, name), by)

    async def import_accounts(self, wanted: Accounts, by: str) -> Accounts:
        return await self._change(lambda old: requests.import_all(wanted), by)

    async def _change(self, change: Callable[[Accounts], Accounts], by: str) -> Accounts:
        """Jobs that have not ended keep their accounts, and those their members; reservations theirs."""

        def make(state: ClusterState) -> list[ev.Event]:
            new = change(state.accounts)
            if new == state.accounts:
                return []
            known = {(one.account, one.user) for one in state.accounts.members}
            used = {(job.account, job.spec.user) for job in state.jobs.values() if not job.state.final}
            sharing.refuse_lost(new, used & known)
            reserved = {name: one.accounts for name, one in state.reservations.items()}
            sharing.refuse_reserved(state.accounts, new, reserved)
            in_qos = {job.qos for job in state.jobs.values() if not job.state.final}
            refuse_lost_qos(new, in_qos & state.accounts.qos_by_name.keys())
            return [ev.AccountsSet(new, by)]

        made: Accounts = await self._asking.request(make, lambda state: state.accounts, alone=True)
        return made
