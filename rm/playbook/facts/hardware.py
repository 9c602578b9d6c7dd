"""Facts of processors and memory, from the CPU count and /proc/meminfo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", str(raw.get("meminfo", "")), re.MULTILINE))
    megabytes = {name: int(memory.get(name, 0)) // 1024 for name in ("MemTotal", "MemFree", "SwapTotal")}
    return {
        "processor_vcpus": raw["cpus"],
        "processor_nproc": raw["cpus_usable"],
        "memtotal_mb": megabytes["MemTotal"],
        "memfree_mb": megabytes["MemFree"],
        "swaptotal_mb": megabytes["SwapTotal"],
    }
