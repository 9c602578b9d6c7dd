"""How much memory a process has, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

from rm.errors import RmError


def memory_bytes(pid: str, count: str) -> int:
    """`count`: VmRSS, what is resident now, or VmHWM, the most that ever was; of a process, or of `self`.

    Raises:
        RmError: the process has ended.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{count}:"):
            return int(line.split()[1]) * 1024
    raise RmError(f"The kernel says no {count} of process {pid}: it has ended.")
