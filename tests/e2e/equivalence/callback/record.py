"""An ansible-core callback: writes what every task came to on every host as one JSON object to $RECORD."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: record
    type: stdout
    short_description: what every task came to, as JSON
    description: Written to the file that the environment variable RECORD names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "record"

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[dict[str, Any]] = []

    def _record(self, result: Any, status: str, ignored: bool = False) -> None:
        task = result.task
        if status == "ok" and result.result.get("changed"):
            status = "changed"
        self.tasks.append(
            {
                "host": result.host.get_name(),
                "path": task.get_path() or "",
                "name": task.get_name(),
                "module": task.resolved_action or task.action,
                "status": status,
                "ignored": bool(ignored),
                "result": result.result,
            }
        )

    def v2_runner_on_ok(self, result: Any) -> None:
        self._record(result, "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._record(result, "failed", ignored=ignore_errors)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._record(result, "skipped")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._record(result, "unreachable", ignored=bool(result.task_fields.get("ignore_unreachable")))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        recap = {host: stats.summarize(host) for host in stats.processed}
        with open(os.environ["RECORD"], "w", encoding="utf-8") as file:
            json.dump({"tasks": self.tasks, "recap": recap}, file, default=str)
