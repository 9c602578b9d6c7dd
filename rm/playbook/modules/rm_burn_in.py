"""`rm_burn_in`: load a host's processors, memory, disk and GPUs, and fail when anything comes out wrong."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "tests": Arg("list", choices=("cpu", "memory", "disk", "gpu"), default=["cpu", "memory", "disk", "gpu"]),
    "seconds": Arg("int", default=60),  # each test; memory and disk finish at least one pass
    "memory_percent": Arg("int", default=80),  # of what is free
    "memory_mb": Arg("int"),
    "disk_path": Arg(default="/var/tmp"),
    "disk_mb": Arg("int", default=4096),
    "min_disk_write_mbps": Arg("int", default=0),
    "min_disk_read_mbps": Arg("int", default=0),
    "expect_gpus": Arg("int"),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not 1 <= args["memory_percent"] <= 95:
        raise BadArgument("'memory_percent' must be from 1 to 95")
    if args["seconds"] < 1 or args["disk_mb"] < 1:
        raise BadArgument("'seconds' and 'disk_mb' must be positive")
    return args
