"""Fair Tree: who comes first among the users of all accounts.

Source: Slurm's documentation, "Fair Tree Fairshare Algorithm" (R. Cox and L. Morrison, since Slurm 14.11).
Among the users and accounts below an account the level fair share is LF = S / U: S is a sibling's part of the
siblings' shares, U its part of their usage. From the root down the siblings are ranked by LF, and all
members of an account that ranks before another come before all members of that one. Users with equal LF
have one rank, a user comes before an account with the same LF, and the members and accounts of accounts
with equal LF are ranked together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rm.core.sharing.accounts import ROOT, Accounts

Pair = tuple[str, str]  # account and user; "" as the user: the account itself


@dataclass(frozen=True, slots=True)
class Share:
    """What Fair Tree finds of a user in an account, or of an account (then `factor` is nan).

    `shares` and `usage` are parts of the siblings' sum (0 to 1), `level` is LF = shares / usage (inf where
    nothing was used), `factor` the rank from the last, of as many members as there are (0 to 1].
    """

    shares: float
    usage: float
    level: float
    factor: float = math.nan


@dataclass(slots=True)
class _Node:
    pair: Pair
    shares: float
    usage: float
    below: list[_Node] = field(default_factory=list)
    share: Share = Share(0.0, 0.0, 0.0)

    @property
    def is_user(self) -> bool:
        return bool(self.pair[1])


def fair_tree(accounts: Accounts, usage: Mapping[Pair, float]) -> dict[Pair, Share]:
    """The share of each member and account.

    Args:
        usage: decayed, of each account and user, in any unit. What was used by those who are no members any
            more counts for their account, and for those above it.
    """
    root = _tree(accounts, usage)
    found: dict[Pair, Share] = {}
    members = len(accounts.members)
    ranking = _Ranking(members, members)
    _rank([root], ranking, members, found, tied=False)
    return found


@dataclass(slots=True)
class _Ranking:
    """`rank` is what those have who were ranked last; `left` members are not ranked yet."""

    rank: int
    left: int


def _tree(accounts: Accounts, usage: Mapping[Pair, float]) -> _Node:
    used: dict[str, float] = {}
    for (account, _), amount in usage.items():
        for above in (ROOT, *accounts.path(account)):
            used[above] = used.get(above, 0.0) + amount
    root = _Node((ROOT, ""), 1.0, used.get(ROOT, 0.0))
    nodes = {ROOT: root}
    for one in accounts.accounts:
        nodes[one.name] = _Node((one.name, ""), one.shares, used.get(one.name, 0.0))
    for one in accounts.accounts:
        nodes[one.parent].below.append(nodes[one.name])
    for member in accounts.members:
        pair = (member.account, member.user)
        nodes[member.account].below.append(_Node(pair, member.shares, usage.get(pair, 0.0)))
    for node in nodes.values():
        _level(node)
    return root


def _level(parent: _Node) -> None:
    """LF of each child. What an account used beyond its children, by members of the past, is in its sum."""
    all_shares = sum(child.shares for child in parent.below)
    for child in parent.below:
        shares = child.shares / all_shares if all_shares else 0.0
        usage = child.usage / parent.usage if parent.usage else 0.0
        level = 0.0 if not shares else shares / usage if usage else math.inf
        child.share = Share(shares, usage, level)


def _rank(
    parents: Sequence[_Node], ranking: _Ranking, members: int, found: dict[Pair, Share], tied: bool
) -> None:
    """Ranks all below accounts that are tied with each other; `tied`: also with the user ranked last."""
    siblings = sorted(
        (child for parent in parents for child in parent.below),
        key=lambda child: (-child.share.level, not child.is_user),
    )
    for _, group in groupby(siblings, key=lambda child: child.share.level):
        same = list(group)
        for user in (one for one in same if one.is_user):
            if not tied:
                ranking.rank = ranking.left
            share = user.share
            found[user.pair] = Share(share.shares, share.usage, share.level, ranking.rank / members)
            ranking.left -= 1
            tied = True
        accounts = [one for one in same if not one.is_user]
        found |= {one.pair: one.share for one in accounts}
        if accounts:
            _rank(accounts, ranking, members, found, tied)
        tied = False
