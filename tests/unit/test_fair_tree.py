"""Fair Tree against its definition, and usage that decays exactly."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.cli.slurm.accounting.sshare import LONG, cells
from rm.core.sharing.accounts import ROOT, Account, Accounts, Member, checked
from rm.core.sharing.fair_tree import Pair, fair_tree
from rm.core.sharing.ledger import Billing, Ledger
from rm.core.sharing.shares import Listed, Shares
from rm.core.sharing.usage import UNUSED, Usage


@st.composite
def trees(draw: st.DrawFn) -> tuple[Accounts, dict[Pair, float]]:
    """Few shares and usages, so that there are ties."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    accounts = [
        Account(name, draw(st.sampled_from([ROOT, *names[:index]])), draw(st.integers(0, 2)))
        for index, name in enumerate(names)
    ]
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from("xyz")), unique=True, max_size=9))
    # an account without members keeps its tie to itself, as in Slurm, of which the definition says nothing
    pairs += [(one.name, "w") for one in accounts if one.name not in {other.parent for other in accounts}]
    members = [Member(account, user, draw(st.integers(1, 2))) for account, user in pairs]
    usage = {pair: float(draw(st.integers(0, 2))) for pair in pairs}
    if draw(st.booleans()):
        usage[names[0], "of the past"] = 2.0
    return checked(accounts, members), usage


def defined(accounts: Accounts, usage: dict[Pair, float]) -> dict[Pair, Fraction]:
    """The factors by comparison of any two members: whoever's way from the root is first larger in level."""

    def used(name: str) -> Fraction:
        mine = [Fraction(amount) for (account, _), amount in usage.items() if account == name]
        return sum(mine, Fraction(0)) + sum((used(one.name) for one in accounts.below(name)), Fraction(0))

    def level(parent: str, shares: int, amount: Fraction) -> float:
        siblings = [one.shares for one in accounts.below(parent)]
        siblings += [one.shares for one in accounts.members_of(parent)]
        if not shares:
            return 0.0
        return math.inf if not amount else Fraction(shares, sum(siblings)) / (amount / used(parent))  # type: ignore[return-value]

    def way(one: Member) -> list[tuple[float, bool]]:
        """Levels from the root, and whether that is a user's: users come before accounts of their level."""
        found = []
        for name in accounts.path(one.account):
            account = accounts.by_name[name]
            found.append((level(account.parent, account.shares, used(name)), False))
        mine = Fraction(usage.get((one.account, one.user), 0))
        return [*found, (level(one.account, one.shares, mine), True)]

    ways = {(one.account, one.user): way(one) for one in accounts.members}
    order = sorted(ways, key=lambda pair: [(-level, not is_user) for level, is_user in ways[pair]])
    found: dict[Pair, Fraction] = {}
    rank, first = Fraction(0), True
    for index, pair in enumerate(order):
        if first or not tied(ways[order[index - 1]], ways[pair]):
            rank, first = Fraction(len(order) - index, len(order)), False
        found[pair] = rank
    return found


def tied(before: list[tuple[float, bool]], after: list[tuple[float, bool]]) -> bool:
    """Equal ways; or a user's that ends where an account of the same level begins, whose first is next."""
    same = [level for level, _ in before] == [level for level, _ in after][: len(before)]
    return same and len(before) <= len(after)


@given(trees())
def test_each_factor_is_what_the_definition_says(drawn: tuple[Accounts, dict[Pair, float]]) -> None:
    accounts, usage = drawn
    found = {pair: share.factor for pair, share in fair_tree(accounts, usage).items() if pair[1]}
    assert found == {pair: float(factor) for pair, factor in defined(accounts, usage).items()}


TREES = json.loads((Path(__file__).parents[1] / "golden" / "fair_tree.json").read_text())["trees"]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_slurm_finds_the_same(tree: dict[str, Any]) -> None:
    """Of ten trees all that `sshare -l` of Slurm 22.05 printed, in its order."""
    accounts = checked(
        [Account(name, parent, shares) for name, parent, shares in tree["accounts"]],
        [Member(account, user, shares) for account, user, shares in tree["members"]],
    )
    used = {(account, user): Usage(float(amount)) for name, amount in tree["usage"].items()
            for account, user in [name.split("/")]}  # fmt: skip
    found = Shares(accounts, Ledger(Billing(half_life_us=0), used)).listed()
    assert [line(one, found[0].used) for one in found] == tree["sshare"][1:]


def line(one: Listed, whole: float) -> list[str]:
    """As sshare prints it."""
    row = cells(one, whole)
    return [row[name] for name in LONG if name in row]


def test_all_members_of_the_account_that_used_less_come_first() -> None:
    accounts = checked(
        [Account("a", shares=1), Account("b", shares=1)],
        [Member("a", "greedy"), Member("a", "idle"), Member("b", "busy"), Member("b", "other")],
    )
    usage = {("a", "greedy"): 99.0, ("b", "busy"): 50.0, ("b", "other"): 51.0}
    found = fair_tree(accounts, usage)
    ranked = sorted((pair for pair in found if pair[1]), key=lambda pair: -found[pair].factor)
    assert [user for _, user in ranked] == ["idle", "greedy", "busy", "other"]
    assert found["a", "idle"].level == math.inf
    assert found["b", ""].usage == pytest.approx(101 / 200)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(-3, 3)), max_size=8),
    st.sampled_from([0, 10**6, 10**8]),
)
def test_usage_is_the_sum_of_what_each_change_added(
    changes: list[tuple[int, float]], half_life_us: int
) -> None:
    """However it is split: each change of the rate is a job of its own, that runs to the end."""
    usage, now_us = UNUSED, 0
    alone = []
    for after_us, rate in changes:
        now_us += after_us
        usage = usage.changed(rate, now_us, half_life_us)
        alone.append(Usage(0.0, rate, now_us))
    end_us = now_us + 10**7
    parts = [one.at(end_us, half_life_us) for one in alone]
    assert usage.at(end_us, half_life_us) == pytest.approx(math.fsum(parts), abs=1e-3, rel=1e-6)


def test_after_a_half_life_half_is_left() -> None:
    assert Usage(8.0, 0.0, 0).at(10**6, 10**6) == pytest.approx(4.0)
    assert Usage(8.0, 1.0, 0).at(3 * 10**6, 0) == pytest.approx(11.0)
