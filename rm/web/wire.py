"""JSON on the wire to core values, and MaDDash's answers to JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rm.api import job_requests
from rm.core.model.acceptance import ENVIRONMENT_BYTES, accept
from rm.core.model.asked.job_update import NAMES, JobUpdate
from rm.core.model.asked.launching import AUTO, launch_of
from rm.core.model.host import Host
from rm.core.model.job import JobSpec, JobState
from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.typed import convert, decoder_of

SMALL_BYTES = 64 << 10  # of JSON: decoded in a few milliseconds, with any content
PARTS_BYTES = 4 << 10  # of JSON: job specifications in fewer are not compared with each other
LIST_BYTES = 1 << 20  # of JSON, for a list or an object in a job specification
ENV_BYTES = 2 * ENVIRONMENT_BYTES
BRACES = 64  # a job specification of many has fewer "{", in its script for one
SHOWN = 80  # characters of a name that nobody knows
T = TypeVar("T")
Asked = TypeVar("Asked", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder(enc_hook=lambda value: _unwrap(value))
_decoder = msgspec.json.Decoder()


def encode(answer: Mapping[str, Any]) -> bytes:
    return _encoder.encode(answer)


def _unwrap(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | frozenset):
        return list(value)
    raise NotImplementedError(f"no JSON form of {type(value).__name__}")


def decode(body: bytes, most_bytes: int = SMALL_BYTES) -> dict[str, Any]:
    """The body of a request: a JSON object; an empty body is an empty object. A handler that takes a long
    one in the event loop keeps everybody waiting."""
    if len(body) > most_bytes:
        raise UsageError(f"The request has {len(body)} bytes, and this one may have {most_bytes}.")
    return _decoded(_decoder, body, "request's body") if body else {}


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw, what: str) -> dict[str, Any]:
    try:
        value = decoder.decode(text)
    except msgspec.ValidationError:  # of a decoder of objects
        value = None
    except RecursionError:
        raise UsageError(f"The {what} is nested too deeply: no request needs that many levels.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The {what} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UsageError(f"The {what} must be a JSON object.")
    return value


def submission(body: bytes, most: int) -> tuple[list[Any], bool]:
    """The job specifications of a request, as they came, equal ones of a long list as one object; and whether
    it names a list of them.

    A long one is taken apart in steps, of which none holds the interpreter for long and none makes many
    more objects than a request within the limits needs.
    """
    found = decode(body) if len(body) <= PARTS_BYTES else _decoded(_of_parts, body, "request's body")
    fields(found, "spec", "specs")
    if ("spec" in found) == ("specs" in found):
        raise UsageError("Send either 'spec', one job, or 'specs', a list of jobs.")
    if "spec" in found:
        return [_whole(found["spec"])], False
    values = found["specs"]
    if isinstance(values, msgspec.Raw):
        if bytes(values).count(b"{") > BRACES * most:
            raise _too_many(most)
        try:
            values = _list_of_parts.decode(values)
        except (msgspec.DecodeError, RecursionError):
            values = None
    if not isinstance(values, list) or not values:
        raise UsageError("'specs' must be a list of at least one job specification.")
    if len(values) > most:
        raise _too_many(most)
    return _each_once(values), True


def _each_once(values: list[Any]) -> list[Any]:
    """The specifications, of which those with the same text are one object."""
    texts = [bytes(value) if isinstance(value, msgspec.Raw) else None for value in values]
    seen: dict[bytes, Any] = {}
    for text, value in zip(texts, values, strict=True):
        if text is not None and text not in seen:
            seen[text] = _whole(value)
    return [value if text is None else seen[text] for text, value in zip(texts, values, strict=True)]


_of_parts = decoder_of(dict[str, msgspec.Raw])
_list_of_parts = decoder_of(list[msgspec.Raw])


def _too_many(most: int) -> UsageError:
    return UsageError(
        f"A request may submit {most} jobs.",
        "Send them in several requests, or raise limits.specs_per_request.",
    )


def _whole(value: Any) -> Any:
    """A specification whose fields may still be JSON text."""
    if isinstance(value, msgspec.Raw):
        value = _decoded(_of_parts, value, "job specification")
    if not isinstance(value, dict) or not any(isinstance(v, msgspec.Raw) for v in value.values()):
        return value
    made: dict[str, Any] = {}
    for name, part in value.items():
        size, most = len(part), ENV_BYTES if name == "env" else LIST_BYTES
        if size > most and bytes(memoryview(part)[:1]) in (b"[", b"{"):
            raise UsageError(f"The field '{name[:SHOWN]}' of the job specification has {size} bytes of JSON.")
        try:
            made[name] = _decoder.decode(part)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"The field '{name[:SHOWN]}' of the job specification: {error}.") from None
    return made


def typed_body(body: bytes, kind: type[Asked]) -> Asked:
    """The body of a request as a Struct of `rm.api`."""
    return _typed(decode(body), kind, "request", [f.name for f in msgspec.structs.fields(kind)])


def update_from(asked: job_requests.JobUpdate) -> JobUpdate:
    """The core's form of an update; null, which takes a time back, is 0 there.

    Raises:
        UsageError: it changes nothing.
    """
    values: dict[str, Any] = {}
    for name in NAMES:
        value = getattr(asked, name)
        if value is not msgspec.UNSET:
            value = tuple(value) if isinstance(value, list) else value
            values[name] = 0 if value is None else value
    if not values:
        raise UsageError("The request changes nothing.", "Name a field.")
    return JobUpdate(**values)


def fields(body: Mapping[str, Any], *known: str) -> None:
    _only(body, known, "request")


_AT = re.compile(r"(.*?)(?: - at `\$(.*)`)?\Z", re.DOTALL)


def _typed(value: Any, kind: type[T], what: str, known: Collection[str]) -> T:
    if isinstance(value, dict):
        _only(value, known, what)
    return _converted(value, kind, what)


def _only(value: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for key in value:
        if key not in known:
            raise UsageError(f"Unknown field '{key[:SHOWN]}' in the {what}.", did_you_mean(key, known))


def _converted(value: Any, kind: type[T], what: str) -> T:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        problem = match[1].replace("`", "'").rstrip(".") if match else str(error)
        place = f"field '{match[2].lstrip('.')}' of the {what}" if match and match[2] else what
        raise UsageError(f"The {place} is wrong: {problem[:1].lower()}{problem[1:]}.") from None


# `deliver` is rm.toml's alone: the daemon makes files of that name
_SPEC_FIELDS = {f.name: None for f in dataclasses.fields(JobSpec) if f.name != "deliver"}  # in order
_HOST_FIELDS = tuple(f.name for f in dataclasses.fields(Host))
# set by the daemon from what it observes, never by a client
_OBSERVED = (
    "state",
    "drained_by",
    "drained_us",
    "unwritable",
    "reason",
    "boot_id",
    "agent_version",
    "unenforced",
    "unshaped",
    "containers",
    "machine",
    "kernel",
    "booted_us",
    "since_us",
)


def spec_from(value: Any, user: str, defaults: Mapping[str, Any], deliver: str = "") -> JobSpec:
    """A JobSpec of `user` from its JSON over the defaults, its launch decided; UsageError names the field.
    `deliver` is for one that does not say itself where its output goes."""
    if not isinstance(value, dict):
        raise UsageError("A job specification must be a JSON object.")
    _only(value, _SPEC_FIELDS, "job specification")
    given = {**defaults, **value, "user": user, "deliver": "" if "output" in value else deliver}
    script = given.get("script")
    if given.get("launch") == AUTO and isinstance(script, str):  # a specification is not made twice for it
        given["launch"] = launch_of(AUTO, script, given.get("hosts_max", 0))
    spec = _converted(given, JobSpec, "job specification")
    accept(spec)
    return spec


def host_from(value: Any) -> Host:
    if not isinstance(value, dict):
        raise UsageError("A host must be a JSON object.")
    known = [name for name in _HOST_FIELDS if name not in _OBSERVED]
    given = {"address": value.get("name"), "zone": "default", **value}
    if isinstance(given.get("variables"), dict):
        given["variables"] = [[key, str(text)] for key, text in given["variables"].items()]
    return _typed(given, Host, "host", known)


_BY_CODE = {state.short: state for state in JobState}


def states_from(text: str) -> frozenset[JobState]:
    """`PENDING,R` to states: Slurm's names and short codes, any case."""
    found = set()
    for word in filter(None, (part.strip().upper() for part in text.split(","))):
        if word not in _BY_CODE and word not in JobState.__members__:
            raise UsageError(
                f"'{word[:SHOWN]}' is not a job state.", did_you_mean(word, list(JobState.__members__))
            )
        found.add(_BY_CODE.get(word) or JobState(word))
    return frozenset(found)
