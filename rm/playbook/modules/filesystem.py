"""`filesystem`: a device has a file system of a kind, or none."""

from __future__ import annotations

import shlex
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

KINDS = (
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "lvm",
    "ocfs2",
    "reiserfs",
    "swap",
    "vfat",
    "xfs",
)
ARGS = {
    "dev": Arg(required=True, aliases=("device",)),
    "fstype": Arg(choices=KINDS, aliases=("type",)),
    "state": Arg(choices=("present", "absent"), default="present"),
    "opts": Arg(),
    "force": Arg("bool", default=False),
    "resizefs": Arg("bool", default=False),
    "uuid": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and args["fstype"] is None:
        raise BadArgument("state 'present' needs 'fstype'")
    if args["uuid"] is not None:
        raise BadArgument("'uuid' is not supported: give it to mkfs by 'opts'")
    if args["resizefs"] and args["fstype"] not in ("ext2", "ext3", "ext4", "xfs", "btrfs", "lvm"):
        raise BadArgument(f"a file system of the kind '{args['fstype']}' cannot be resized")
    return {**args, "opts": shlex.split(args["opts"] or "")}
