"""The tree of accounts: what it refuses, and that no order of changes makes it anything but a tree."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.sharing.accounts import (
    MAX_SHARES,
    NO_ACCOUNTS,
    ROOT,
    Account,
    Accounts,
    Member,
    account_for,
    checked,
    put_account,
    put_member,
    refuse_lost,
    without_account,
    without_member,
)
from rm.errors import Conflict, NotFound, RmError, UsageError

LAB = checked(
    [Account("science", shares=3), Account("physics", "science", 2), Account("teaching")],
    [Member("physics", "alice"), Member("teaching", "alice"), Member("teaching", "bob", 5)],
)


def test_the_first_account_of_a_user_is_the_default_until_another_is() -> None:
    assert account_for(LAB, "alice", "") == "physics"
    assert account_for(LAB, "alice", "teaching") == "teaching"
    moved = put_member(LAB, Member("teaching", "alice", default=True))
    assert account_for(moved, "alice", "") == "teaching"
    assert [one.default for one in moved.of_user("alice")] == [True, False]
    assert account_for(without_member(moved, "teaching", "alice"), "alice", "") == "physics"


def test_who_is_changed_keeps_the_place() -> None:
    changed = put_member(LAB, Member("physics", "alice", 7, default=True))
    assert [(one.account, one.user, one.shares) for one in changed.members] == [
        ("physics", "alice", 7), ("teaching", "alice", 1), ("teaching", "bob", 5),
    ]  # fmt: skip


def test_a_user_of_no_account_has_none_and_can_name_none() -> None:
    assert account_for(LAB, "carol", "") == ""
    for named, says in (
        ("physics", "carol is not in account physics"),
        ("chess", "There is no account 'chess'"),
    ):
        with pytest.raises(UsageError, match=says):
            account_for(LAB, "carol", named)
    with pytest.raises(UsageError) as refused:
        account_for(LAB, "alice", "chess")
    assert refused.value.hint == "alice is in physics, teaching."


def test_without_accounts_a_name_is_a_word_of_the_job() -> None:
    assert account_for(NO_ACCOUNTS, "carol", "") == ""
    assert account_for(NO_ACCOUNTS, "carol", "grant 7") == "grant 7"


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda: put_account(LAB, Account("physics"), new=True), Conflict, "There is an account physics"),
        (lambda: put_account(LAB, Account("chess"), new=False), NotFound, "no account 'chess'"),
        (lambda: put_account(LAB, Account("Physics"), new=True), UsageError, "no name of an account"),
        (lambda: put_account(LAB, Account(ROOT), new=True), UsageError, "'root' is no name"),
        (lambda: put_account(LAB, Account("a", "nowhere"), new=True), UsageError, "'nowhere', is no account"),
        (lambda: put_account(LAB, Account("a", shares=-1), new=True), UsageError, "shares of a are -1"),
        (lambda: put_account(LAB, Account("a", shares=MAX_SHARES + 1), new=True), UsageError, "shares of a"),
        (lambda: put_account(LAB, Account("science", "physics"), new=False), UsageError, "be below itself"),
        (lambda: put_account(LAB, Account("science", "science"), new=False), UsageError, "be below itself"),
        (lambda: put_member(LAB, Member("chess", "alice")), NotFound, "no account 'chess'"),
        (lambda: put_member(LAB, Member("physics", "")), UsageError, "no name of a user"),
        (lambda: put_member(LAB, Member("physics", "bob", -2)), UsageError, "shares of bob in physics"),
        (lambda: without_account(LAB, "science"), Conflict, "Accounts are below science: physics"),
        (lambda: without_account(LAB, "teaching"), Conflict, "Users are in teaching: alice, bob"),
        (lambda: without_account(LAB, "chess"), NotFound, "no account 'chess'"),
        (lambda: without_member(LAB, "physics", "bob"), NotFound, "bob is not in physics"),
        (lambda: checked([Account("a"), Account("a", shares=2)], []), UsageError, "a is listed twice"),
        (
            lambda: checked([Account("a", "b"), Account("b", "a")], []),
            UsageError,
            "itself: a < b < a",
        ),
        (lambda: checked([Account("a")], [Member("a", "x"), Member("a", "x", 2)]), UsageError, "x of a is"),
        (lambda: checked([Account("a")], [Member("b", "x")]), UsageError, "'b', which is no account"),
        (
            lambda: checked(
                [Account("a"), Account("b")], [Member("a", "x", default=True), Member("b", "x", default=True)]
            ),
            UsageError,
            "x has more than one default",
        ),
        (lambda: refuse_lost(LAB, {("physics", "bob")}), Conflict, re.escape("for physics (of bob)")),
    ],
)
def test_what_is_no_tree_or_loses_something_is_refused_by_a_sentence(
    change: Callable[[], object], kind: type[RmError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        change()


def test_what_has_no_user_and_nothing_below_goes() -> None:
    left = without_account(without_member(LAB, "physics", "alice"), "physics")
    assert [one.name for one in left.accounts] == ["science", "teaching"]
    assert account_for(left, "alice", "") == "teaching"
    refuse_lost(left, {("teaching", "alice")})


NAMES, USERS = st.sampled_from("abcd"), st.sampled_from("xyz")
CHANGES = st.one_of(
    st.builds(
        lambda name, parent, shares, new: lambda old: put_account(old, Account(name, parent, shares), new),
        NAMES, st.one_of(NAMES, st.just(ROOT)), st.integers(-1, 3), st.booleans(),
    ),
    st.builds(lambda name, user, default: lambda old: put_member(old, Member(name, user, 1, default)),
              NAMES, USERS, st.booleans()),
    st.builds(lambda name: lambda old: without_account(old, name), NAMES),
    st.builds(lambda name, user: lambda old: without_member(old, name, user), NAMES, USERS),
)  # fmt: skip


@given(st.lists(CHANGES, max_size=30))
def test_no_order_of_changes_makes_it_anything_but_a_tree(
    changes: list[Callable[[Accounts], Accounts]],
) -> None:
    accounts = NO_ACCOUNTS
    for change in changes:
        try:
            accounts = change(accounts)
        except RmError:
            continue
        assert checked(accounts.accounts, accounts.members) == accounts
        for user in "xyz":
            mine = accounts.of_user(user)
            assert [one.default for one in mine] == [True, *[False] * (len(mine) - 1)][: len(mine)]
