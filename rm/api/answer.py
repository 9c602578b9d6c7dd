"""What every answer has, and the answer to a request that is refused."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

NUMBER_MAX = 1 << 53  # of any integer in a request: JSON's readers keep no larger one exactly
Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Time = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]  # microseconds since the epoch


Number = int | float  # in answers; JSON does not tell 2 from 2.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object with the version of the API."""

    version: Literal[1] = 1


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object; an unknown field is an error that names the nearest known one. A client leaves out what
    has its default."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong, and what to do; `kind` is the error's class. `refusal`: which thing of the request was
    refused, such as unknown-partition, where programs may want to know; "": it is none of these."""

    kind: str
    message: str
    hint: str
    refusal: str = ""


class Refused(Answer, frozen=True, kw_only=True):
    error: Problem
