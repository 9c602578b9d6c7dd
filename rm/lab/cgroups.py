"""The control groups of a lab: one for the lab, one in it for each host, where the machine allows it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rm.errors import Unreachable


def mount_point() -> Path | None:
    """Where cgroup v2 is mounted: alone (`/sys/fs/cgroup`), or beside v1 (the hybrid layout)."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and os.access(fields[1], os.W_OK):
            return Path(fields[1])
    return None


def create(lab: Path, host: str) -> None:
    """Makes a host's group, with a leaf for its processes, and hands down the controllers that came down."""
    lab.mkdir(exist_ok=True)
    offered = set((lab / "cgroup.controllers").read_text().split())
    enabled = set((lab / "cgroup.subtree_control").read_text().split())
    for controller in sorted((offered & {"cpu", "memory", "pids"}) - enabled):
        (lab / "cgroup.subtree_control").write_text(f"+{controller}")
    # processes live in a leaf, or the host's own root group could not hand controllers down
    (lab / host / "init").mkdir(parents=True, exist_ok=True)


def join(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


def freeze(group: Path, frozen: bool, patience_s: float = 5.0) -> None:
    """Freezes or thaws every process of the group, and returns when it has happened."""
    (group / "cgroup.freeze").write_text("1" if frozen else "0")
    end = time.monotonic() + patience_s
    while f"frozen {int(frozen)}" not in (group / "cgroup.events").read_text():
        if time.monotonic() > end:
            raise Unreachable(
                f"The processes of {group.name} could not be frozen or thawed in {patience_s:g} s."
            )
        time.sleep(0.001)


def remove(group: Path, patience_s: float = 5.0) -> None:
    """Removes a group and all below it; its processes must be gone or going."""
    if not group.is_dir():
        return
    end = time.monotonic() + patience_s
    for path, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                os.rmdir(path)
                break
            except FileNotFoundError:
                break
            except OSError as error:  # busy while the last process is still going
                if time.monotonic() > end:
                    raise Unreachable(
                        f"The control group {path} could not be removed: {error.strerror}."
                    ) from error
                time.sleep(0.002)
