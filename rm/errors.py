"""The error tree: each error is a sentence that says what was wrong, where, and what to do.

Anything the user may cause raises an `RmError`; the CLI prints its message and exits with
`exit_code`, the HTTP API answers with `http_status`. Any other exception is a defect of rm.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum
else:

    class _Values(type):
        def __iter__(cls):
            return iter([value for name, value in vars(cls).items() if name.isupper()])

    class StrEnum(metaclass=_Values):
        """What is checked as an enumeration is its values at run time: `enum` takes a part of the time of the
        commands that scripts call in loops."""


class Refusal(StrEnum):
    """Which thing of a request is refused, for programs: sentences are for people, and may change. Whoever
    makes an error of one of these kinds says so, and the HTTP API tells it beside the sentence."""

    UNKNOWN_JOB = "unknown-job"
    ENDED = "ended"  # the job, already
    UNKNOWN_HOST = "unknown-host"
    UNKNOWN_PARTITION = "unknown-partition"
    UNKNOWN_ZONE = "unknown-zone"
    UNKNOWN_FEATURE = "unknown-feature"
    UNKNOWN_GPU_TYPE = "unknown-gpu-type"
    UNKNOWN_RESERVATION = "unknown-reservation"
    NOT_IN_RESERVATION = "not-in-reservation"  # it is not for the user
    NOT_IN_ACCOUNT = "not-in-account"  # the user, or there is no such account
    NOT_IN_QOS = "not-in-qos"  # the account, or there is no such QOS
    NOT_IN_PARTITION = "not-in-partition"  # it takes no jobs, or none of the account
    BAD_DEPENDENCY = "bad-dependency"  # not understood, or of a job or an element that is none
    BAD_ARRAY = "bad-array"
    BAD_LICENSES = "bad-licenses"
    BAD_GPUS = "bad-gpus"
    BAD_NUMBER = "bad-number"
    NO_HOSTS = "no-hosts"  # are asked for
    DEADLINE_PASSED = "deadline-passed"
    CONTRADICTION = "contradiction"  # of options
    BAD_LINE = "bad-line"  # of a script: its quotes do not match
    LIMIT_REACHED = "limit-reached"  # of an account, a QOS or a partition
    NEVER_FITS = "never-fits"  # no state of the cluster could take the job


class RmError(Exception):
    """Base of all errors a user may meet.

    Args:
        what: one sentence: what was wrong, and where.
        hint: one sentence: what the user can do about it.
        refusal: which thing of the request it was, where programs may want to know.
    """

    exit_code = 1
    http_status = 500

    def __init__(self, what: str, hint: str = "", refusal: Refusal | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.refusal = refusal

    def __str__(self) -> str:
        return f"{self.what} {self.hint}".strip()


class UsageError(RmError):
    """The request itself is malformed: unknown option, bad format, unreadable file."""

    exit_code = 2
    http_status = 400


class BadOptions(UsageError):
    """Options of a submission are unknown, cannot be read, or contradict each other."""


class ImpossibleRequest(RmError):
    """The request is well-formed, but no state of this cluster could ever satisfy it."""

    exit_code = 3
    http_status = 422


class NotFound(RmError):
    """The named job, host, zone or link does not exist."""

    exit_code = 4
    http_status = 404


class Forbidden(RmError):
    """The caller may not do this."""

    exit_code = 5
    http_status = 403


class Unauthenticated(Forbidden):
    """The door cannot identify the caller: there is no token, or one that is not valid."""

    http_status = 401


class Conflict(RmError):
    """The thing exists but is in a state that does not allow the request."""

    exit_code = 6
    http_status = 409


class LimitReached(RmError):
    """The caller has asked for more than one user may at a time. Nothing was done."""

    exit_code = 10
    http_status = 429

    def __init__(self, what: str, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(what, hint)
        self.retry_after_s = retry_after_s


class Unreachable(RmError):
    """The daemon, a host or a peer did not answer."""

    exit_code = 7
    http_status = 502


class Standby(Unreachable):
    """The daemon that was asked waits for its turn: another leads."""

    http_status = 503


class TimedOut(RmError):
    """What the caller waits for has not happened within the time that the caller gave."""

    exit_code = 124  # as timeout(1)


class ConfigError(RmError):
    """rm.toml, an environment variable or an inventory is wrong."""

    exit_code = 8
    http_status = 500


class HostKeyError(Unreachable):
    """The host presented an unknown or a changed SSH key; nothing was sent to it."""


class StoreError(RmError):
    """The database refused or lost a transaction."""

    exit_code = 9


class StoreUnavailable(StoreError):
    """The database cannot answer now: it is away, locked or full. The same work may succeed later."""

    http_status = 503


class Unstorable(StoreError):
    """The database cannot hold a value of the transaction: nothing was written, and another may be."""


class StaleLeader(StoreError):
    """Another leader took over, or the stored state moved on: nothing was written."""


class IllegalTransition(RmError):
    """An event does not fit the state of the job it names; carries the job's story."""

    exit_code = 6
    http_status = 409


class refusing:
    """An error of the block is of this thing, unless it says itself of which."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RmError):
            error.refusal = error.refusal or self._refusal


def as_told(
    kind: str, what: str, hint: str = "", refusal: str = "", otherwise: type[RmError] = RmError
) -> RmError:
    """The error that another process of rm tells of, as the class of this name that it had there, so that
    the exit code is the same. `otherwise`: where the name is none of a class here."""
    found = globals().get(kind)
    made = found if isinstance(found, type) and issubclass(found, RmError) else otherwise
    error: RmError = made(what, hint)
    error.refusal = getattr(Refusal, refusal.upper().replace("-", "_"), None)
    return error
