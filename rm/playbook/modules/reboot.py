"""`reboot`: restart the host and wait until it can run steps again."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "msg": Arg(default="Reboot initiated by Ansible"),
    "pre_reboot_delay": Arg("int", default=0),
    "post_reboot_delay": Arg("int", default=0),
    "reboot_timeout": Arg("int", default=600),
    "connect_timeout": Arg("int"),
    "test_command": Arg(default="whoami"),
    "search_paths": Arg("list"),
    "boot_time_command": Arg(),
    "reboot_command": Arg(),
}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
