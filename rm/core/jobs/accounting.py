"""For which account jobs run, and what becomes of the accounts."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.model.job import JobSpec
from rm.core.sharing.accounts import account_for
from rm.errors import IllegalTransition, UsageError


def account_of(ctx: Context, spec: JobSpec) -> str:
    """Raises IllegalTransition: the user is not in the account that the job names."""
    try:
        return account_for(ctx.state.accounts, spec.user, spec.account)
    except UsageError as error:
        raise IllegalTransition(str(error)) from None


def accounts_set(ctx: Context, e: ev.AccountsSet) -> None:
    ctx.state.accounts = ctx.changes.accounts = e.accounts
