"""For which account jobs run, and what becomes of the accounts."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobSpec
from rm.core.model.replacing import replace
from rm.core.sharing.accounts import NO_ACCOUNTS, account_for
from rm.core.sharing.partitions import taking
from rm.core.sharing.qos import qos_for
from rm.errors import IllegalTransition, UsageError

MINUTE_US = 60_000_000


def as_accepted(ctx: Context, spec: JobSpec) -> tuple[str, str, JobSpec, str]:
    """(the account that a new job runs for, its QOS, what it asks for where its partitions take it, whose its
    time limit is if it asked for none).

    Raises:
        IllegalTransition: as the functions below.
    """
    if ctx.state.accounts is NO_ACCOUNTS:  # the names are mere words of the job, and nothing is limited
        return spec.account, spec.qos, spec, ""
    account = account_of(ctx, spec)
    qos = qos_of(ctx, spec, account)
    spec = taken_by_partitions(ctx, spec, account, qos)
    found = _time_limit(ctx.state, spec, account, qos)
    if found is None:
        return account, qos, spec, ""
    return account, qos, replace(spec, time_limit_us=found[0] * MINUTE_US), found[1]


def account_of(ctx: Context, spec: JobSpec) -> str:
    """Raises IllegalTransition: the user is not in the account that the job names."""
    try:
        return account_for(ctx.state.accounts, spec.user, spec.account)
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint, error.refusal) from None


def qos_of(ctx: Context, spec: JobSpec, account: str) -> str:
    """Raises IllegalTransition: there is no such QOS, or not for the account."""
    try:
        return qos_for(ctx.state.accounts, account, spec.qos)
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint, error.refusal) from None


def with_time_limit(state: ClusterState, spec: JobSpec, account: str, qos: str) -> JobSpec:
    """A job without a time limit has the default one of its partitions, the shortest of several; else, or
    where that is longer, the longest that the limits of each job let it have."""
    found = _time_limit(state, spec, account, qos)
    return spec if found is None else replace(spec, time_limit_us=found[0] * MINUTE_US)


def _time_limit(state: ClusterState, spec: JobSpec, account: str, qos: str) -> tuple[int, str] | None:
    """(minutes, whose they are) for a job that asks for none; None: it may run without end, or asks."""
    accounts = state.accounts
    if spec.time_limit_us is not None or not (state.tally.rules or accounts.partitions):
        return None
    where = spec.partitions if accounts.partitions else ()
    ruled = [accounts.partition_by_name[name] for name in where if name in accounts.partition_by_name]
    known = [
        (one.default_minutes, f"the default of partition {one.name}") for one in ruled if one.default_minutes
    ]
    if (most := state.tally.of(account, spec.user, qos, where).job.get("minutes")) is not None:
        known.append((max(1, most[0]), f"the longest of {most[1]}"))
    return min(known, key=lambda one: one[0], default=None)


def taken_by_partitions(ctx: Context, spec: JobSpec, account: str, qos: str) -> JobSpec:
    """What a new job asks for, with those of its partitions that take new jobs.

    Raises:
        IllegalTransition: no partition that the job names takes it.
    """
    try:
        return taking(ctx.state.accounts, spec, account, qos)
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint, error.refusal) from None


def accounts_set(ctx: Context, e: ev.AccountsSet) -> None:
    ctx.state.accounts = ctx.changes.accounts = e.accounts
    ctx.state.recount_limits()
    ctx.state.capacity_version += 1  # other limits keep other jobs waiting
