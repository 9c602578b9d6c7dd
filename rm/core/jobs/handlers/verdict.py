"""How a job ends whose first failing task ended in some way."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.model.job import JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.units import format_elapsed

S = JobState
# what shells mean by a code: the end of the task's log names the program
EXPLAINED = {
    126: "a shell says: a program may not be executed, see the end of the log",
    127: "a shell says: a program was not found, see the end of the log",
}
# The agent's words for ends that the daemon or the user asked for; anything else is a sentence.
FENCED = "fence"  # and for one that its host asked for: the attempt's lease was over
REQUEUE = "requeue"  # or one of its tasks
UNSTARTED = "unstarted"  # of an element that its host gives back, and has not begun; HOLD asks for that
WORDS = frozenset({"", "cancel", "timeout", "abort", "discard", FENCED, REQUEUE, UNSTARTED})


def verdict_of(e: ev.TaskExited, limit_us: int | None) -> tuple[JobState, Reason]:
    """How a job ends, with that time limit, whose first failing task ended like this."""
    at = f"task {e.rank} on {e.host}"
    if e.why == "timeout":
        of = f" of {format_elapsed(limit_us)}" if limit_us is not None else ""
        return S.TIMEOUT, Reason(ReasonCode.TIME_LIMIT, f"{at} reached the time limit{of}")
    if e.out_of_memory:
        return S.OUT_OF_MEMORY, Reason(ReasonCode.OUT_OF_MEMORY, f"{at} ran out of memory")
    if e.why == "cancel":
        return S.CANCELLED, Reason(ReasonCode.CANCELLED, f"{at} was cancelled")
    if e.why not in WORDS:
        how = "could not run" if e.started_us is None else "was ended"
        return S.FAILED, Reason(ReasonCode.LAUNCH_FAILED, f"{at} {how}: {e.why}")
    numbers = (("rank", e.rank), ("code", e.code), ("signal", e.signal))
    said = f" ({EXPLAINED[e.code]})" if e.code in EXPLAINED else ""
    how = f"was killed by signal {e.signal}" if e.signal else f"exited with code {e.code}{said}"
    return S.FAILED, Reason(ReasonCode.EXIT_CODE, f"{at} {how}", numbers)
