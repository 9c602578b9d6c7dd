"""Who has which share of the cluster, and has used what of it: a view for one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from rm.core.model.job import Job
from rm.core.model.progress import Progress, likely_left_us
from rm.core.model.quickly_made import quickly_made
from rm.core.sharing.accounts import NO_ACCOUNTS, ROOT, Accounts
from rm.core.sharing.fair_tree import Pair, Share, fair_tree
from rm.core.sharing.ledger import Ledger
from rm.core.sharing.resources import Resources
from rm.core.sharing.tally import Key, Tally


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the tree: an account (`user` is empty) or a user in it. `shares_part` and `used_part` are
    parts of the siblings' sum, `used` weighted resource-seconds; `level` is None where nothing was used,
    and `factor` None for accounts."""

    account: str
    user: str
    shares: int
    shares_part: float
    used: float
    used_part: float
    level: float | None
    factor: float | None
    depth: int  # of the account, below the root


@quickly_made
@dataclass(frozen=True)
class Shares:
    accounts: Accounts = NO_ACCOUNTS
    ledger: Ledger = field(default_factory=Ledger)
    now_us: int = 0
    tally: Tally = field(default_factory=Tally)
    jobs: Mapping[int, Job] = field(default_factory=dict)
    progress: Mapping[int, Progress] = field(default_factory=dict)
    _by_weight: dict[float, dict[Pair, Share]] = field(default_factory=dict)

    @cached_property
    def amounts(self) -> Mapping[Pair, float]:
        """Weighted resource-seconds, decayed, of each account and user."""
        return self.ledger.amounts(self.now_us)

    @cached_property
    def _highest(self) -> int:
        return max((one.priority for one in self.accounts.qos), default=0)

    def qos_part(self, qos: str) -> float:
        """The priority of a QOS, as a part of the highest one's; 0 where there is none."""
        found = self.accounts.qos_by_name.get(qos)
        return found.priority / self._highest if found is not None and self._highest else 0.0

    @cached_property
    def _partition_parts(self) -> Mapping[str, float]:
        highest = max((one.priority for one in self.accounts.partitions), default=0)
        return {one.name: one.priority / highest for one in self.accounts.partitions} if highest else {}

    def partition_part(self, name: str) -> float:
        """The priority of a partition as a part of the highest of all; 0 where there is none."""
        return self._partition_parts.get(name, 0.0)

    def used(self, account: str) -> float:
        """Weighted resource-seconds, decayed, of an account and those below it."""
        return sum(
            amount
            for (one, _), amount in self.amounts.items()
            if account == ROOT or account in self.accounts.path(one)
        )

    def used_by(self, key: Key) -> float:
        """Weighted resource-seconds, decayed, of whom a limit is for."""
        return self.amounts.get((key.name, key.each), 0.0) if key.each else self.used(key.name)

    def rate(self, has: Resources) -> float:
        """What these resources count for in each second."""
        return self.ledger.billing.of(has)

    @cached_property
    def found(self) -> dict[Pair, Share]:
        """Of each member, and of each account with "" as the user."""
        return fair_tree(self.accounts, self.amounts)

    def listed(self) -> list[Listed]:
        """All accounts and members, the root first, each account before its users, and these before the
        accounts below it; by name, as sshare has them."""
        used = {(ROOT, ""): 0.0}
        for (account, user), amount in self.amounts.items():
            used[account, user] = amount
            for above in (ROOT, *self.accounts.path(account)):
                used[above, ""] = used.get((above, ""), 0.0) + amount
        lines = [Listed(ROOT, "", 1, 1.0, used[ROOT, ""], 1.0, 1.0, None, 0)]

        def add(account: str, user: str, shares: int) -> None:
            share, amount = self.found[account, user], used.get((account, user), 0.0)
            level = share.level if isfinite(share.level) else None
            factor = share.factor if user else None
            depth = len(self.accounts.path(account))
            lines.append(
                Listed(account, user, shares, share.shares, amount, share.usage, level, factor, depth)
            )

        def descend(parent: str) -> None:
            for one in sorted(self.accounts.below(parent), key=lambda account: account.name):
                add(one.name, "", one.shares)
                for member in sorted(self.accounts.members_of(one.name), key=lambda member: member.user):
                    add(one.name, member.user, member.shares)
                descend(one.name)

        descend(ROOT)
        return lines

    @cached_property
    def committed(self) -> Mapping[Pair, float]:
        """Weighted resource-seconds that what runs is likely to use yet, of each account and user; of jobs of
        which nobody knows how long they run, nothing."""
        found: dict[Pair, float] = {}
        for number, (pair, rate) in self.ledger.rates.items():
            job = self.jobs.get(number)
            left_us = job and likely_left_us(job, self.progress.get(number), self.now_us)
            if left_us:
                found[pair] = found.get(pair, 0.0) + rate * left_us / 1e6
        return found

    def factor(self, account: str, user: str, committed_weight: float = 0.0) -> float:
        """Fair Tree's, from 0 to 1; 0 for who is no member of an account. What is committed counts beside
        what was used, so often."""
        if committed_weight not in self._by_weight:
            self._by_weight[committed_weight] = self._ranked(committed_weight)
        share = self._by_weight[committed_weight].get((account, user))
        return share.factor if share is not None else 0.0

    def _ranked(self, committed_weight: float) -> dict[Pair, Share]:
        if not committed_weight or not self.committed:
            return self.found
        amounts = dict(self.amounts)
        for pair, amount in self.committed.items():
            amounts[pair] = amounts.get(pair, 0.0) + committed_weight * amount
        return fair_tree(self.accounts, amounts)
