"""A refusal of the daemon as the error that it is there, and answers that did not come; cheap to import, for
commands that scripts call in loops."""

from __future__ import annotations

from rm.client.quick_json import loads
from rm.errors import RmError, Unreachable, as_told


class PerhapsHeard(Unreachable):
    """The request may have been carried out."""


class ConnectionClosed(PerhapsHeard):
    """Before the answer came."""


class Unanswered(PerhapsHeard):
    """In the time that was given for it."""


class LedElsewhere(PerhapsHeard):
    """The daemon that was asked says nothing, and another one leads by now."""


class Interrupted(PerhapsHeard):
    """In the middle of an answer."""


def failure(status: int, body: bytes) -> RmError:
    """The daemon's error as the class it had there, so that the exit code is the same."""
    try:
        told = loads(body.decode("utf-8", "surrogatepass"))["error"]
        return as_told(str(told["kind"]), told["message"], told["hint"], told.get("refusal", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return RmError(f"The daemon answered with status {status}.")
