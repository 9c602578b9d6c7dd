"""What limits refuse when jobs are submitted: too many of them, and those that could never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rm.arrays import parse
from rm.core.jobs.handlers.accounting import with_time_limit
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobSpec
from rm.core.model.replacing import replace
from rm.core.scheduling.limits.limiting import Limiter
from rm.core.scheduling.limits.words import NOUNS, code_of
from rm.core.sharing.accounts import account_for
from rm.core.sharing.limits import SUBMITTED
from rm.core.sharing.partitions import taking
from rm.core.sharing.qos import qos_for
from rm.core.sharing.shares import Shares
from rm.core.sharing.tally import Key
from rm.errors import Conflict, ImpossibleRequest


def admitted(
    state: ClusterState,
    specs: Sequence[JobSpec],
    asked: Counter[Key],
    refuse_never: bool,
) -> Counter[Key]:
    """By key of a limit of submitted jobs how many these are. `asked` are those of submissions that are under
    way; `refuse_never`: a job that no limit would ever let run is refused, too, instead of waiting.

    Raises:
        UsageError: an account, a QOS or a partition that a job names is not for it.
        Conflict: there would be too many.
        ImpossibleRequest: a job could never run.
    """
    new: Counter[Key] = Counter()
    seen: set[tuple[object, ...]] = set()
    limiter: Limiter | None = None
    known: dict[tuple[str, str, str, str], tuple[str, str, str]] = {}
    for spec in specs:
        named = spec.user, spec.account, spec.qos, spec.partition
        if named not in known:
            account = account_for(state.accounts, spec.user, spec.account)
            qos = qos_for(state.accounts, account, spec.qos)
            known[named] = account, qos, taking(state.accounts, spec, account, qos).partition
        account, qos, partition = known[named]
        if partition != spec.partition:
            spec = replace(spec, partition=partition)
        ruled = state.tally.of(account, spec.user, qos, spec.partitions if state.tally.by_partition else ())
        if not ruled.keys and not ruled.job:
            continue
        elements = parse(spec.array).mask.bit_count() if spec.array else 1
        for key in ruled.keys:
            if SUBMITTED in state.tally.limits[key]:
                new[key] += elements
        if spec.array and elements > (most := ruled.job.get("elements", (elements, None)))[0]:
            raise ImpossibleRequest(
                f"Job array '{spec.name}' has {elements} elements, and one of {most[1]} at most {most[0]}.",
                "Submit it in parts.",
            )
        if not refuse_never:
            continue
        like = id(ruled), spec.demand, spec.time_limit_us
        if like not in seen:
            seen.add(like)
            if limiter is None:
                limiter = _limiter(state)
            whole = with_time_limit(state, spec, account, qos)
            _refuse_never(limiter, Job(0, whole, 0, account=account, qos=qos))
    for key, more in new.items():
        limit, there = state.tally.limits[key][SUBMITTED], state.tally.submitted[key] + asked[key]
        if there + more > limit:
            raise Conflict(
                f"{key} has {there} of at most {limit} {NOUNS[SUBMITTED]}, and would have {there + more} "
                f"({code_of(key, SUBMITTED)}).",
                "Submit them when some have ended.",
            )
    return new


def refuse_changed(state: ClusterState, job: Job, update: JobUpdate, changed: Sequence[JobSpec]) -> None:
    """Refuse what a waiting job is to ask for, or the elements of an array, where no limit would ever let it
    run, as at its submission.

    Raises:
        UsageError: an account or a QOS that it names is not for it.
        ImpossibleRequest: it could never run.
    """
    limiter = _limiter(state)
    for spec in changed:
        account, qos = job.account, job.qos
        if update.account is not None:
            account = account_for(state.accounts, spec.user, spec.account)
        if update.account is not None or update.qos is not None:
            qos = qos_for(state.accounts, account, spec.qos)
        _refuse_never(limiter, Job(0, spec, 0, account=account, qos=qos))


def _limiter(state: ClusterState) -> Limiter:
    return Limiter(Shares(state.accounts, state.ledger, 0, state.tally), state.jobs, state.hosts)


def _refuse_never(limiter: Limiter, job: Job) -> None:
    if (limited := limiter.never(job)) is not None:
        raise ImpossibleRequest(
            f"Job '{job.spec.name}' could never run: {limited.reason.message} ({limited.reason.code}).",
            "Ask for less, or for another account, QOS or partition.",
        )
