"""Accounts, their shares, who is in them, QOS, and what is ruled of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import Answer, Request

Name = Annotated[str, Meta(min_length=1, max_length=64)]
User = Annotated[str, Meta(min_length=1, max_length=255)]
ShareCount = Annotated[int, Meta(ge=0, lt=2**31)]
Text = Annotated[str, Meta(max_length=4096)]
LimitName = Annotated[str, Meta(max_length=64)]
LimitCount = Annotated[int, Meta(ge=0, le=2**53)]
Limits = Mapping[LimitName, LimitCount]
LimitChanges = Mapping[LimitName, LimitCount | None]
Factor = Annotated[float, Meta(ge=0)]
PartitionState = Literal["up", "down", "drain", "inactive"]
Tier = Annotated[int, Meta(ge=0, le=65_533)]
PreemptMode = Literal["requeue", "cancel", "suspend", "off"]
Preempted = Annotated[Sequence[Name], Meta(max_length=1_000)]
Seconds = Annotated[float, Meta(ge=0)]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account: its shares count among those with the same parent, and those of the parent's users. `qos`
    holds for jobs that name none; "": the parent's."""

    name: Name
    parent: Name = "root"
    shares: ShareCount = 1
    description: Text = ""
    qos: str = ""
    limits: Limits = msgspec.field(default_factory=dict)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user in an account; `default`: the user's jobs that name no account are for this one."""

    account: Name
    user: User
    shares: ShareCount = 1
    default: bool = False
    limits: Limits = msgspec.field(default_factory=dict)


class Qos(msgspec.Struct, frozen=True, kw_only=True):
    """A quality of service: `priority` counts against the highest of all, what its jobs use counts
    `usage_factor` times, and `accounts` may use it with those below them; none: all. Its jobs may preempt
    those of the QOS that `preempts` names. How its own are preempted: by `preempt_mode`, with `grace_s`, and
    not before they have run for `exempt_s`."""

    name: Name
    priority: ShareCount = 0
    usage_factor: Factor = 1.0
    accounts: Sequence[Name] = ()
    limits: Limits = msgspec.field(default_factory=dict)
    description: Text = ""
    preempts: Preempted = ()
    preempt_mode: PreemptMode = "requeue"
    grace_s: Seconds = 0.0
    exempt_s: Seconds = 0.0


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """What is ruled of a partition; which hosts are in it the hosts say. Jobs of a higher `tier` come first;
    `priority` counts against the highest of all. `accounts` may use it, with those below them, in the QOS
    `qos`; none: all. A job without a time limit has `default_minutes`, where that is not 0. How its jobs are
    preempted by those of a partition of a higher tier: as those of a QOS are."""

    name: Name
    state: PartitionState = "up"
    tier: Tier = 1
    priority: Tier = 0
    accounts: Sequence[Name] = ()
    qos: Sequence[Name] = ()
    default_minutes: ShareCount = 0
    limits: Limits = msgspec.field(default_factory=dict)
    description: Text = ""
    preempt_mode: PreemptMode = "off"
    grace_s: Seconds = 0.0
    exempt_s: Seconds = 0.0


class Partitions(Answer, frozen=True, kw_only=True):
    """Those with rules."""

    partitions: Sequence[Partition]


class Accounts(Answer, frozen=True, kw_only=True):
    """`limits` are those of the whole cluster, and of each user there."""

    accounts: Sequence[Account]
    members: Sequence[Member]
    qos: Sequence[Qos] = ()
    limits: Limits = msgspec.field(default_factory=dict)
    partitions: Sequence[Partition] = ()


class AccountsImport(Request, frozen=True, kw_only=True):
    """All accounts, members, QOS and rules of partitions, instead of those that there are."""

    accounts: Annotated[Sequence[Account], Meta(max_length=10_000)]
    members: Annotated[Sequence[Member], Meta(max_length=100_000)] = ()
    qos: Annotated[Sequence[Qos], Meta(max_length=1_000)] = ()
    limits: Limits = msgspec.field(default_factory=dict)
    partitions: Annotated[Sequence[Partition], Meta(max_length=1_000)] = ()


class AccountRequest(Request, frozen=True, kw_only=True):
    """An account to add."""

    name: Name
    parent: Name = "root"
    shares: ShareCount = 1
    description: Text = ""
    qos: str = ""
    limits: Limits = msgspec.field(default_factory=dict)


class AccountUpdate(Request, frozen=True, kw_only=True):
    """What is left out stays, limits too; a limit that is null goes. The account `root` has limits alone."""

    parent: Name | UnsetType = UNSET
    shares: ShareCount | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    limits: LimitChanges | UnsetType = UNSET


class QosRequest(Request, frozen=True, kw_only=True):
    """A QOS to add."""

    name: Name
    priority: ShareCount = 0
    usage_factor: Factor = 1.0
    accounts: Sequence[Name] = ()
    limits: Limits = msgspec.field(default_factory=dict)
    description: Text = ""
    preempts: Preempted = ()
    preempt_mode: PreemptMode = "requeue"
    grace_s: Seconds = 0.0
    exempt_s: Seconds = 0.0


class QosUpdate(Request, frozen=True, kw_only=True):
    """What is left out stays, limits too; a limit that is null goes."""

    priority: ShareCount | UnsetType = UNSET
    usage_factor: Factor | UnsetType = UNSET
    accounts: Sequence[Name] | UnsetType = UNSET
    limits: LimitChanges | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    preempts: Preempted | UnsetType = UNSET
    preempt_mode: PreemptMode | UnsetType = UNSET
    grace_s: Seconds | UnsetType = UNSET
    exempt_s: Seconds | UnsetType = UNSET


class PartitionRequest(Request, frozen=True, kw_only=True):
    """Rules for a partition that has none."""

    name: Name
    state: PartitionState = "up"
    tier: Tier = 1
    priority: Tier = 0
    accounts: Sequence[Name] = ()
    qos: Sequence[Name] = ()
    default_minutes: ShareCount = 0
    limits: Limits = msgspec.field(default_factory=dict)
    description: Text = ""
    preempt_mode: PreemptMode = "off"
    grace_s: Seconds = 0.0
    exempt_s: Seconds = 0.0


class PartitionUpdate(Request, frozen=True, kw_only=True):
    """What is left out stays, limits too; a limit that is null goes."""

    state: PartitionState | UnsetType = UNSET
    tier: Tier | UnsetType = UNSET
    priority: Tier | UnsetType = UNSET
    accounts: Sequence[Name] | UnsetType = UNSET
    qos: Sequence[Name] | UnsetType = UNSET
    default_minutes: ShareCount | UnsetType = UNSET
    limits: LimitChanges | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    preempt_mode: PreemptMode | UnsetType = UNSET
    grace_s: Seconds | UnsetType = UNSET
    exempt_s: Seconds | UnsetType = UNSET


class MemberRequest(Request, frozen=True, kw_only=True):
    """Users who are to be in the account; of those who are, what is left out stays. `default`: it becomes the
    default account of each."""

    users: Annotated[Sequence[User], Meta(min_length=1, max_length=10_000)]
    shares: ShareCount | UnsetType = UNSET
    default: bool = False
    limits: LimitChanges | UnsetType = UNSET


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
