"""What every request has: the operation's name, and the type of its answer."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from rm.protocol.scalars import Attempt, Epoch, Job, Word

Answer = TypeVar("Answer", bound=msgspec.Struct)


class Request(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True, tag_field="op"):
    """One operation. Its tag is the name that the agent knows; the type argument is what it answers with.
    A field that is UNSET is not sent."""


class OfAttempt(Request[Answer], Generic[Answer], frozen=True, kw_only=True):
    """It concerns one attempt of a job."""

    job: Job
    attempt: Attempt


class Ordered(OfAttempt[Answer], Generic[Answer], frozen=True, kw_only=True):
    """It changes something, so it carries the leader's epoch and its cluster's id: an agent refuses an older
    leader's, and another cluster's."""

    epoch: Epoch
    cluster: Word = ""


class Done(msgspec.Struct, frozen=True):
    """Nothing but that it was done."""


@cache
def answer_of(request: type[Request[Any]]) -> type[msgspec.Struct]:
    """What a request of this type is answered with."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in typing.get_args(base):
            if isinstance(argument, type) and issubclass(argument, msgspec.Struct):
                return argument
    raise TypeError(f"{request.__name__} names no answer")


def name_of(request: type[Request[Any]]) -> str:
    """The operation's name."""
    return str(request.__struct_config__.tag)
