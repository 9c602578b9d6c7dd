"""What a pass found out about why jobs wait, for the account of what they waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rm.core.jobs.state import ClusterState
from rm.core.model.reasons import Reason
from rm.core.scheduling.blocked import Blocked

FEW = 100  # jobs of which a pass asks one by one, instead of all that wait


def noted(
    state: ClusterState, blocked: Blocked, chosen: Sequence[int], single: Mapping[int, Reason], now_us: int
) -> None:
    """The `chosen` jobs were tried. `single`: the reasons of jobs by themselves, which come before those of
    demands."""
    waits, jobs, pending = state.waits, state.jobs, state.pending
    for number, reason in single.items():
        if number in pending:
            waits.note((jobs[number],), reason.code, now_us)
    if len(chosen) <= FEW:
        for number in chosen:
            if number not in single and number in pending:
                found = blocked.reason_of(jobs[number])
                if found is not None:
                    waits.note((jobs[number],), found.code, now_us)
        return
    for key, group in blocked.waiting.items():
        code = blocked.reasons[key].code
        differ, reasons = waits.differ(group, code), state.reasons
        waits.note([jobs[n] for n in differ if n in pending and n not in reasons], code, now_us)
