"""Facts of mounted file systems and their sizes, in bytes and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    uuids = dict(raw.get("uuids", {}))
    found = []
    for one in raw.get("mounts", ()):
        described: dict[str, Any] = {
            "device": one["device"],
            "mount": one["mount"],
            "fstype": one["fstype"],
            "options": one["options"],
            "uuid": uuids.get(one["device"], "N/A"),
            "dump": 0,
            "passno": 0,
        }
        if "statvfs" in one:
            block, fragment, blocks, _, available, inodes, inodes_free = one["statvfs"]
            described |= {
                "size_total": fragment * blocks,
                "size_available": fragment * available,
                "block_size": block,
                "block_total": blocks,
                "block_available": available,
                "block_used": blocks - available,
                "inode_total": inodes,
                "inode_available": inodes_free,
                "inode_used": inodes - inodes_free,
            }
        found.append(described)
    return {"mounts": found}
