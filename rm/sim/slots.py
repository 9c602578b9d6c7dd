"""The jobs' own part in keeping their time slots: the very rule that runs on the hosts.

`agents/rm_iteration.py` is a program of the hosts, not a module of rm; its pure function is loaded
from the file that is shipped to them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rm.adapters.playbook.shipped import shipped_directory

Wait = Callable[[int, Mapping[str, Any] | None, int, int | None], int]


@cache
def wait_rule() -> Wait:
    """(now_us, schedule, last pause obeyed, previous origin_us) -> microseconds to wait."""
    path = shipped_directory("agents") / "rm_iteration.py"
    spec = importlib.util.spec_from_file_location("rm_iteration_of_hosts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rule: Wait = module.wait_us
    return rule
