"""Which words a task may hold; each lookup makes one that loops."""

from __future__ import annotations

from rm.playbook.model.keywords import COMMON_KEYS
from rm.playbook.template.filters import LOOKUPS
from rm.playbook.template.jinja import Own

# `now` is no lookup of Ansible's
LOOP_KEYS = ("loop", *(f"with_{name}" for name in LOOKUPS if name != "now"))
TASK_KEYS = (
    *COMMON_KEYS, *LOOP_KEYS, "register", "loop_control", "notify", "listen", "changed_when", "failed_when",
    "args", "until", "retries", "delay", "action", "local_action", "async", "poll",
)  # fmt: skip


def is_loop(key: str, own: Own) -> bool:
    """`loop`, or `with_…` of a lookup, those of collections (of the `own` plug-ins) by their full names."""
    name = key.removeprefix("with_")
    return key in LOOP_KEYS or (name != key and "." in name and ("lookup", name) in own())
