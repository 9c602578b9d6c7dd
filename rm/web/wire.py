"""JSON on the wire to core values, and MaDDash's answers to JSON."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rm.core.host import Host
from rm.core.job import JobSpec, JobState
from rm.errors import UsageError

SCRIPT_MAX = 4 << 20  # characters; the agent's lines end at 8 MiB
ENV_MAX = 1 << 20
T = TypeVar("T")

_encoder = msgspec.json.Encoder(enc_hook=lambda value: _unwrap(value))
_decoder = msgspec.json.Decoder()
_ENV_NAME = re.compile(r"[^=\0]+\Z")


def encode(answer: Mapping[str, Any]) -> bytes:
    return _encoder.encode(answer)


def _unwrap(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | frozenset):
        return list(value)
    raise NotImplementedError(f"no JSON form of {type(value).__name__}")


def decode(body: bytes) -> dict[str, Any]:
    """The body of a request: a JSON object; an empty body is an empty object."""
    try:
        value = _decoder.decode(body) if body else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The request's body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UsageError("The request's body must be a JSON object.")
    return value


def fields(body: Mapping[str, Any], *known: str) -> None:
    for key in body:
        if key not in known:
            raise UsageError(f"Unknown field '{key}' in the request.", _nearest(key, known))


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."


_AT = re.compile(r"(.*?)(?: - at `\$(.*)`)?\Z", re.DOTALL)


def _typed(value: Any, kind: type[T], what: str, known: Sequence[str]) -> T:
    if isinstance(value, dict) and not value.keys() <= set(known):
        stranger = next(key for key in value if key not in known)
        raise UsageError(f"Unknown field '{stranger}' in the {what}.", _nearest(stranger, known))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        problem = match[1].replace("`", "'").rstrip(".") if match else str(error)
        place = f"field '{match[2].lstrip('.')}' of the {what}" if match and match[2] else what
        raise UsageError(f"The {place} is wrong: {problem[:1].lower()}{problem[1:]}.") from None


# Columns have 64 bits, and policies multiply and divide: far above any true number, far below both.
NUMBER_MAX = 1 << 53
# `deliver` is rm.toml's alone: the daemon makes files of that name
_SPEC_FIELDS = tuple(f.name for f in dataclasses.fields(JobSpec) if f.name != "deliver")
_HOST_FIELDS = tuple(f.name for f in dataclasses.fields(Host))
# set by the daemon from what it observes, never by a client
_OBSERVED = ("state", "drained_by", "reason", "boot_id", "agent_version", "since_us")


def spec_from(value: Any, user: str, defaults: Mapping[str, Any], deliver: str = "") -> JobSpec:
    """A JobSpec of `user` from its JSON over the defaults; UsageError names the field. `deliver` is for one
    that does not say itself where its output goes."""
    if not isinstance(value, dict):
        raise UsageError("A job specification must be a JSON object.")
    spec = _typed({**defaults, **value, "user": user}, JobSpec, "job specification", _SPEC_FIELDS)
    _check(spec)
    return spec if "output" in value else dataclasses.replace(spec, deliver=deliver)


def _numbers(value: Any) -> Iterator[int]:
    """Every integer in a value of the core, however deep."""
    if isinstance(value, int):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _numbers(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from _numbers(one)


def _check(spec: JobSpec) -> None:
    """What the types cannot say. Whether the cluster can run it is the service's question."""
    problem = ""
    counts = {
        "ntasks": (spec.ntasks, 1), "cpus_per_task": (spec.cpus_per_task, 1),
        "hosts_min": (spec.hosts_min, 0), "hosts_max": (spec.hosts_max, 0),
        "tasks_per_host": (spec.tasks_per_host, 0), "gpus_per_task": (spec.gpus_per_task, 0),
        "mem_bytes_per_task": (spec.mem_bytes_per_task, 0), "gpu_mem_bytes": (spec.gpu_mem_bytes, 0),
        "iterations": (spec.iterations, 0),
    }  # fmt: skip
    for name, (value, least) in counts.items():
        if value < least:
            problem = f"{name} is {value}, and must be at least {least}"
    if any(abs(number) > NUMBER_MAX for number in _numbers(spec)):
        problem = f"one of its numbers is larger than {NUMBER_MAX}"
    if spec.hosts_max and spec.hosts_max < spec.hosts_min:
        problem = f"hosts_max is {spec.hosts_max}, less than hosts_min, which is {spec.hosts_min}"
    if spec.hosts_min > spec.ntasks:
        problem = f"{spec.ntasks} tasks cannot use {spec.hosts_min} hosts"
    if spec.time_limit_us is not None and spec.time_limit_us <= 0:
        problem = "time_limit_us must be above 0"
    if spec.expected_us is not None and spec.expected_us <= 0:
        problem = "expected_us must be above 0"
    if spec.gpu_mem_bytes and not spec.gpus_per_task:
        problem = "gpu_mem_bytes is given, and gpus_per_task is 0"
    if not spec.name or any(char in spec.name for char in "\0\n\r/"):
        problem = "the name must be a word without slashes and line ends"
    if not spec.script.strip():
        problem = "the script is empty"
    if len(spec.script) > SCRIPT_MAX:
        problem = f"the script is longer than {SCRIPT_MAX} characters"
    if "\0" in spec.script or any("\0" in arg for arg in spec.script_args):
        problem = "the script or one of its arguments contains a NUL byte"
    if any(not _ENV_NAME.match(name) or "\0" in value for name, value in spec.env):
        problem = "a variable of the environment has a name or value that no environment can hold"
    if sum(len(name) + len(value) + 2 for name, value in spec.env) > ENV_MAX:
        problem = f"the environment is larger than {ENV_MAX} bytes (--export=NONE or a list makes it smaller)"
    if spec.chdir and not spec.chdir.startswith("/"):
        problem = f"chdir is '{spec.chdir}', and must be an absolute path"
    if traffic := spec.traffic:
        if spec.low_comm:
            problem = "low_comm and a traffic profile exclude each other"
        if traffic.period_us <= 0:
            problem = "the traffic's period must be above 0"
        for phase in traffic.phases:
            if not (0 <= phase.offset_us < traffic.period_us and 0 < phase.duration_us <= traffic.period_us):
                problem = (
                    "a traffic phase does not fit into the period: 0 ≤ offset < period, 0 < duration ≤ period"
                )
            if phase.rate_bps <= 0:
                problem = "the rate of a traffic phase must be above 0"
    if problem:
        raise UsageError(f"The job '{spec.name[:80]}' cannot be accepted: {problem}.")


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
            raise UsageError(f"'{word}' is not a job state.", _nearest(word, list(JobState.__members__)))
        found.add(_BY_CODE.get(word) or JobState(word))
    return frozenset(found)
