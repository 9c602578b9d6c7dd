"""Stands in for `rm_drain`, which Ansible does not have: takes all arguments, does nothing."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    _VALID_ARGS = frozenset()

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        return {**super().run(tmp, task_vars), "changed": False}
