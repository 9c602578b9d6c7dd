"""What a job's specification must be for rm to accept it, from any client.

Whether the cluster can run the job is another question (`rm.core.scheduling.explaining.never_fits`). The
bounds keep what one job makes everybody pay small: a row in the database, a line to an agent, a place in a
list, a turn of the leader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter, ge

from rm import arrays, containers, features, licenses, mail_events
from rm.core.model.asked.array import BITS_KEPT
from rm.core.model.asked.distribution import ranks_in_turn
from rm.core.model.asked.launching import LAUNCHES
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.job import NO_BIND, PER_TASK, JobSpec
from rm.dependencies import parse
from rm.errors import UsageError
from rm.units import DAY_US, LEASE_LEAST_US, LEASE_MOST_US, fold_hosts

# Columns have 64 bits, and policies multiply and divide: far above any true number, far below both.
NUMBER_MAX = 1 << 53
NAME_BYTES = 255  # NAME_MAX of Linux: names become parts of file names
PATH_BYTES = 4095  # PATH_MAX of Linux without the NUL
COMMENT_BYTES = 4096
SUBMIT_LINE_BYTES = 4096
DEPENDENCY_BYTES = 64 << 10
SCRIPT_BYTES = 4 << 20
ARGUMENTS_BYTES = 128 << 10  # each with its NUL
VARIABLES = 8192
VARIABLE_BYTES = 128 << 10  # MAX_ARG_STRLEN of Linux: no program can be given a longer one
ENVIRONMENT_BYTES = 1 << 20
HOSTS = 4096  # that a job names
TASKS = 1 << 16
SWITCHES = 4096  # leaves below which a job's hosts may be, where it names a number
HOST_BYTES, PHASE_BYTES = 64, 128  # in memory, of each such thing that a specification lists
CONDITION_BYTES = 256  # with its place in the index of dependents
CHARACTER_BYTES = 4  # at most: in memory all of a text have the bytes of its widest one
SETS_BYTES = 25_000  # two sets of 100,000 indices
SIGNAL_MAX = 64
PHASES = 64  # of a traffic profile
PERIOD_MAX_US = DAY_US  # of one: circles of several such periods are still exact in 64 bits
# A launch is one line to an agent, which takes 8 MiB. JSON makes up to six bytes of one.
LAUNCH_BYTES = 7 << 20
JSON_FACTOR = 6

_WORDS = ("name", "user", "gpu_type", "partition", "zone", "submit_host", "reservation", "account", "qos")
_PATHS = ("chdir", "output", "error", "input", "deliver", "container_workdir", "script_path")
_LEAST = {
    "ntasks": 1, "cpus_per_task": 1, "hosts_min": 0, "hosts_max": 0, "tasks_per_host": 0, "gpus_per_task": 0,
    "gpus_per_host": 0, "ntasks_per_gpu": 0, "mem_bytes_per_task": 0, "mem_bytes_per_host": 0,
    "gpu_mem_bytes": 0, "iterations": 0, "switches": 0, "switches_wait_us": 0, "nice": 0, "warn_signal": 0,
    "warn_before_us": 0,
}  # fmt: skip
_short_texts, _counts_of = attrgetter(*_WORDS, *_PATHS, "comment"), attrgetter(*_LEAST)
_long_texts = attrgetter(
    "script", "submit_line", "script_path", "comment", "chdir", "output", "error", "input", "container_image",
    "container_mounts", "container_workdir", "constraint", "prefer", "licenses", "dependency",
)  # fmt: skip
_ONE_OF = (("gpus_per_task", "gpus_per_host"), ("mem_bytes_per_task", "mem_bytes_per_host", "mem_all"))
_WAYS = {"gpu_bind": (PER_TASK, NO_BIND), "launch": LAUNCHES}
_TIMES = ("time_limit_us", "expected_us", "deadline_us", "time_min_us")
_IN_NAMES = re.compile(r"[\0\n\r]")
_ENV_NAME = re.compile(r"[^=\0]+\Z")


def accept(spec: JobSpec, runs: bool = True) -> None:
    """Refuse a specification that no daemon takes. `runs`: it will run on hosts, and not in a simulator,
    whose jobs have no script.

    Raises:
        UsageError: with the first thing that is wrong.
    """
    problem = next(_problems(spec, runs), "")
    if problem:
        raise UsageError(f"The job '{spec.name[:80]}' cannot be accepted: {problem}.")


def size_bytes(spec: JobSpec) -> int:
    """About what the specification takes in memory and in the database, without numbers and short words. The
    leader asks for each element, so no text is read: one that is not ASCII counts as large as it may be."""
    texts = [*_long_texts(spec), *spec.script_args, *chain.from_iterable(spec.env)]
    size = sum(map(len, texts))
    if not all(map(str.isascii, texts)):
        size += (CHARACTER_BYTES - 1) * sum(len(text) for text in texts if not text.isascii())
    for names in (spec.hosts_only, spec.hosts_excluded):
        size += HOST_BYTES * len(names) + sum(map(len, names))
    if spec.dependency:
        size += CONDITION_BYTES * spec.dependency.count(":")
    if spec.array:
        size += 3 * len(spec.array) + min(BITS_KEPT // 8 * len(spec.array), SETS_BYTES)
    return size + (PHASE_BYTES * len(spec.traffic.phases) if spec.traffic is not None else 0)


def _problems(spec: JobSpec, runs: bool) -> Iterator[str]:
    yield from _texts(spec)
    yield from _counts(spec)
    if runs and not spec.script.strip():
        yield "the script is empty"
    yield from _program(spec)
    if spec.traffic is not None:
        if spec.low_comm:
            yield "low_comm and a traffic profile are mutually exclusive"
        yield from _traffic(spec.traffic)


def _texts(spec: JobSpec) -> Iterator[str]:
    if not spec.name or _IN_NAMES.search(spec.name):
        yield "the name must be one line of text"
    together = "".join(_short_texts(spec))
    if len(together) > NAME_BYTES or "\0" in together or not together.isascii():  # else none can be wrong
        for names, most in ((_WORDS, NAME_BYTES), (_PATHS, PATH_BYTES), (("comment",), COMMENT_BYTES)):
            for name in names:
                yield from _text(name, getattr(spec, name), most)
    yield from _text("submit_line", spec.submit_line, SUBMIT_LINE_BYTES)
    yield from _array(spec.array)
    yield from _dependency(spec.dependency)
    for name, parsed in (
        ("constraint", features.parse),
        ("prefer", features.uncounted),
        ("licenses", licenses.parse),
        ("container_image", containers.image),
        ("container_mounts", containers.mounts),
        ("container_name", containers.name),
    ):
        try:
            if text := getattr(spec, name):
                parsed(text)
        except UsageError as error:
            yield f"{name}: {error.what.removesuffix('.')}"
    try:
        mails = not spec.mail_events or mail_events.parse(spec.mail_events) == spec.mail_events
    except UsageError:
        mails = False
    if not mails:
        yield f"mail_events is '{spec.mail_events[:80]}', and must be a list of events"
    if spec.mail_user and not mail_events.is_address(spec.mail_user):
        yield f"mail_user is '{spec.mail_user[:80]}', and must be one address"
    if spec.container_workdir and not spec.container_workdir.startswith("/"):
        yield f"container_workdir is '{spec.container_workdir[:80]}', and must be an absolute path"
    more = spec.container_mounts or spec.container_workdir or spec.container_name
    if more and not spec.container_image:
        yield "container_mounts, container_workdir and container_name need a container_image"
    if spec.open_mode not in ("", "truncate", "append"):
        yield f"open_mode is '{spec.open_mode[:80]}', and must be truncate or append"
    if spec.chdir and not spec.chdir.startswith("/"):
        yield f"chdir is '{spec.chdir[:80]}', and must be an absolute path"
    for name in ("hosts_only", "hosts_excluded"):
        hosts = getattr(spec, name)
        if len(hosts) > HOSTS:
            yield f"{name} names {len(hosts)} hosts, and may name {HOSTS}"
        for host in hosts:
            yield from _text(name, host, NAME_BYTES)
    if both := sorted({*spec.hosts_only} & {*spec.hosts_excluded}):
        left, needed = len({*spec.hosts_only} - {*both}), max(1, spec.hosts_min)
        if left < needed:
            yield f"it names {fold_hosts(both)} and excludes the same: {left} of the {needed} hosts are left"


def _dependency(text: str) -> Iterator[str]:
    if not text:
        return
    if _bytes(text) > DEPENDENCY_BYTES:
        yield f"dependency has {_bytes(text)} bytes, and may have {DEPENDENCY_BYTES}"
    try:
        parse(text)
    except UsageError as error:
        yield error.what.removesuffix(".")


def _array(text: str) -> Iterator[str]:
    if not text:
        return
    try:
        arrays.parse(text)
    except UsageError as error:
        yield error.what.removesuffix(".")


def _text(what: str, text: str, most_bytes: int) -> Iterator[str]:
    if (size := _bytes(text)) > most_bytes:
        yield f"{what} has {size} bytes, and may have {most_bytes}"
    if "\0" in text:
        yield f"{what} contains a NUL byte"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _counts(spec: JobSpec) -> Iterator[str]:
    counts = _counts_of(spec)
    if max(counts) > NUMBER_MAX or not all(map(ge, counts, _LEAST.values())):
        for (name, least), value in zip(_LEAST.items(), counts, strict=True):
            if value < least:
                yield f"{name} is {value}, and must be at least {least}"
            if value > NUMBER_MAX:
                yield f"{name} is larger than {NUMBER_MAX}"
    if spec.ntasks > TASKS:
        yield f"ntasks is {spec.ntasks}, and a job may have {TASKS} tasks"
    if spec.switches > SWITCHES:
        yield f"switches is {spec.switches}, and may be at most {SWITCHES}"
    if abs(spec.priority) > NUMBER_MAX or abs(spec.begin_us or 0) > NUMBER_MAX:
        yield f"priority or begin_us is larger than {NUMBER_MAX}"
    for name in _TIMES:
        time_us = getattr(spec, name)
        if time_us is not None and not 0 < time_us <= NUMBER_MAX:
            yield f"{name} must be above 0 and at most {NUMBER_MAX}"
    if spec.time_min_us and spec.time_limit_us and spec.time_min_us > spec.time_limit_us:
        yield f"time_min_us is {spec.time_min_us}, more than time_limit_us, which is {spec.time_limit_us}"
    if spec.warn_signal > SIGNAL_MAX:
        yield f"warn_signal is {spec.warn_signal}, and signals have the numbers 1 to {SIGNAL_MAX}"
    if spec.fence_us and not LEASE_LEAST_US <= spec.fence_us <= LEASE_MOST_US:
        yield f"fence_us is {spec.fence_us}, and must be 0, or from {LEASE_LEAST_US} to {LEASE_MOST_US}"
    if spec.hosts_max and spec.hosts_max < spec.hosts_min:
        yield f"hosts_max is {spec.hosts_max}, less than hosts_min, which is {spec.hosts_min}"
    if kinds := spec.demand.kinds:
        counted = sum(count for _, count in kinds)
        if counted > (most := spec.hosts_max or spec.ntasks):
            yield f"constraint counts {counted} hosts, and the job has {most} at most"
    if spec.hosts_min > spec.ntasks:
        yield f"{spec.ntasks} tasks cannot use {spec.hosts_min} hosts"
    if spec.gpu_mem_bytes and not (spec.gpus_per_task or spec.gpus_per_host):
        yield "gpu_mem_bytes is given, and the job asks for no GPU"
    for names in _ONE_OF:
        given = [name for name in names if getattr(spec, name)]
        if len(given) > 1:
            yield f"{' and '.join(given)} are mutually exclusive"
    if ranks_in_turn(spec.distribution) < 0:
        yield f"distribution is '{spec.distribution[:80]}', and must be block, cyclic or plane=SIZE"
    for name, ways in _WAYS.items():
        if getattr(spec, name) not in ways:
            yield f"{name} is '{getattr(spec, name)[:80]}', and must be {' or '.join(ways)}"
    if not all(spec.partitions):
        yield f"partition is '{spec.partition[:80]}', and one of its names is empty"
    if spec.ntasks_per_gpu and not _fills_its_hosts(spec):
        yield (
            "ntasks_per_gpu is given, and ntasks is not hosts_min = hosts_max times gpus_per_host times "
            "ntasks_per_gpu, with as many tasks_per_host"
        )


def _fills_its_hosts(spec: JobSpec) -> bool:
    """Do its tasks make use of each GPU of each host, equally?"""
    on_host = spec.gpus_per_host * spec.ntasks_per_gpu
    hosts = spec.hosts_min
    return 0 < hosts == spec.hosts_max and spec.tasks_per_host == on_host and spec.ntasks == hosts * on_host


def _program(spec: JobSpec) -> Iterator[str]:
    """What the agent is sent: script, arguments and environment."""
    script = _bytes(spec.script)
    if script > SCRIPT_BYTES:
        yield f"the script has {script} bytes, and may have {SCRIPT_BYTES}"
    arguments = sum(_bytes(argument) + 1 for argument in spec.script_args)
    if arguments > ARGUMENTS_BYTES:
        yield f"the script's arguments have {arguments} bytes in all, and may have {ARGUMENTS_BYTES}"
    if "\0" in spec.script or any("\0" in argument for argument in spec.script_args):
        yield "the script or one of its arguments contains a NUL byte"
    if len(spec.env) > VARIABLES:
        yield f"the environment has {len(spec.env)} variables, and may have {VARIABLES}"
    environment = 0
    for name, value in spec.env:
        size = _bytes(name) + _bytes(value) + 2
        environment += size
        if size > VARIABLE_BYTES:
            yield f"the variable {name[:80]} has {size} bytes, and no program can be given more than 131072"
        if not _ENV_NAME.match(name) or "\0" in value:
            yield "a variable of the environment has a name or value that no environment can hold"
    if environment > ENVIRONMENT_BYTES:
        yield (
            f"the environment is larger than {ENVIRONMENT_BYTES} bytes"
            " (--export=NONE or a list makes it smaller)"
        )
    if JSON_FACTOR * (script + arguments + environment) > LAUNCH_BYTES:
        texts = (spec.script, *spec.script_args, *(text for pair in spec.env for text in pair))
        if sum(map(_json_bytes, texts)) > LAUNCH_BYTES:
            yield (
                f"script, arguments and environment have more than {LAUNCH_BYTES} bytes as JSON, in which "
                "they are sent to hosts"
            )


_SHORT = re.compile(r'["\\\b\f\n\r\t]')
_LONG = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")


def _json_bytes(text: str) -> int:
    """At most, as a JSON string that is not reduced to ASCII."""
    return _bytes(text) + len(_SHORT.findall(text)) + 5 * len(_LONG.findall(text)) + 3


def _traffic(traffic: TrafficProfile) -> Iterator[str]:
    period_us = traffic.period_us
    if not 0 < period_us <= PERIOD_MAX_US:
        yield "the traffic's period must be above 0 and at most a day"
    if len(traffic.phases) > PHASES:
        yield f"the traffic has {len(traffic.phases)} phases, and may have {PHASES}"
    for phase in traffic.phases:
        if not (0 <= phase.offset_us < period_us and 0 < phase.duration_us <= period_us):
            yield "a traffic phase does not fit into the period: 0 ≤ offset < period, 0 < duration ≤ period"
        if not 0 < phase.rate_bps <= NUMBER_MAX:
            yield f"the rate of a traffic phase must be above 0 and at most {NUMBER_MAX}"
