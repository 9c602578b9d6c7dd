"""The tree of accounts: each has shares among its siblings, and members who run jobs for it.

A user may be a member of several accounts; one of them is the user's default. The users of an account and
the accounts below it are siblings of each other, as in Slurm. Source of the terms: Slurm's "Fair Tree
Fairshare Algorithm" and sacctmgr's manual.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rm.core.model.replacing import replace
from rm.core.sharing.limits import OF_ACCOUNT, OF_MEMBER, check_limits
from rm.errors import Conflict, NotFound, Refusal, UsageError

ROOT = "root"  # above all; nobody's jobs run for it
MAX_SHARES = 2**31 - 1
UP, DOWN, DRAIN, INACTIVE = PARTITION_STATES = ("up", "down", "drain", "inactive")
USUAL_TIER = 1
REQUEUE, CANCEL, SUSPEND, OFF = PREEMPT_MODES = ("requeue", "cancel", "suspend", "off")
MAX_ACCOUNTS, MAX_MEMBERS = 10_000, 100_000
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,63}\Z")
# whatever a directory may call somebody, such as `DOMAIN\ann` and `ann@site`, but what separates names in
# lists, paths and /etc/passwd
_USER = re.compile(r"(?![-+])[^\s,:/\"']{1,255}\Z")


@dataclass(frozen=True, slots=True)
class Account:
    """`shares` count among those with the same `parent`; `qos` is for jobs that name none, "" the
    parent's; `limits` (`rm.core.sharing.limits`) count what runs for the accounts below it, too."""

    name: str
    parent: str = ROOT
    shares: int = 1
    description: str = ""
    qos: str = ""
    limits: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """A user in an account; `default`: what the user submits without a name of an account is for this one."""

    account: str
    user: str
    shares: int = 1
    default: bool = False
    limits: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service: a class of jobs. `priority` counts against the highest of all; what its jobs use
    counts `usage_factor` times. `accounts` may use it, with those below them; none: all.

    Its jobs may preempt those of the QOS that `preempts` names. How its own are preempted: by `preempt_mode`,
    `grace_s` after the signal, and not before they have run for `exempt_s` seconds."""

    name: str
    priority: int = 0
    usage_factor: float = 1.0
    accounts: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    description: str = ""
    preempts: tuple[str, ...] = ()
    preempt_mode: str = REQUEUE
    grace_s: float = 0.0
    exempt_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """What is ruled of a partition; which hosts are in it they say themselves. Jobs of a higher `tier` come
    first; `priority` counts against the highest of all. `accounts` may use it, with those below them, in the
    QOS `qos`; none: all. A job without a time limit has `default_minutes`, where that is not 0.

    How its jobs are preempted by those of a partition of a higher tier: as those of a QOS are.

    Source: slurm.conf(5), PriorityTier, PriorityJobFactor, State, AllowAccounts, AllowQos, DefaultTime,
    PreemptMode, GraceTime."""

    name: str
    state: str = UP
    tier: int = USUAL_TIER
    priority: int = 0
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    default_minutes: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    description: str = ""
    preempt_mode: str = OFF
    grace_s: float = 0.0
    exempt_s: float = 0.0


@dataclass(frozen=True)
class Accounts:
    """All of them, without the root, but `limits` are the root's: of all jobs. Made by `checked` or by the
    functions below, it is a tree. With the QOS, which `rm.core.sharing.qos` changes, and the rules of
    partitions, which `rm.core.sharing.partitions` does."""

    accounts: tuple[Account, ...] = ()
    members: tuple[Member, ...] = ()
    qos: tuple[Qos, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Account]:
        return {one.name: one for one in self.accounts}

    @cached_property
    def qos_by_name(self) -> dict[str, Qos]:
        return {one.name: one for one in self.qos}

    @cached_property
    def partition_by_name(self) -> dict[str, Partition]:
        return {one.name: one for one in self.partitions}

    @cached_property
    def tiers(self) -> dict[str, int]:
        """Of the partitions, where they differ; else empty."""
        found = {one.name: one.tier for one in self.partitions}
        return found if any(tier != USUAL_TIER for tier in found.values()) else {}

    @cached_property
    def preemptors(self) -> frozenset[str]:
        """The QOS whose jobs may preempt others."""
        return frozenset(one.name for one in self.qos if one.preempts)

    @cached_property
    def preempted_from(self) -> int | None:
        """The least tier of a partition whose jobs those of higher tiers may preempt; None: there is none."""
        tiers = [one.tier for one in self.partitions if one.preempt_mode != OFF]
        return min(tiers, default=None)

    def tier_of(self, partitions: str) -> int:
        """Of these partitions, with commas, the highest; of none the usual one."""
        ruled = self.partition_by_name
        return max(ruled[one].tier if one in ruled else USUAL_TIER for one in partitions.split(","))

    @cached_property
    def _of_user(self) -> dict[str, tuple[Member, ...]]:
        found: dict[str, list[Member]] = {}
        for one in self.members:
            found.setdefault(one.user, []).append(one)
        return {user: tuple(sorted(some, key=lambda m: not m.default)) for user, some in found.items()}

    def of_user(self, user: str) -> tuple[Member, ...]:
        """A user's memberships, the default first."""
        return self._of_user.get(user, ())

    def path(self, name: str) -> tuple[str, ...]:
        """From below the root to the account."""
        if name not in self.by_name:
            return ()
        found: list[str] = []
        while name in self.by_name:
            found.append(name)
            name = self.by_name[name].parent
        return tuple(reversed(found))

    def below(self, name: str) -> list[Account]:
        return [one for one in self.accounts if one.parent == name]

    def members_of(self, name: str) -> list[Member]:
        return [one for one in self.members if one.account == name]


NO_ACCOUNTS = Accounts()


def account_for(accounts: Accounts, user: str, named: str) -> str:
    """For which account a user's job runs: the `named` one, or else the default; "" where there is none.
    Where there are no accounts at all, a name is a mere word of the job, as in a Slurm without them.

    Raises:
        UsageError: the user is not in the named account.
    """
    mine = accounts.of_user(user)
    if not named:
        return mine[0].account if mine else ""
    if not accounts.accounts or any(one.account == named for one in mine):
        return named
    where = _some(one.account for one in mine) or "no account"
    there = (
        f"{user} is not in account {named}"
        if named in accounts.by_name
        else f"There is no account '{named:.80}'"
    )
    raise UsageError(f"{there}.", f"{user} is in {where}.", Refusal.NOT_IN_ACCOUNT)


def checked(
    accounts: Iterable[Account],
    members: Iterable[Member],
    qos: Iterable[Qos] = (),
    limits: Mapping[str, int] | None = None,
    partitions: Iterable[Partition] = (),
) -> Accounts:
    """A whole tree, as it is imported, whose QOS `rm.core.sharing.qos.check_all` is still to check, and whose
    partitions `rm.core.sharing.partitions.check_partitions`.

    Raises:
        UsageError: it is no tree, or a name, a number or a default is wrong.
    """
    made = Accounts(
        tuple(accounts), _with_defaults(tuple(members)), tuple(qos), dict(limits or {}), tuple(partitions)
    )
    check_limits("The root", made.limits, OF_ACCOUNT)
    if len(made.accounts) > MAX_ACCOUNTS or len(made.members) > MAX_MEMBERS:
        raise UsageError(f"There may be {MAX_ACCOUNTS} accounts and {MAX_MEMBERS} members.")
    if len(made.by_name) < len(made.accounts):
        raise UsageError(f"Account {_twice([one.name for one in made.accounts])} is listed twice.")
    pairs = [f"{one.user} of {one.account}" for one in made.members]
    if len(set(pairs)) < len(pairs):
        raise UsageError(f"Member {_twice(pairs)} is listed twice.")
    for one in made.accounts:
        _check_account(made, one)
    for member in made.members:
        _check_member(made, member)
    for user in {one.user for one in made.members}:
        if sum(one.default for one in made.of_user(user)) > 1:
            raise UsageError(f"{user} has more than one default account.")
    for one in made.accounts:
        _refuse_circle(made, one)
    return made


def put_account(old: Accounts, wanted: Account, new: bool) -> Accounts:
    """With an account added, or changed where it is not `new`.

    Raises:
        UsageError: it cannot be.
        Conflict: a new one is there already.
        NotFound: one to be changed is not.
    """
    if new and wanted.name in old.by_name:
        raise Conflict(f"There is an account {wanted.name} already.", "Change it: rmx account set.")
    if not new:
        known(old, wanted.name)
    others = tuple(wanted if one.name == wanted.name else one for one in old.accounts)
    made = replace_accounts(old, (*others, wanted) if new else others, old.members)
    _check_account(made, wanted)
    _refuse_circle(made, wanted)
    return made


def put_member(old: Accounts, wanted: Member) -> Accounts:
    """With a user in an account, or with other shares there; the first account of a user is the default.
    Who is there keeps the place among the members."""
    known(old, wanted.account)
    _check_member(old, wanted)
    others, there = list[Member](), False
    for one in old.members:
        if (one.account, one.user) == (wanted.account, wanted.user):
            others.append(wanted)
            there = True
        elif wanted.default and one.user == wanted.user:
            others.append(replace(one, default=False))
        else:
            others.append(one)
    made = others if there else [*others, wanted]
    return replace_accounts(old, old.accounts, _with_defaults(tuple(made)))


def without_account(old: Accounts, name: str) -> Accounts:
    """Raises:
    NotFound: there is no such account.
    Conflict: accounts are below it, users in it, or a QOS names it.
    """
    known(old, name)
    if below := old.below(name):
        raise Conflict(
            f"Accounts are below {name}: {_some(one.name for one in below)}.", "Remove or move them before."
        )
    if members := old.members_of(name):
        raise Conflict(
            f"Users are in {name}: {_some(one.user for one in members)}.",
            "Remove them before: rmx account remove NAME USER.",
        )
    if of := [one.name for one in old.qos if name in one.accounts]:
        raise Conflict(f"QOS {of[0]} is for {name}.", f"Change it before: rmx qos set {of[0]} --accounts …")
    if of := [one.name for one in old.partitions if name in one.accounts]:
        raise Conflict(
            f"Partition {of[0]} is for {name}.", f"Change it before: rmx partition set {of[0]} --accounts …"
        )
    left = tuple(one for one in old.accounts if one.name != name)
    return replace_accounts(old, left, old.members)


def without_member(old: Accounts, name: str, user: str) -> Accounts:
    """Raises NotFound. A user's oldest other account becomes the default where this one was."""
    known(old, name)
    left = tuple(one for one in old.members if (one.account, one.user) != (name, user))
    if len(left) == len(old.members):
        raise NotFound(f"{user} is not in {name}.", "`rmx account show` lists who is.")
    return replace_accounts(old, old.accounts, _with_defaults(left))


def known(accounts: Accounts, name: str) -> Account:
    """Raises NotFound."""
    found = accounts.by_name.get(name)
    if found is None:
        raise NotFound(f"There is no account '{name:.80}'.", "`rmx account show` lists them.")
    return found


def replace_accounts(old: Accounts, accounts: tuple[Account, ...], members: tuple[Member, ...]) -> Accounts:
    """The old one where nothing is new, so that its views stay."""
    if (accounts, members) == (old.accounts, old.members):
        return old
    return replace(old, accounts=accounts, members=members)


def limit_root(old: Accounts, limits: Mapping[str, int]) -> Accounts:
    """With these limits of all jobs together, and of each user's."""
    check_limits("The root", limits, OF_ACCOUNT)
    return replace(old, limits=dict(limits))


def refuse_lost(new: Accounts, used: Collection[tuple[str, str]]) -> None:
    """Raises Conflict where jobs that have not ended are for an account, by a user, that `new` lacks; `used`
    are their accounts and users."""
    there = {(one.account, one.user) for one in new.members}
    if lost := sorted(pair for pair in used if pair not in there):
        raise Conflict(
            f"Jobs that have not ended are for {_some(f'{account} (of {user})' for account, user in lost)}.",
            "Cancel them, or wait for their end: rmx queue --all.",
        )


def refuse_reserved(old: Accounts, new: Accounts, reserved: Mapping[str, Collection[str]]) -> None:
    """Raises Conflict where a reservation of hosts is for an account that `new` lacks; `reserved` are their
    accounts."""
    lost = old.by_name.keys() - new.by_name.keys()
    for name, for_accounts in reserved.items():
        if gone := sorted(lost & {*for_accounts}):
            raise Conflict(
                f"Reservation {name} is for {_some(gone)}.",
                f"Change it before: rmx reservation set {name} --accounts …, or delete it.",
            )


def _with_defaults(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Each user's first account is the default of a user who has none."""
    have = {one.user for one in members if one.default}
    made = []
    for one in members:
        made.append(one if one.user in have else replace(one, default=True))
        have.add(one.user)
    return tuple(made)


def check_name(name: str, what: str) -> None:
    """Raises UsageError."""
    if not _NAME.match(name) or name == ROOT:
        raise UsageError(
            f"'{name:.80}' is no name of {what}.",
            "Write up to 64 small letters, digits, _ . and -, beginning with a letter or a digit.",
        )


def _check_account(accounts: Accounts, one: Account) -> None:
    check_name(one.name, "an account")
    check_limits(f"Account {one.name}", one.limits, OF_ACCOUNT)
    if one.qos and one.qos not in accounts.qos_by_name:
        raise UsageError(f"The QOS of {one.name}, '{one.qos:.80}', is none.", "`rmx qos show` lists them.")
    if one.parent != ROOT and one.parent not in accounts.by_name:
        raise UsageError(f"The parent of {one.name}, '{one.parent:.80}', is no account.", "Add it before.")
    _check_shares(one.name, one.shares)


def _check_member(accounts: Accounts, one: Member) -> None:
    if one.account not in accounts.by_name:
        raise UsageError(f"{one.user:.80} is in '{one.account:.80}', which is no account.", "Add it before.")
    if not _USER.match(one.user) or not one.user.isprintable():
        raise UsageError(
            f"'{one.user:.80}' is no name of a user.",
            "Write up to 255 characters without blanks, commas, colons, slashes and quotation marks, and no "
            "- or + before them.",
        )
    _check_shares(f"{one.user} in {one.account}", one.shares)
    check_limits(f"{one.user} in {one.account}", one.limits, OF_MEMBER)


def _check_shares(whose: str, shares: int) -> None:
    if not 0 <= shares <= MAX_SHARES:
        raise UsageError(f"The shares of {whose} are {shares}.", f"Write a number from 0 to {MAX_SHARES}.")


def _refuse_circle(accounts: Accounts, one: Account) -> None:
    seen = [one.name]
    while (parent := accounts.by_name[seen[-1]].parent) != ROOT:
        if parent in seen:
            raise UsageError(
                f"Account {parent} would be below itself: {' < '.join([*seen, parent])}.",
                "Choose another parent.",
            )
        seen.append(parent)


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


def _some(names: Iterable[str], most: int = 8) -> str:
    words = list(names)
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")
