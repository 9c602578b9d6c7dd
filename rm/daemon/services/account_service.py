"""The use cases of accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.replacing import replace
from rm.core.scheduling.cycle import Cycle
from rm.core.sharing import accounts as sharing
from rm.core.sharing.accounts import Account, Accounts, Member
from rm.core.sharing.shares import Listed, Shares
from rm.daemon.services.asking import Asking


class AccountService:
    """Its methods run in the web server's event loop; each gives back all accounts."""

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
        """Of the fields of an AccountRequest."""
        return await self._change(lambda old: sharing.put_account(old, Account(**wanted), new=True), by)

    async def set_account(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        """Of the fields of an AccountUpdate."""

        def change(old: Accounts) -> Accounts:
            return sharing.put_account(old, replace(sharing.known(old, name), **wanted), new=False)

        return await self._change(change, by)

    async def remove_account(self, name: str, by: str) -> Accounts:
        return await self._change(lambda old: sharing.without_account(old, name), by)

    async def put_members(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        """Of the fields of a MemberRequest."""

        def change(old: Accounts) -> Accounts:
            for user in wanted["users"]:
                mine = next((one for one in old.members_of(name) if one.user == user), Member(name, user))
                shares, default = wanted.get("shares", mine.shares), wanted.get("default") or mine.default
                old = sharing.put_member(old, replace(mine, shares=shares, default=default))
            return old

        return await self._change(change, by)

    async def remove_members(self, name: str, users: Sequence[str], by: str) -> Accounts:
        def change(old: Accounts) -> Accounts:
            for user in users:
                old = sharing.without_member(old, name, user)
            return old

        return await self._change(change, by)

    async def import_accounts(
        self, accounts: Sequence[Account], members: Sequence[Member], by: str
    ) -> Accounts:
        return await self._change(lambda old: sharing.checked(accounts, members), by)

    async def _change(self, change: Callable[[Accounts], Accounts], by: str) -> Accounts:
        """Jobs that have not ended keep their accounts, and those their members."""

        def make(state: ClusterState) -> list[ev.Event]:
            new = change(state.accounts)
            if new == state.accounts:
                return []
            known = {(one.account, one.user) for one in state.accounts.members}
            used = {(job.account, job.spec.user) for job in state.jobs.values() if not job.state.final}
            sharing.refuse_lost(new, used & known)
            return [ev.AccountsSet(new, by)]

        made: Accounts = await self._asking.request(make, lambda state: state.accounts)
        return made
