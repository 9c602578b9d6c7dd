"""New values of a submitted job's options (`rmx set`, `scontrol update`) to fields of a JobUpdate as JSON.

Each is read as `rmx submit` reads it. Cheap to import: no core types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rm import units
from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.submission import specification as spec
from rm.submission.begin import begin_us
from rm.submission.gpu_options import gpu_options
from rm.submission.resources import count

_NODES = r"(\d{1,99})(?:-(\d{1,99}))?\Z"
# what an empty value makes of a field: as if the option had not been given
_EMPTY: dict[str, dict[str, Any]] = {
    "time": {"time_limit_us": None},
    "begin": {"begin_us": None},
    "deadline": {"deadline_us": None},
    "time-min": {"time_min_us": None},
    "comment": {"comment": ""},
    "mail-type": {"mail_events": ""},
    "mail-user": {"mail_user": ""},
    "partition": {"partition": ""},
    "nodelist": {"hosts_only": []},
    "exclude": {"hosts_excluded": []},
    "constraint": {"constraint": ""},
    "prefer": {"prefer": ""},
    "licenses": {"licenses": ""},
    "reservation": {"reservation": ""},
    "account": {"account": ""},
    "qos": {"qos": ""},
    "dependency": {"dependency": ""},
    "nodes": {"hosts_min": 0, "hosts_max": 0},
    "ntasks-per-node": {"tasks_per_host": 0},
    "mem": {"mem_bytes_per_host": 0, "mem_bytes_per_task": 0, "mem_all": False},
    "gpus-per-node": {"gpus_per_host": 0, "gpus_per_task": 0, "gpu_type": ""},
    "gpus-per-task": {"gpus_per_host": 0, "gpus_per_task": 0, "gpu_type": ""},
}
_WORDS = {"yes": True, "1": True, "no": False, "0": False}
_OTHERWISE = {"name": "job-name", "hosts": "nodelist"}
# in the order in which a user looks for them
NAMES = (
    "job-name", "comment", "mail-type", "mail-user", "partition", "priority", "nice", "time",
    "time-min", "begin", "deadline",
    "requeue", "dependency", "nodelist", "exclude", "constraint", "prefer", "licenses", "reservation",
    "account", "qos", "exclusive", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem",
    "gpus-per-node", "gpus-per-task",
)  # fmt: skip


def fields_of(values: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """The JobUpdate's fields.

    Args:
        values: long option of `rmx submit` -> its new value; "" takes an option back.
        now: the clock for `begin`; aware or local.

    Raises:
        UsageError: a name is none of NAMES, or a value is not valid.
    """
    found: dict[str, Any] = {}
    for given, text in values.items():
        name = _OTHERWISE.get(given, given)
        if name not in NAMES:
            known = (*NAMES, *_OTHERWISE)
            raise UsageError(
                f"'{given[:80]}' is nothing that can be changed of a job.",
                did_you_mean(given, known) or f"Choose from {', '.join(NAMES)}.",
            )
        text = text.strip()
        if not text and name not in _EMPTY:
            raise UsageError(f"{given} has no value.", f"Write {given}=VALUE.")
        found |= _field(name, text, now) if text else _EMPTY[name]
    return found


def _field(name: str, text: str, now: datetime) -> dict[str, Any]:
    key = name.replace("-", "_")
    given = {key: text}
    if name == "job-name":
        return {"name": text}
    if name in ("mail-type", "mail-user"):
        mail = spec.READERS["mail_type"]({"mail_type": "NONE", **given})
        return {"mail_user": mail["mail_user"]} if name == "mail-user" else mail
    if name == "comment":
        return {"comment": text}
    if name in ("begin", "deadline"):
        return {f"{name}_us": begin_us(text, now, f"--{name}")}
    if name == "exclusive" and text.lower() == "user":
        return {"exclusive": False, "exclusive_user": True}
    if name in ("requeue", "exclusive"):
        if text.lower() not in _WORDS:
            other = ", or exclusive=user" if name == "exclusive" else ""
            raise UsageError(f"{name} is '{text}'.", f"Write {name}=yes or {name}=no{other}.")
        also = {"exclusive_user": False} if name == "exclusive" else {}
        return {key: _WORDS[text.lower()], **also}
    if name == "nodes":
        match = re.match(_NODES, text)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if low < 1 or high < low:
            raise UsageError(f"nodes is '{text}'.", "Write a number of hosts or a range such as 2-4.")
        return {"hosts_min": low, "hosts_max": high}
    if name in ("ntasks", "ntasks-per-node", "cpus-per-task"):
        return {"tasks_per_host" if name == "ntasks-per-node" else key: count(given, key)}
    if name == "mem":
        size = units.parse_memory_bytes(text)
        return {"mem_bytes_per_host": size, "mem_bytes_per_task": 0, "mem_all": size == 0}
    if name in ("gpus-per-node", "gpus-per-task"):
        gpus = gpu_options(given)
        return {"gpus_per_host": gpus.host or 0, "gpus_per_task": gpus.task or 0, "gpu_type": gpus.kind}
    return spec.READERS[key](given)
