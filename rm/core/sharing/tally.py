"""What is in use and submitted under each limit, kept in step with the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rm.core.model.host import Host
from rm.core.model.job import Job
from rm.core.sharing.accounts import NO_ACCOUNTS, ROOT, Accounts, Partition, Qos
from rm.core.sharing.limits import ACCOUNT, JOB, USED, USER
from rm.core.sharing.resources import NOTHING, Resources, resources_of

BY_TIME = frozenset({"gpu_minutes_running", USED})  # what changes while nothing happens
BY_LENGTH = frozenset({"minutes", "gpu_minutes_running"})  # of a job


class Key(NamedTuple):
    """Whose limits: `kind` is account, member, qos or partition; `each` names the user or account that they
    are for, by itself, and is empty for all together."""

    kind: str
    name: str
    each: str = ""

    @property
    def by_account(self) -> bool:
        return self.each.startswith("account ")

    def __str__(self) -> str:
        of = self.name if self.name != ROOT else "the cluster"
        if self.kind == "member":
            return f"{self.each} in account {of}"
        what = of if self.name == ROOT else f"{'QOS' if self.kind == 'qos' else self.kind} {of}"
        return f"{self.each} in {what}" if self.each else what


@dataclass(frozen=True, slots=True)
class Ruled:
    """Which limits a job is under: those of the keys, and `job`, the lowest of those for each job, with the
    key that has it. `by_time`: one of them may be over without an event. `by_length`: one of them counts how
    long a job may run."""

    keys: tuple[Key, ...] = ()
    job: Mapping[str, tuple[int, Key]] = field(default_factory=dict)
    by_time: bool = False
    by_length: bool = False


FREE = Ruled()
Standing = tuple[str, str, str, tuple[str, ...]]  # account, user, QOS, partitions


@dataclass(slots=True)
class Tally:
    """`holds` are the jobs that have resources under a limit, of a slice its first element; `freed` the keys
    under which less is in use than at the last pass."""

    accounts: Accounts = NO_ACCOUNTS
    limits: dict[Key, dict[str, int]] = field(default_factory=dict)  # of the keys that were asked for
    in_use: dict[Key, Resources] = field(default_factory=dict)
    submitted: Counter[Key] = field(default_factory=Counter)
    holds: dict[int, tuple[Ruled, Resources]] = field(default_factory=dict)
    freed: dict[Key, None] = field(default_factory=dict)
    rules: bool = field(init=False)  # is anything limited at all?
    by_partition: bool = field(init=False)  # is anything limited by partitions?
    _ruled: dict[Standing, Ruled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accounts = self.accounts
        all_limits = [accounts.limits]
        for some in (accounts.accounts, accounts.members, accounts.qos):
            all_limits += [one.limits for one in some]
        self.by_partition = any(one.limits for one in accounts.partitions)
        self.rules = self.by_partition or any(all_limits)

    def copy(self) -> Tally:
        """One that goes its own way."""
        made = Tally(self.accounts)
        made.in_use, made.submitted, made.holds = dict(self.in_use), Counter(self.submitted), dict(self.holds)
        made.limits, made._ruled = dict(self.limits), dict(self._ruled)
        return made

    def of(self, account: str, user: str, qos: str, partitions: tuple[str, ...] = ()) -> Ruled:
        """What rules a user's jobs for an account in a QOS, in these partitions."""
        if not self.rules:
            return FREE
        standing = account, user, qos, partitions if self.by_partition else ()
        found = self._ruled.get(standing)
        if found is None:
            found = self._ruled[standing] = self._find(*standing)
        return found

    def ruled(self, job: Job) -> Ruled:
        """What rules a job: where it is placed the limits of the partition that it is in, else of all that it
        may run in."""
        if not self.by_partition:
            return self.of(job.account, job.spec.user, job.qos)
        where = (job.partition,) if job.partition and job.tasks else job.spec.partitions
        return self.of(job.account, job.spec.user, job.qos, where)

    def hold(self, job: Job, hosts: Mapping[str, Host]) -> None:
        """The job has its hosts from now on."""
        ruled = self.ruled(job)
        if not ruled.keys:
            return
        has = resources_of(job.spec, job.tasks, hosts)
        self.holds[job.slice_of or job.id] = ruled, has
        for key in ruled.keys:
            self.in_use[key] = self.in_use.get(key, NOTHING).plus(has)

    def release(self, job: Job) -> None:
        """It has given them back."""
        ruled, has = self.holds.pop(job.slice_of or job.id, (FREE, NOTHING))
        for key in ruled.keys:
            self.in_use[key] = self.in_use[key].minus(has)
            self.freed[key] = None

    def count(self, old: Job | None, new: Job) -> None:
        """A job has changed: how many are submitted."""
        if not self.rules:
            return
        was, now = 0 if old is None else unfinished(old), unfinished(new)
        before = FREE if old is None else self.ruled(old)
        after = self.ruled(new)
        if was == now and before is after:
            return
        for key in before.keys:
            self.submitted[key] -= was
        for key in after.keys:
            self.submitted[key] += now

    def _find(self, account: str, user: str, qos: str, partitions: tuple[str, ...]) -> Ruled:
        accounts, keys, of_job = self.accounts, list[Key](), dict[str, tuple[int, Key]]()

        def add(key: Key, limits: Mapping[str, int], prefix: str = "") -> None:
            own = {
                name.removeprefix(prefix): value
                for name, value in limits.items()
                if (name.startswith(prefix) if prefix else "." not in name)
            }
            if own:
                self.limits[key] = own
                keys.append(key)

        def add_job(key: Key, limits: Mapping[str, int]) -> None:
            for name, value in limits.items():
                measure = name.removeprefix(JOB)
                if measure != name and (measure not in of_job or value < of_job[measure][0]):
                    of_job[measure] = value, key

        for name in (ROOT, *accounts.path(account)):
            limits = accounts.limits if name == ROOT else accounts.by_name[name].limits
            add(Key("account", name), limits)
            add(Key("account", name, user), limits, USER)
            add_job(Key("account", name), limits)
        for member in accounts.of_user(user):
            if member.account == account:
                add(Key("member", account, user), member.limits)
                add_job(Key("member", account, user), member.limits)
        classes: list[tuple[str, Qos | Partition | None]] = [("qos", accounts.qos_by_name.get(qos))]
        classes += (("partition", accounts.partition_by_name.get(name)) for name in partitions)
        for kind, found in classes:
            if found is None:
                continue
            add(Key(kind, found.name), found.limits)
            add(Key(kind, found.name, user), found.limits, USER)
            if account:
                add(Key(kind, found.name, f"account {account}"), found.limits, ACCOUNT)
            add_job(Key(kind, found.name), found.limits)
        if not keys and not of_job:
            return FREE
        by_time = any(not BY_TIME.isdisjoint(self.limits[key]) for key in keys)
        return Ruled(tuple(keys), of_job, by_time, by_time or not BY_LENGTH.isdisjoint(of_job))


def unfinished(job: Job) -> int:
    """As how many submitted jobs it counts: an array as those of its elements that are no jobs yet."""
    if job.array is not None:
        return job.array.has("waiting").bit_count()
    return 0 if job.state.final else 1


def tally_of(
    accounts: Accounts, jobs: Iterable[Job], holding: Iterable[Job], hosts: Mapping[str, Host]
) -> Tally:
    """From the beginning: all jobs, and of those that are placed the ones whose resources count."""
    tally = Tally(accounts)
    for job in jobs:
        tally.count(None, job)
    for job in holding:
        tally.hold(job, hosts)
    return tally
