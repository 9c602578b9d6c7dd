"""Options of a submission (rm.submission.options) to a job specification (JobSpec's fields as JSON).

Resources are per task in a JobSpec and often per host in Slurm's options: here one becomes the
other, or the request is refused with what is missing. Cheap to import: no core types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from rm import units
from rm.errors import UsageError

PRIORITIES = {"high": 100, "low": 0}
_PRIORITY_MAX = 1_000_000_000


def build(
    values: Mapping[str, Any], environment: Mapping[str, str], cwd: str, now: datetime
) -> dict[str, Any]:
    """The specification without its script; only what was asked for, defaults are the daemon's.

    Args:
        values: option key -> text, or True/False.
        environment: that of the submission, for --export.
        now: for --begin; aware or local.
    """
    spec: dict[str, Any] = {"env": _export(values.get("export", "ALL"), environment)}
    for key in ("name", "output", "error", "partition", "comment", "zone"):
        if values.get(key):
            spec[key] = values[key]
    if spec.get("output") == "none":
        spec["output"] = ""  # kept where it ran; `rmx logs` reads it
    if "open_mode" in values:
        spec["open_mode"] = _open_mode(values["open_mode"])
    for key in ("hold", "exclusive", "requeue", "low_comm"):
        if key in values:
            spec[key] = bool(values[key])
    spec["chdir"] = _absolute(values.get("chdir") or cwd, cwd)
    if values.get("chdir"):
        spec["chdir_required"] = True
    if "time" in values:
        spec["time_limit_us"] = units.parse_time_limit_us(values["time"])
    if "expect" in values and (expected := _expected(values["expect"])) is not None:
        spec["expected_us"] = expected
    if iterations := count(values, "iterations"):
        spec["iterations"] = iterations
    if "priority" in values:
        spec["priority"] = _priority(values["priority"])
    if "begin" in values:
        spec["begin_us"] = begin_us(values["begin"], now)
    for key, name in (("nodelist", "hosts_only"), ("exclude", "hosts_excluded")):
        if values.get(key):
            spec[name] = list(units.parse_hosts(values[key]))
    spec |= _shape(values)
    if profile := _traffic(values):
        spec["traffic"] = profile
    return spec


def count(values: Mapping[str, Any], key: str, least: int = 1) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not str(text).isdecimal() or int(text) < least:
        option = key.replace("_", "-")
        raise UsageError(f"--{option} is '{text}', and must be a whole number of at least {least}.")
    return int(text)


_NODES = re.compile(r"(\d+)(?:-(\d+))?\Z")
_GPUS = re.compile(r"(?:([A-Za-z][\w.-]*)[:=])?(\d+)\Z")


def _shape(values: Mapping[str, Any]) -> dict[str, Any]:
    """Hosts, tasks, processors, memory and GPUs."""
    spec: dict[str, Any] = {}
    per_host = count(values, "ntasks_per_node")
    low = high = 0
    if "nodes" in values:
        match = _NODES.match(values["nodes"])
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if low < 1 or high < low:
            raise UsageError(
                f"--nodes is '{values['nodes']}'.", "Write a number of hosts or a range such as 2-4."
            )
        spec |= {"hosts_min": low, "hosts_max": high}
    ntasks = count(values, "ntasks") or max(low, 1) * (per_host or 1)
    if ntasks < low:
        raise UsageError(f"--ntasks={ntasks} tasks cannot use --nodes={low} hosts.", "Ask for fewer hosts.")
    cpus = count(values, "cpus_per_task") or 1
    spec |= {"ntasks": ntasks, "cpus_per_task": cpus}
    if per_host:
        spec["tasks_per_host"] = per_host
    on_host = 1 if ntasks == 1 else per_host or (math.ceil(ntasks / low) if low else 0)
    gpus, gpu_type = _gpus(values, ntasks, on_host)
    if gpus:
        spec |= {"gpus_per_task": gpus, "gpu_type": gpu_type}
        if "gres" in values or "gpus_per_node" in values:
            spec["tasks_per_host"] = on_host
    if size := _gpu_memory(values, gpus):
        spec["gpu_mem_bytes"] = size
    if memory := _memory(values, cpus, gpus, on_host):
        spec["mem_bytes_per_task"] = memory
    return spec


def _gpus(values: Mapping[str, Any], ntasks: int, on_host: int) -> tuple[int, str]:
    """GPUs of one task and their type; the options that were given must agree."""
    found: dict[str, int] = {}
    kinds: set[str] = set()
    for key in ("gpus_per_task", "gpus", "gpus_per_node", "gres"):
        text = values.get(key)
        option = "--" + key.replace("_", "-")
        if text is None or (key == "gres" and text.lower() == "none"):
            continue
        if key == "gres":
            head, _, text = text.partition(":")
            if head != "gpu" or "," in text:
                raise UsageError(f"--gres={values['gres']} is not supported.", "Only gpu[:TYPE]:N is.")
            text = text or "1"
            if not text[0].isdecimal() and not {":", "="} & set(text):
                text += ":1"  # a type alone
        match = _GPUS.match(text)
        if match is None:
            raise UsageError(f"{option} is '{values[key]}'.", "Write a number, or TYPE:NUMBER.")
        number = int(match[2])
        kinds |= {match[1]} if match[1] else set()
        share, what = {"gpus_per_task": (1, ""), "gpus": (ntasks, f"{ntasks} tasks")}.get(
            key, (on_host, f"{on_host} tasks on a host")
        )
        if share == 0:
            raise UsageError(
                f"{option} counts GPUs on each host, and how many tasks a host gets is not said.",
                "Add --nodes or --ntasks-per-node, or use --gpus-per-task.",
            )
        if number % share:
            raise UsageError(
                f"{option}={values[key]} cannot be shared equally by {what}.",
                "Every task gets the same number of GPUs.",
            )
        found[option] = number // share
    if len(set(found.values())) > 1:
        raise UsageError(
            f"{' and '.join(found)} ask for different numbers of GPUs for a task.", "Keep one of them."
        )
    if len(kinds) > 1:
        raise UsageError(
            f"The job asks for several types of GPUs: {', '.join(sorted(kinds))}.", "Keep one of them."
        )
    return next(iter(found.values()), 0), next(iter(kinds), "")


def _gpu_memory(values: Mapping[str, Any], gpus: int) -> int:
    """Bytes of each GPU for a job that shares its GPUs; 0 = it wants them for itself."""
    if "gpu_mem" not in values:
        return 0
    if not gpus:
        raise UsageError("--gpu-mem is given, and the job asks for no GPU.", "Add --gpus-per-task.")
    return units.parse_memory_bytes(values["gpu_mem"])


def _memory(values: Mapping[str, Any], cpus: int, gpus: int, on_host: int) -> int:
    """Bytes for one task."""
    given = [key for key in ("mem", "mem_per_cpu", "mem_per_gpu") if values.get(key)]
    if not given:
        return 0
    if len(given) > 1:
        spelled = " and ".join("--" + key.replace("_", "-") for key in given)
        raise UsageError(f"{spelled} exclude each other.", "Keep one of them.")
    size = units.parse_memory_bytes(values[given[0]])
    if given[0] == "mem_per_cpu":
        return size * cpus
    if given[0] == "mem_per_gpu":
        if not gpus:
            raise UsageError(
                "--mem-per-gpu is given, and the job asks for no GPU.", "Add --gpus, or use --mem."
            )
        return size * gpus
    if size == 0:
        raise UsageError(
            "--mem=0, all memory of a host, is not supported.", "Name a size, or use --exclusive."
        )
    if on_host == 0:
        raise UsageError(
            "--mem counts memory on each host, and how many tasks a host gets is not said.",
            "Add --nodes or --ntasks-per-node, or use --mem-per-cpu.",
        )
    return math.ceil(size / on_host)


def _open_mode(text: str) -> str:
    """As Slurm, which looks at the first letter only."""
    for mode in ("append", "truncate"):
        if text[:1].lower() == mode[0] and mode.startswith(text.lower()):
            return mode
    raise UsageError(f"--open-mode is '{text}'.", "Write append or truncate.")


def _expected(text: str) -> int | None:
    """Microseconds, written like a time limit; None for UNLIMITED, which says nothing."""
    try:
        return units.parse_time_limit_us(text)
    except UsageError as error:
        raise UsageError(f"--expect is '{text}', and that is no run time.", error.hint) from None


def _priority(text: str) -> int:
    named = PRIORITIES.get(text.lower())
    if named is not None:
        return named
    if not re.match(r"-?\d{1,10}\Z", text) or abs(int(text)) > _PRIORITY_MAX:
        raise UsageError(f"--priority is '{text}'.", "Write high, low or an integer.")
    return int(text)


def _absolute(path: str, cwd: str) -> str:
    import os.path

    return os.path.normpath(os.path.join(cwd, path))


def _export(text: str, environment: Mapping[str, str]) -> list[list[str]]:
    """--export: ALL, NONE, or names and assignments; with ALL among them beside everything."""
    parts = [part for part in _split_export(text) if part]
    if [part.upper() for part in parts] in (["NONE"], ["NIL"]):
        return []
    chosen: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if part.upper() == "ALL":
            chosen = dict(environment) | chosen
        elif equals and name:
            chosen[name] = value
        elif not equals and part in environment:
            chosen[part] = environment[part]
        elif equals or not re.match(r"[A-Za-z_]\w*\Z", part):
            raise UsageError(
                f"--export={text}: '{part}' is no variable.", "Write ALL, NONE, NAME or NAME=VALUE."
            )
    # bytes that are no UTF-8 cannot travel in JSON; such a variable is of no use to another host
    return [[name, value] for name, value in chosen.items() if _is_text(name + value)]


def _split_export(text: str) -> list[str]:
    """At commas, except inside quotes: A="1,2",B=3."""
    parts, quote, current = [], "", ""
    for char in text:
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "," and not quote:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_OFFSET = re.compile(r"now(?:\s*\+\s*(\d+)\s*([a-z]*))?\Z")
_AT = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\Z")
_DAY_TIMES = {"midnight": 0, "noon": 12, "teatime": 16}
_OFFSET_UNITS = {
    "": "seconds",
    "second": "seconds",
    "minute": "minutes",
    "hour": "hours",
    "day": "days",
    "week": "weeks",
}


def begin_us(text: str, now: datetime) -> int:
    """Slurm's --begin: `now+1hour`, `16:00`, `tomorrow`, `noon`, ISO dates; local time.

    A time of day that has passed means tomorrow. Microseconds since the epoch.
    """
    word = text.strip().lower()
    when: datetime | None = None
    if offset := _OFFSET.match(word):
        unit = _OFFSET_UNITS.get((offset[2] or "").removesuffix("s") if offset[2] != "s" else "second")
        if unit is not None:
            when = now + timedelta(**{unit: int(offset[1] or 0)})
    elif word == "tomorrow" or word == "today":
        when = now + timedelta(days=word == "tomorrow")
    elif (clock := _AT.match(word)) or word in _DAY_TIMES:
        hour, minute, second = (
            (int(clock[1]), int(clock[2]), int(clock[3] or 0)) if clock else (_DAY_TIMES[word], 0, 0)
        )
        if hour < 24 and minute < 60 and second < 60:
            when = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            if when <= now:
                when += timedelta(days=1)
    else:
        try:
            when = datetime.fromisoformat(text.strip())
        except ValueError:
            when = None
    if when is None:
        raise UsageError(f"--begin is '{text}'.", "Write now+1hour, 16:00, tomorrow or 2030-01-31T16:00.")
    return round(when.timestamp() * 1_000_000)


def _fraction(text: str) -> tuple[int, int]:
    """`0.4` and `40%` exactly, as numerator and denominator; above 0, at most 1."""
    match = re.match(r"(\d*)(?:\.(\d+))?(%?)\Z", text.strip())
    if match and (match[1] or match[2]):
        digits = match[2] or ""
        numerator, denominator = int((match[1] or "0") + digits), 10 ** len(digits) * (100 if match[3] else 1)
        if 0 < numerator <= denominator:
            return numerator, denominator
    raise UsageError(f"--duty-cycle is '{text}'.", "Write a part of the period: 0.4 or 40%.")


def _traffic(values: Mapping[str, Any]) -> dict[str, Any] | None:
    profile = [key for key in ("period", "duty_cycle", "bandwidth") if key in values]
    given = [
        *(["--traffic"] if "traffic" in values else []),
        *(["--low-comm"] if values.get("low_comm") else []),
    ]
    if profile:
        given.append("--" + profile[0].replace("_", "-"))
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other.", "Keep one description of the traffic.")
    if "traffic" in values:
        from rm.submission.traffic_file import read

        return read(values["traffic"])
    if not profile:
        return None
    if len(profile) < 3:
        raise UsageError(
            "--period, --duty-cycle and --bandwidth belong together.",
            "Give all three, or none: then the job is profiled while it runs.",
        )
    period = units.parse_duration_us(values["period"])
    numerator, denominator = _fraction(values["duty_cycle"])
    rate = units.parse_bandwidth_bps(values["bandwidth"])
    if period <= 0 or rate <= 0:
        raise UsageError("--period and --bandwidth must be above 0.")
    duration = -(-period * numerator // denominator)
    return {"period_us": period, "phases": [{"offset_us": 0, "duration_us": duration, "rate_bps": rate}]}
