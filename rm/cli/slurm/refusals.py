"""What Slurm's commands say and end with where a request is refused: Slurm's words, which programs look for,
before rm's sentence.

Source: slurm_errno.c of Slurm 22.05, and what its commands did with a hundred wrong calls.
"""

from __future__ import annotations

from rm.errors import BadOptions, LimitReached, Refusal, RmError, Unreachable, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMIT = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
WORDS = {
    Refusal.UNKNOWN_JOB: "Invalid job id specified",
    Refusal.ENDED: "Job/step already completing or completed",
    Refusal.UNKNOWN_HOST: "Invalid node name specified",
    Refusal.UNKNOWN_PARTITION: "Invalid partition name specified",
    Refusal.NOT_IN_PARTITION: "User's group not permitted to use this partition",
    Refusal.UNKNOWN_FEATURE: "Invalid feature specification",
    Refusal.UNKNOWN_GPU_TYPE: "Requested node configuration is not available",
    Refusal.NEVER_FITS: "Requested node configuration is not available",
    Refusal.UNKNOWN_RESERVATION: "Requested reservation is invalid",
    Refusal.NOT_IN_RESERVATION: "Access denied to requested reservation",
    Refusal.NOT_IN_ACCOUNT: "Invalid account or account/partition combination specified",
    Refusal.NOT_IN_QOS: "Invalid qos specification",
    Refusal.LIMIT_REACHED: _LIMIT,
    Refusal.BAD_DEPENDENCY: "Job dependency problem",
    Refusal.BAD_ARRAY: "Invalid job array specification",
    Refusal.BAD_LICENSES: "Invalid license specification",
    Refusal.NO_HOSTS: "Node count specification invalid",
    Refusal.DEADLINE_PASSED: "Requested time limit is invalid (missing or exceeds some limit)",
    Refusal.BAD_GPUS: "Invalid generic resource (gres) specification",
}
UNREACHABLE = "Unable to contact slurm controller (connect failure)"
BAD_OPTION = 255  # the exit code of sbatch, srun and salloc for most wrong options; for others it is 1
FATAL = (Refusal.BAD_NUMBER, Refusal.BAD_LINE, Refusal.CONTRADICTION)


def no_parts(words: Sequence[str]) -> None:
    """A `:` joins the parts of a heterogeneous job, whose options would be taken for words of a command.

    Raises:
        UsageError: there is one.
    """
    if ":" in words:
        raise UsageError(
            "A ':' joins the parts of a heterogeneous job, which rm has not.", "Submit a job for each part."
        )


def words_of(error: RmError) -> str:
    """Slurm's for it; "" where it has none."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    if isinstance(error, LimitReached):
        return _LIMIT
    return WORDS.get(error.refusal, "") if error.refusal is not None else ""


class refused:
    """A refusal of the block begins with what has `failed`, and with Slurm's words for the reason. What is
    wrong with options themselves Slurm says before it asks anybody, without them. `submits`: the block does
    nothing else, so that all its errors are refusals."""

    def __init__(self, failed: str, *, submits: bool = True) -> None:
        self._failed, self._submits = failed, submits

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RmError):
            return
        words = words_of(error)
        if (error.refusal and words) or (self._submits and not isinstance(error, BadOptions)):
            error.what = f"{self._failed}: {f'{words}. ' if words else ''}{error.what}"


def is_bad_option(error: RmError) -> bool:
    """Does Slurm end with BAD_OPTION for it?"""
    elsewhere = error.refusal in FATAL or words_of(error)
    return isinstance(error, BadOptions) and not elsewhere
