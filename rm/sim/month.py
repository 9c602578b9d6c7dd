"""A scenario of users who share a cluster: their accounts and shares, and how much of it they want.

The form is shown in docs/simulator.md and in examples/sim/month.toml. Each user submits jobs at random (a
Poisson process) so often that they would use `appetite` times the user's part of the cluster; run times are
exponential, and time limits somewhat longer.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.core.sharing.accounts import Account, Accounts, Member, checked
from rm.core.sharing.fair_tree import fair_tree
from rm.core.sharing.ledger import Billing
from rm.errors import UsageError
from rm.sim.batch import Batch, Played, Work, hosts_of
from rm.typed import convert
from rm.units import HOUR_US

LEAST_US = 60_000_000
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Word = Annotated[str, msgspec.Meta(min_length=1)]


class ClusterForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hosts: Count
    gpus: Count = 8
    cpus: Count = 64


class UserForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`gpus` of a job are one of these, each as likely; `hours` its run time on average; `limit` times as
    long is its time limit. Who has `waiting` jobs that wait submits no more until one has started."""

    name: Word
    account: Word
    shares: Count = 1
    appetite: Amount
    gpus: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)] = (1,)
    hours: Amount = 4.0
    limit: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    waiting: Count = 30


class Month(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`policies`: queue policies to be played side by side; `account`: shares by name."""

    name: str
    days: Amount = 30.0
    half_life_days: Amount = 7.0
    policies: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1)] = ("multifactor", "backfill", "fifo")
    options: dict[str, dict[str, Any]] = {}
    cluster: ClusterForm
    account: Annotated[dict[str, Count], msgspec.Meta(min_length=1)]
    user: Annotated[tuple[UserForm, ...], msgspec.Meta(min_length=1)]

    @property
    def span_us(self) -> int:
        return round(self.days * 24 * HOUR_US)


def read(path: Path) -> Month:
    """Raises UsageError: what is wrong, and where in the file."""
    try:
        month = convert(tomllib.loads(path.read_text(encoding="utf-8")), Month)
    except OSError as problem:
        raise UsageError(f"The scenario {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} is not TOML: {problem}.") from None
    except msgspec.ValidationError as problem:
        what, _, where = str(problem).partition(" - at ")
        place = where.strip("`").removeprefix("$.") or "the top"
        raise UsageError(f"{path}: at {place}: {what}.", "docs/simulator.md shows the form.") from None
    whole = month.cluster.hosts * month.cluster.gpus
    for user in month.user:
        if user.account not in month.account:
            raise UsageError(f"{path}: {user.name} is in '{user.account}', which is no account.")
        if max(user.gpus) > whole:
            raise UsageError(f"{path}: {user.name} wants {max(user.gpus)} GPUs, and there are {whole}.")
    accounts_of(month)
    return month


def accounts_of(month: Month) -> Accounts:
    return checked(
        [Account(name, shares=shares) for name, shares in month.account.items()],
        [Member(one.account, one.name, one.shares) for one in month.user],
    )


def parts_of(month: Month) -> Mapping[str, float]:
    """Of the cluster each user's part, by the shares."""
    found = fair_tree(accounts_of(month), {})
    return {
        one.name: found[one.account, ""].shares * found[one.account, one.name].shares for one in month.user
    }


def works_of(month: Month, seed: int) -> list[Work]:
    """What all users submit; each draws from a generator of the user's own."""
    parts, works = parts_of(month), list[Work]()
    for user in month.user:
        chance = random.Random(f"{seed}/{user.name}")
        whole = month.cluster.hosts * month.cluster.gpus
        mean_gpu_hours = user.hours * sum(user.gpus) / len(user.gpus)
        gap_us = mean_gpu_hours / (user.appetite * parts[user.name] * whole) * HOUR_US
        at_us = chance.expovariate(1 / gap_us)
        while at_us < month.span_us:
            run_us = max(LEAST_US, round(chance.expovariate(1 / (user.hours * HOUR_US))))
            spec = JobSpec(
                f"{user.name}{len(works)}",
                user.name,
                "#!/bin/sh\ntrue\n",
                ntasks=chance.choice(user.gpus),
                gpus_per_task=1,
                time_limit_us=round(run_us * user.limit),
                account=user.account,
            )
            works.append(Work(round(at_us), run_us, spec, user.waiting))
            at_us += chance.expovariate(1 / gap_us)
    return works


def play(month: Month, queue: str, seed: int, progress: Any = None) -> Played:
    """Under one queue policy, with its options of the file."""
    policies = Policies(
        load("queue", queue, month.options.get(queue)), load("placement", "zone"), load("comm", "none")
    )
    cluster = month.cluster
    billing = Billing(half_life_us=round(month.half_life_days * 24 * HOUR_US))
    batch = Batch(hosts_of(cluster.hosts, cluster.gpus, cluster.cpus), policies, accounts_of(month), billing)
    return batch.play(works_of(month, seed), month.span_us, progress)
