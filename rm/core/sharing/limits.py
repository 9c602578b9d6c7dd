"""Limits of accounts, users, QOS and partitions: what they are called, and which may be set where.

A limit is a measure, before which may stand whose it is: `gpus` is for an account (or QOS, or partition) as a
whole, `user.gpus` for each user in it, `account.gpus` for each account in it, and `job.gpus` for each job.
Source: sacctmgr(1): Grp…, Max…PerUser, Max…PerAccount and Max…PerJob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rm.errors import UsageError

MOST = 2**53  # what JSON's numbers hold
# what is in use at the same time; with minutes of GPUs until the time limits of what runs
AT_ONCE = ("running", "cpus", "gpus", "hosts", "mem_gib", "gpu_minutes_running")
SUBMITTED = "submitted"  # jobs that wait or run; each element of an array is one
USED = "billing_minutes"  # used, decayed, with what runs until its time limit; weighted as fair share is
OF_A_JOB = ("minutes", "cpus", "gpus", "hosts", "mem_gib", "elements", "gpu_minutes_running")

_WHOLE = (*AT_ONCE, SUBMITTED)
JOB, USER, ACCOUNT = "job.", "user.", "account."
OF_MEMBER = frozenset([*_WHOLE, USED, *(JOB + name for name in OF_A_JOB)])
OF_ACCOUNT = OF_MEMBER | {USER + name for name in _WHOLE}
OF_QOS = frozenset([*_WHOLE, *(JOB + name for name in OF_A_JOB)]) | {
    prefix + name for prefix in (USER, ACCOUNT) for name in _WHOLE
}


def check_limits(whose: str, limits: Mapping[str, int], known: Iterable[str]) -> None:
    """Raises UsageError for one that there is not, or that is no number."""
    for name, value in limits.items():
        if name not in known:
            raise UsageError(
                f"{whose} has no limit '{name:.80}'.", f"It may have {', '.join(sorted(known))}."
            )
        if type(value) is not int or not 0 <= value <= MOST:
            raise UsageError(f"The limit {name} of {whose} is {value!r:.40}.", "Write a number from 0 on.")
