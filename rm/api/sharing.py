"""Accounts, their shares, and who is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import Answer, Request

Name = Annotated[str, Meta(min_length=1, max_length=64)]
User = Annotated[str, Meta(min_length=1, max_length=255)]
ShareCount = Annotated[int, Meta(ge=0, lt=2**31)]
Text = Annotated[str, Meta(max_length=4096)]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account: its shares count among those with the same parent, and those of the parent's users."""

    name: Name
    parent: Name = "root"
    shares: ShareCount = 1
    description: Text = ""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user in an account; `default`: the user's jobs that name no account are for this one."""

    account: Name
    user: User
    shares: ShareCount = 1
    default: bool = False


class Accounts(Answer, frozen=True, kw_only=True):
    accounts: Sequence[Account]
    members: Sequence[Member]


class AccountsImport(Request, frozen=True, kw_only=True):
    """All accounts and members, instead of those that there are."""

    accounts: Annotated[Sequence[Account], Meta(max_length=10_000)]
    members: Annotated[Sequence[Member], Meta(max_length=100_000)] = ()


class AccountRequest(Request, frozen=True, kw_only=True):
    """An account to add."""

    name: Name
    parent: Name = "root"
    shares: ShareCount = 1
    description: Text = ""


class AccountUpdate(Request, frozen=True, kw_only=True):
    """What is left out stays."""

    parent: Name | UnsetType = UNSET
    shares: ShareCount | UnsetType = UNSET
    description: Text | UnsetType = UNSET


class MemberRequest(Request, frozen=True, kw_only=True):
    """Users who are to be in the account; of those who are, what is left out stays. `default`: it becomes the
    default account of each."""

    users: Annotated[Sequence[User], Meta(min_length=1, max_length=10_000)]
    shares: ShareCount | UnsetType = UNSET
    default: bool = False


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What Fair Tree finds of a user in an account, or of an account (`user` is empty, and `factor` null).
    `used` are weighted resource-seconds, decayed; `shares_part` and `used_part` are parts of what the
    siblings have together; `level` is the one divided by the other, null where nothing was used; `factor` is
    the rank from the last, of all members. `depth`: how far the account is below the root."""

    account: str
    user: str
    shares: int
    shares_part: float
    used: float
    used_part: float
    level: float | None
    factor: float | None
    depth: int


class Shares(Answer, frozen=True, kw_only=True):
    """In the order of the tree, the root first."""

    shares: Sequence[Share]
