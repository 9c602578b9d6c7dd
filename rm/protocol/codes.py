"""Why an agent refuses an operation."""

from __future__ import annotations

from enum import StrEnum

from rm.errors import RmError, Unreachable


class Code(StrEnum):
    """The `code` of a refusal. One that this rm does not know is read as UNKNOWN: a refusal all the same."""

    BAD_REQUEST = "bad-request"
    DEFECT = "defect"
    DIED = "died"  # a slow operation ended without an answer
    DISCARDED = "discarded"
    FOREIGN_CLUSTER = "foreign-cluster"  # the host belongs to another cluster than the daemon
    FOREIGN_QDISC = "foreign-qdisc"  # the interface has a queue that is not ours to replace
    IPERF3 = "iperf3"
    MISSING_PROGRAM = "missing-program"
    NOT_ENFORCED = "not-enforced"  # what the job asks for cannot be limited there, and rm.toml insists
    NOT_PERMITTED = "not-permitted"  # an agent without root starts tasks of its own user only
    NO_BPF = "no-bpf"  # the kernel takes no program that orders bursts
    NO_CLASSIFIER = "no-classifier"
    NO_COUNTERS = "no-counters"
    NO_DESCRIPTORS = "no-descriptors"  # the agent, or the whole host, has as many files open as it may
    NO_IPERF3 = "no-iperf3"
    NO_LOG = "no-log"
    NO_SPACE = "no-space"
    NO_SUCH_ATTEMPT = "no-such-attempt"
    NO_SUCH_INTERFACE = "no-such-interface"
    NO_SUCH_JOB = "no-such-job"
    NO_SUCH_OP = "no-such-op"
    NO_SUCH_SESSION = "no-such-session"
    NO_SUCH_TASK = "no-such-task"
    NO_SUCH_USER = "no-such-user"
    PROLOG = "prolog-failed"
    REFUSED_BY_KERNEL = "refused-by-kernel"
    REPLACED = "replaced"  # the executor's files are not those that the agent was started with
    ROOT_REFUSED = "root-refused"
    SESSION_REFUSED = "session-refused"
    SPOOL = "spool"
    STALE_EPOCH = "stale-epoch"
    STILL_RUNNING = "still-running"
    TOO_LATE = "too-late"  # it was under way for longer than it was meant to be
    TOO_MANY_JOBS = "too-many-jobs"  # no more bursts can be ordered on the interface
    UID_MISMATCH = "uid-mismatch"  # the user has other ids there than on the daemon's machine
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.UNKNOWN


class AgentError(RmError):
    """The agent refused an operation; the message is its sentence."""

    def __init__(self, code: Code, what: str) -> None:
        super().__init__(what)
        self.code = code


class NotSent(AgentError):
    """It is refused on this side: no agent would take it."""


class NotConnected(Unreachable):
    """Nothing was sent: the operation has certainly not been carried out."""


def code_of(error: BaseException | None) -> Code | None:
    """The code that the agent refused with; None for every other error."""
    return error.code if isinstance(error, AgentError) else None
