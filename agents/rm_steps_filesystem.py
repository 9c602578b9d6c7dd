"""`filesystem`: by blkid, mkfs and wipefs."""

import os
import re

from rm_steps_base import StepFailed, asks, must, state_diff, tool

MAKE = {
    "lvm": ("pvcreate", "-f", "-y"),
    "swap": ("mkswap", "-f"),
    "ext2": ("mkfs.ext2", "-F"),
    "ext3": ("mkfs.ext3", "-F"),
    "ext4": ("mkfs.ext4", "-F"),
    "xfs": ("mkfs.xfs", "-f"),
    "btrfs": ("mkfs.btrfs", "-f"),
    "bcachefs": ("mkfs.bcachefs", "--force"),
    "f2fs": ("mkfs.f2fs", "-f"),
    "ocfs2": ("mkfs.ocfs2", "-Fx"),
    "reiserfs": ("mkfs.reiserfs", "-q"),
    "vfat": ("mkfs.vfat", "-I"),
}
NAMES = {"lvm": "LVM2_member"}  # as blkid says it


def _kind(device):
    return asks([tool("blkid"), "-c", os.devnull, "-o", "value", "-s", "TYPE", device])[1].strip()


def do_filesystem(run, args):
    device, kind = args["dev"], args["fstype"]
    if not os.path.exists(device):
        if args["state"] == "present":
            raise StepFailed("Device %s not found." % device)
        return {"changed": False, "msg": "Device %s not found." % device}
    planned = run.planned["states"].get("filesystem " + device)
    now = _kind(device) if planned is None else planned
    wanted = NAMES.get(kind, kind) if args["state"] == "present" else ""
    if args["state"] == "absent":
        if not now:
            return {"changed": False}
        if not run.check:
            must([tool("wipefs"), "--all", device])
    elif now == wanted and not args["force"]:
        return _grown(run, device, kind) if args["resizefs"] else {"changed": False}
    elif now and not args["force"]:
        raise StepFailed("'%s' is already used as %s, use force=true to overwrite" % (device, now))
    elif not run.check:
        program, *flags = MAKE[kind]
        must([tool(program), *flags, *args["opts"], device])
    if run.check:
        run.planned["states"]["filesystem " + device] = wanted
    diff = state_diff(run, device, ["%s -> %s" % (now or "nothing", wanted or "nothing")])
    return {"changed": True, "diff": diff}


def _size(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _grown(run, device, kind):
    """Make the file system as large as its device."""
    space = _device_bytes(device)
    if kind in ("ext2", "ext3", "ext4"):
        out = must([tool("tune2fs"), "-l", device])
        unit = _size(r"^Block size:\s+(\d+)", out)
        used, argv = _size(r"^Block count:\s+(\d+)", out) * unit, [tool("resize2fs"), device]
    elif kind == "lvm":
        out = must([tool("pvs"), "--noheadings", "-o", "pv_size", "--units", "b", "--nosuffix", device])
        unit, used, argv = 4 << 20, int(out.strip()), [tool("pvresize"), device]
    else:
        where = must([tool("findmnt"), "-n", "-o", "TARGET", "--source", device]).strip().splitlines()
        if not where:
            raise StepFailed("%s is not mounted; %s grows only while it is." % (device, kind))
        if kind == "xfs":
            out = must([tool("xfs_info"), where[0]])
            match = re.search(r"^data\s+=.*bsize=(\d+)\s+blocks=(\d+)", out, re.MULTILINE)
            unit = int(match.group(1)) if match else 4096
            used, argv = (unit * int(match.group(2)) if match else 0), [tool("xfs_growfs"), where[0]]
        else:
            out = must([tool("btrfs"), "filesystem", "show", "--raw", device])
            unit, used = 4096, _size(r"size (\d+) used \d+ path %s" % re.escape(device), out)
            argv = [tool("btrfs"), "filesystem", "resize", "max", where[0]]
    if space - used < unit or not run.is_new_state("filesystem size " + device, space):
        return {"changed": False}
    out = "" if run.check else must(argv)
    diff = state_diff(run, device, ["%d -> %d bytes" % (used, space)])
    return {"changed": True, "msg": out, "diff": diff}


def _device_bytes(device):
    if os.path.isfile(device):
        return os.path.getsize(device)
    return int(must([tool("blockdev"), "--getsize64", device]).strip())
