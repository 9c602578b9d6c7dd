"""Options of a submission (rm.submission.options) to a job specification (JobSpec's fields as JSON).

Hosts, tasks, memory and GPUs are rm.submission.resources'. Cheap to import: no core types, and what reads an
option that few jobs have is loaded for those.
"""

from __future__ import annotations

from rm import units
from rm.errors import Refusal, UsageError, refusing
from rm.imported_later import re
from rm.submission.exported import exported
from rm.submission.remarks import Remarks
from rm.submission.resources import count, resources
from rm.submission.time_limits import time_limit, time_min

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Any

PRIORITIES = {"high": 100, "low": 0}
_PRIORITY_MAX = 1_000_000_000
NICE = 100
CONTAINER = ("container_image", "container_mounts", "container_workdir", "container_name")
# what an empty variable of a script leaves of these options would silently be less than was meant
NEVER_EMPTY = ("mem", "mem_per_cpu", "mem_per_gpu", "gres", "signal", "mail_type")
LAUNCHES = ("tasks", "batch", "auto")
# option -> the variable in which the job finds it; what the placement decides is
# rm.daemon.execution.environment's
TOLD = {
    "gpu_bind": "SLURM_GPU_BIND",
    "mem_per_gpu": "SLURM_MEM_PER_GPU",
    "cpus_per_gpu": "SLURM_CPUS_PER_GPU",
    "ntasks_per_gpu": "SLURM_NTASKS_PER_GPU",
    "gpus_per_socket": "SLURM_GPUS_PER_SOCKET",
    "gpus_per_node": "SLURM_GPUS_PER_NODE",
    "ntasks_per_core": "SLURM_NTASKS_PER_CORE",
    "ntasks_per_socket": "SLURM_NTASKS_PER_SOCKET",
    "threads_per_core": "SLURM_THREADS_PER_CORE",
    "overcommit": "SLURM_OVERCOMMIT",  # which lets steps have more tasks than processors
    "profile": "SLURM_PROFILE",
    "gpu_freq": "SLURM_GPU_FREQ",
    "export": "SLURM_EXPORT_ENV",  # which is what srun passes on to steps
}


def build(
    values: Mapping[str, Any],
    environment: Mapping[str, str],
    cwd: str,
    now: Callable[[], datetime],
    remarks: Remarks | None = None,
) -> dict[str, Any]:
    """The specification without its script; only what was asked for, defaults are the daemon's.

    Args:
        values: option key -> text, or True/False.
        environment: the submission's, for --export.
        now: the clock for --begin; aware or local.
        remarks: where complaints are gathered instead of raised; the answer is good if there are none.

    Raises:
        UsageError: what is wrong; none with `remarks`.
    """
    said = remarks if remarks is not None else Remarks()
    spec: dict[str, Any] = {"env": []}
    with said.gathering():
        spec["env"] = [*exported(values.get("export", "ALL"), environment), *told(values)]
    for key in NEVER_EMPTY:
        if values.get(key) == "":
            option = f"--{key.replace('_', '-')}"
            said.errors.append(
                UsageError(f"{option} has no value.", f"Write {option}=VALUE, or leave it out.")
            )
    for key in ("name", "output", "error", "input", "comment", "zone"):
        if values.get(key):
            spec[key] = values[key]
    if spec.get("input", "").lower() == "none":
        spec["input"] = ""
    for key, nothing in (("output", ""), ("error", "/dev/null")):  # "": kept where it ran, for `rmx logs`
        spec |= {key: nothing} if spec.get(key) == "none" else {}
    for key in ("hold", "requeue", "low_comm"):
        if key in values:
            spec[key] = bool(values[key])
    spec["chdir"] = _absolute(values.get("chdir") or cwd, cwd)
    if (image := values.get("container_image") or "").startswith("."):
        values = {**values, "container_image": _absolute(image, spec["chdir"])}
    if values.get("container_mount_home"):
        mounts = (values.get("container_mounts"), environment.get("HOME"))
        values = {**values, "container_mounts": ",".join(filter(None, mounts))}
    if values.get("chdir"):
        spec["chdir_required"] = True
    for read in _READERS:
        with said.gathering():
            spec |= read(values)
    with said.gathering():
        if "signal" in values:
            from rm.submission.signals import warning_signal

            spec |= warning_signal(values, said)
    with said.gathering():
        if "begin" in values:
            from rm.submission.begin import begin_us

            spec["begin_us"] = begin_us(values["begin"], now())
    with said.gathering():
        if "deadline" in values:
            from rm.submission.begin import deadline_us

            spec["deadline_us"] = deadline_us(values["deadline"], now())
    spec |= resources(values, said)
    if remarks is None:
        said.refuse()
    return spec


def told(values: Mapping[str, Any]) -> list[list[str]]:
    """What Slurm only repeats to the job, as variables of its environment."""
    said = {key: "1" if values[key] is True else str(values[key]) for key in TOLD if values.get(key)}
    if size := said.get("mem_per_gpu"):  # MiB, as Slurm 22.05 writes it
        said["mem_per_gpu"] = str(units.parse_memory_bytes(size) // units.MIB)
    return [[TOLD[key], value] for key, value in said.items()]


def _exclusive(values: Mapping[str, Any]) -> dict[str, Any]:
    """--exclusive[=user|mcs|topo]; without a value the hosts are the job's own, with "user" its user's."""
    if "exclusive" not in values:
        return {}
    if values["exclusive"] in (True, False, ""):
        return {"exclusive": values["exclusive"] is not False}
    if values["exclusive"] == "user":
        return {"exclusive_user": True}
    raise UsageError(
        f"--exclusive={values['exclusive']} is not supported.",
        "--exclusive alone shares the hosts with no other job, --exclusive=user with jobs of your own.",
    )


def _partition(values: Mapping[str, Any]) -> dict[str, Any]:
    text = values.get("partition")
    if text in (None, "", "(null)"):  # which `sinfo` shows where hosts have no partition
        return {}
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"--partition is '{text}', and one of its names is empty.", "Write NAME[,NAME...].")
    return {"partition": ",".join(dict.fromkeys(names))}


def _mail(values: Mapping[str, Any]) -> dict[str, Any]:
    """--mail-type and --mail-user. Without the former Slurm mails nothing and takes any word as the latter;
    here it is who hears of idle GPUs."""
    user = (values.get("mail_user") or "").strip()
    if not values.get("mail_type") and not user:
        return {}
    from rm import mail_events

    spec: dict[str, Any] = {}
    if values.get("mail_type"):
        try:
            spec["mail_events"] = mail_events.parse(values["mail_type"])
        except UsageError as error:
            raise UsageError(f"--mail-type: {error.what}", error.hint) from None
    if mail_events.is_address(user):
        spec["mail_user"] = user
    elif user and spec:
        raise UsageError(f"--mail-user is '{user[:80]}'.", "Write one address, or a user's name.")
    return spec


def _iterations(values: Mapping[str, Any]) -> dict[str, Any]:
    iterations = count(values, "iterations")
    return {"iterations": iterations} if iterations else {}


def _hosts(values: Mapping[str, Any]) -> dict[str, Any]:
    named = {"hosts_only": values.get("nodelist"), "hosts_excluded": values.get("exclude")}
    return {name: list(units.parse_hosts(text)) for name, text in named.items() if text}


def _features(values: Mapping[str, Any]) -> dict[str, Any]:
    """--constraint and --prefer."""
    found = {}
    for key in ("constraint", "prefer"):
        if text := (values.get(key) or "").strip():
            from rm import features

            try:
                (features.parse if key == "constraint" else features.uncounted)(text)
            except UsageError as error:
                raise UsageError(f"--{key}: {error.what}", error.hint, Refusal.UNKNOWN_FEATURE) from None
            found[key] = text
    return found


def _reservation(values: Mapping[str, Any]) -> dict[str, Any]:
    text = (values.get("reservation") or "").strip()
    if "," in text:
        raise UsageError(
            f"--reservation names several: {text[:80]}.", "Name one: a job runs in one reservation."
        )
    return {"reservation": text} if text else {}


def _account(values: Mapping[str, Any]) -> dict[str, Any]:
    text = (values.get("account") or "").strip()
    return {"account": text} if text else {}


def _qos(values: Mapping[str, Any]) -> dict[str, Any]:
    text = (values.get("qos") or "").strip()
    return {"qos": text} if text else {}


def _licenses(values: Mapping[str, Any]) -> dict[str, Any]:
    text = (values.get("licenses") or "").strip()
    if not text:
        return {}
    from rm import licenses

    try:
        licenses.parse(text)
    except UsageError as error:
        raise UsageError(f"--licenses: {error.what}", error.hint, Refusal.BAD_LICENSES) from None
    return {"licenses": text}


def _container(values: Mapping[str, Any]) -> dict[str, Any]:
    """--container-image and what belongs to it, as Pyxis has them."""
    given = {key: (values.get(key) or "").strip() for key in CONTAINER}
    if not any(given.values()):
        return {}
    from rm import containers

    if not given["container_image"]:
        name = next(key for key in CONTAINER if given[key]).replace("_", "-")
        raise UsageError(f"--{name} needs --container-image.", "Name the image as well.")
    for key, reads in (
        ("container_image", containers.image),
        ("container_mounts", containers.mounts),
        ("container_name", containers.name),
    ):
        try:
            reads(given[key])
        except UsageError as error:
            raise UsageError(f"--{key.replace('_', '-')}: {error.what}", error.hint) from None
    if given["container_workdir"] and not given["container_workdir"].startswith("/"):
        raise UsageError(
            f"--container-workdir is '{given['container_workdir'][:80]}'.",
            "Write an absolute path of the container.",
        )
    return {key: text for key, text in given.items() if text}


def _switches(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values.get("switches"):
        return {}
    from rm.submission.switches import switches

    return switches(values["switches"])


def _launch(values: Mapping[str, Any]) -> dict[str, Any]:
    if "launch" not in values:
        return {}
    if values["launch"] not in LAUNCHES:
        raise UsageError(f"--launch is '{values['launch']}'.", "Write tasks, batch or auto.")
    return {"launch": values["launch"]}


def _open_mode(values: Mapping[str, Any]) -> dict[str, Any]:
    """As Slurm, which looks at the first letter only."""
    if "open_mode" not in values:
        return {}
    text = values["open_mode"]
    for mode in ("append", "truncate"):
        if text[:1].lower() == mode[0] and mode.startswith(text.lower()):
            return {"open_mode": mode}
    raise UsageError(f"--open-mode is '{text}'.", "Write append or truncate.")


def _expected(values: Mapping[str, Any]) -> dict[str, Any]:
    """Microseconds, written like a time limit; UNLIMITED says nothing."""
    if "expect" not in values:
        return {}
    try:
        expected = units.parse_time_limit_us(values["expect"])
    except UsageError as error:
        raise UsageError(
            f"--expect is '{values['expect']}', which is not a valid duration.", error.hint
        ) from None
    return {} if expected is None else {"expected_us": expected}


def _fence(values: Mapping[str, Any]) -> dict[str, Any]:
    """Microseconds; 0 is none, also where rm.toml has one."""
    if "fence" not in values:
        return {}
    try:
        return {"fence_us": units.parse_lease_us(values["fence"])}
    except UsageError as error:
        raise UsageError(f"--fence: {error.what}", "Write 60s or 5min, or 0 for none.") from None


def _priority(values: Mapping[str, Any]) -> dict[str, Any]:
    if "priority" not in values:
        return {}
    text = values["priority"]
    named = PRIORITIES.get(text.lower())
    if named is not None:
        return {"priority": named}
    if not re.match(r"-?\d{1,10}\Z", text) or abs(int(text)) > _PRIORITY_MAX:
        raise UsageError(f"--priority is '{text}'.", "Write high, low or an integer.")
    return {"priority": int(text)}


def _nice(values: Mapping[str, Any]) -> dict[str, Any]:
    """--nice[=N]: without a number 100, as in Slurm."""
    if "nice" not in values:
        return {}
    text = values["nice"]
    if text in (True, ""):
        return {"nice": NICE}
    if not re.match(r"\d{1,10}\Z", text) or int(text) > _PRIORITY_MAX:
        raise UsageError(
            f"--nice is '{text}'.",
            f"Write a whole number from 0 to {_PRIORITY_MAX}; --priority raises a job.",
        )
    return {"nice": int(text)}


def _dependency(values: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if values.get("dependency"):
        from rm import dependencies

        with refusing(Refusal.BAD_DEPENDENCY):
            dependencies.parse(values["dependency"])
        spec["dependency"] = values["dependency"].strip()
    if ends := values.get("kill_on_invalid_dep"):
        if ends.lower() not in ("yes", "no", "y", "n"):
            raise UsageError(f"--kill-on-invalid-dep is '{ends}'.", "Write yes or no.")
        spec["kill_on_invalid_dep"] = ends.lower().startswith("y")
    return spec


def _array(values: Mapping[str, Any]) -> dict[str, Any]:
    """As the user wrote it: the core reads it again."""
    if "array" not in values:
        return {}
    from rm import arrays

    with refusing(Refusal.BAD_ARRAY):
        arrays.parse(values["array"])
    return {"array": values["array"].strip()}


def _absolute(path: str, cwd: str) -> str:
    import os.path

    return os.path.normpath(os.path.join(cwd, path))


def _fraction(text: str) -> tuple[int, int]:
    """`0.4` and `40%` exactly, as numerator and denominator; above 0, at most 1."""
    match = re.match(r"(\d{0,99})(?:\.(\d{1,99}))?(%?)\Z", text.strip())
    if match and (match[1] or match[2]):
        digits = match[2] or ""
        numerator, denominator = int((match[1] or "0") + digits), 10 ** len(digits) * (100 if match[3] else 1)
        if 0 < numerator <= denominator:
            return numerator, denominator
    raise UsageError(f"--duty-cycle is '{text}'.", "Write a part of the period: 0.4 or 40%.")


def _traffic(values: Mapping[str, Any]) -> dict[str, Any]:
    profile = [key for key in ("period", "duty_cycle", "bandwidth") if key in values]
    given = [
        *(["--traffic"] if "traffic" in values else []),
        *(["--low-comm"] if values.get("low_comm") else []),
    ]
    if profile:
        given.append("--" + profile[0].replace("_", "-"))
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(given)} are mutually exclusive.", "Keep one description of the traffic."
        )
    if "traffic" in values:
        from rm.submission.traffic_file import read

        return {"traffic": read(values["traffic"])}
    if not profile:
        return {}
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
    phase = {"offset_us": 0, "duration_us": duration, "rate_bps": rate}
    return {"traffic": {"period_us": period, "phases": [phase]}}


_READERS = (
    _exclusive, _partition, time_limit, time_min, _launch, _open_mode, _expected, _iterations, _fence,
    _priority, _nice, _hosts, _mail, _features, _licenses, _account, _qos, _reservation, _container, _array,
    _switches, _dependency, _traffic,
)  # fmt: skip
# those of one option alone, for a change of a job that was submitted
READERS = {
    "partition": _partition, "time": time_limit, "time_min": time_min, "priority": _priority,
    "nice": _nice, "mail_type": _mail, "nodelist": _hosts,
    "exclude": _hosts, "constraint": _features, "prefer": _features, "licenses": _licenses,
    "reservation": _reservation, "dependency": _dependency, "account": _account, "qos": _qos,
}  # fmt: skip
