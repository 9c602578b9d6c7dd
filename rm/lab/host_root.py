"""A host's own file systems: an overlay over each directory of this machine, and its own kernel views.

Runs in the host's mount namespace, as its PID 1. Afterwards nothing that the host writes reaches this
machine: its disk is a file system in memory of limited size, which outlives a crash of the host but not
the lab. `/usr`, `/etc`, `/var` … show this machine's content below the host's own changes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rm.lab import syscalls as sc

# own to each host; everything else at the top of the file system becomes an overlay
OWN = {"proc", "sys", "dev", "run", "tmp", "root"}
SKIPPED = {"lost+found", "boot", "media"}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun")
# file systems that only describe the machine, and container layers, are no part of what a host sees
NO_CONTENT = {"proc", "sysfs", "overlay", "nsfs", "cgroup", "cgroup2", "devpts", "mqueue", "autofs"}
MIRRORED_DEPTH = 2
# what an rm on this machine has there, by directory at the top: a host begins without
OF_RM = {"var": "lib/rm", "opt": "rm", "etc": "rm"}


@dataclass(frozen=True)
class RootPlan:
    """What `build` needs: `base` holds the host's `disk` and `root`; `etc` replaces /etc as lower layer."""

    base: str
    hostname: str
    hosts: str
    boot_id: str
    disk_mb: int
    share: Sequence[str]
    mapped: bool
    etc: str
    cgroups: bool  # has it a group of its own?
    python: str


def build(plan: RootPlan) -> None:
    """Makes the host's root and moves into it."""
    root, disk = f"{plan.base}/root", f"{plan.base}/disk"
    size = f"size={plan.disk_mb}m"
    sc.mount("rm-root", root, "tmpfs", 0, "mode=0755,size=4m")
    for entry in sorted(os.scandir("/"), key=lambda e: e.name):
        target = f"{root}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir() and entry.name not in SKIPPED | OWN:
            os.mkdir(target)
            lower = plan.etc if entry.name == "etc" and plan.etc else entry.path
            overlay(lower, f"{disk}/{entry.name}", target, plan.mapped, without=OF_RM.get(entry.name, ""))
    for name in OWN:
        os.mkdir(f"{root}/{name}")
    _submounts(root, plan.base)
    _devices(f"{root}/dev", size, plan.mapped)
    sc.mount("proc", f"{root}/proc", "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    sc.mount("sysfs", f"{root}/sys", "sysfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC | sc.MS_RDONLY)
    if plan.cgroups:
        sc.mount("cgroup2", f"{root}/sys/fs/cgroup", "cgroup2", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    sc.mount("tmpfs", f"{root}/run", "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, f"mode=0755,{size}")
    _whole_proc(f"{root}/run/.whole")
    sc.mount("tmpfs", f"{root}/tmp", "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, f"mode=1777,{size}")
    os.makedirs(f"{disk}/root", mode=0o700, exist_ok=True)
    sc.mount(f"{disk}/root", f"{root}/root", flags=sc.MS_BIND)
    for path in plan.share:
        _bind(path, f"{root}{path}")
    _interpreter(root, plan.python)
    _identity(root, plan)
    os.mkdir(f"{root}/run/.machine")
    sc.pivot_root(root, f"{root}/run/.machine")
    os.chdir("/")
    sc.unmount("/run/.machine")
    os.rmdir("/run/.machine")
    _protect_sysctl()


def overlay(lower: str, layer: str, target: str, mapped: bool, without: str = "") -> None:
    """Mounts at `target` what is in `lower`, but for the directory `without` in it; what is written goes to
    `layer`. `mapped`: in a user namespace."""
    upper, work = f"{layer}/upper", f"{layer}/work"
    if not os.path.isdir(upper):
        os.makedirs(work)
        os.mkdir(upper)
        if mapped and not lower.startswith(layer.rsplit("/", 3)[0]):
            _mirror(lower, upper, MIRRORED_DEPTH)
        found = os.stat(lower)
        os.chmod(upper, stat.S_IMODE(found.st_mode))
        if without and os.path.isdir(f"{lower}/{without}"):
            _hide(lower, upper, without)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    try:
        sc.mount("rm-disk", target, "overlay", 0, options + (",userxattr" if mapped else ""))
    except OSError:
        # a file system that cannot lie below an overlay, or mounts inside it that may not be taken apart
        sc.mount(lower, target, flags=sc.MS_BIND | sc.MS_REC)
        _read_only(target)


def _hide(lower: str, upper: str, path: str) -> None:
    """Puts overlayfs' whiteout over a directory: a character device without numbers."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(f"{upper}/{above}"):
        os.mkdir(f"{upper}/{above}")
        found = os.stat(f"{lower}/{above}")
        os.chown(f"{upper}/{above}", found.st_uid, found.st_gid)
        os.chmod(f"{upper}/{above}", stat.S_IMODE(found.st_mode))
    shutil.rmtree(f"{upper}/{path}", ignore_errors=True)  # mirrored
    os.mknod(f"{upper}/{path}", stat.S_IFCHR, os.makedev(0, 0))


def _mirror(lower: str, upper: str, depth: int) -> None:
    """Makes directories beforehand: those of users who do not exist here could not be copied up."""
    try:
        entries = list(os.scandir(lower))
    except PermissionError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            copy = f"{upper}/{entry.name}"
            os.mkdir(copy)
            os.chmod(copy, stat.S_IMODE(entry.stat().st_mode))
            if depth > 1:
                _mirror(entry.path, copy, depth - 1)


def _submounts(root: str, base: str) -> None:
    """An overlay does not show what is mounted inside its lower layer: bind that, read-only."""
    tops = {"usr", "opt", "home", "srv"}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        where, kind = fields[1].encode().decode("unicode_escape"), fields[2]
        parts = where.split("/")
        of_lab = f"{where}/".startswith(f"{os.path.dirname(base)}/")
        if len(parts) > 2 and parts[1] in tops and kind not in NO_CONTENT and not of_lab:
            target = f"{root}{where}"
            if os.path.isdir(where) and os.path.isdir(target):
                sc.mount(where, target, flags=sc.MS_BIND)
                _read_only(target)


def _read_only(target: str) -> None:
    # flags that a mount already has may not be dropped in a user namespace
    kept = os.statvfs(target).f_flag & (sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    sc.mount("none", target, flags=sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | kept)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    sc.mount(source, target, flags=sc.MS_BIND | sc.MS_REC)


def _devices(dev: str, size: str, mapped: bool) -> None:
    sc.mount("tmpfs", dev, "tmpfs", sc.MS_NOSUID, "mode=0755,size=1m")
    gpus = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
    for name in (*DEVICES, *gpus):
        if os.path.exists(f"/dev/{name}"):
            _bind(f"/dev/{name}", f"{dev}/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    os.mkdir(f"{dev}/shm")
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    group = "" if mapped else ",gid=5"
    sc.mount(
        "devpts",
        f"{dev}/pts",
        "devpts",
        sc.MS_NOSUID | sc.MS_NOEXEC,
        f"newinstance,ptmxmode=0666,mode=0620{group}",
    )
    sc.mount("tmpfs", f"{dev}/shm", "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, f"mode=1777,{size}")


def _whole_proc(aside: str) -> None:
    """The kernel lets a user's container have a /proc only where one lies that nothing covers in part."""
    os.mkdir(aside, 0o700)
    os.mkdir(f"{aside}/proc")
    sc.mount("proc", f"{aside}/proc", "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)


def _interpreter(root: str, python: str) -> None:
    """A `python3` on sshd's path: the system's own, or else the interpreter that runs rm."""
    if any(os.access(f"{path}/python3", os.X_OK) for path in ("/usr/bin", "/usr/local/bin")):
        return
    home = str(Path(python).resolve().parents[1])
    if not os.path.exists(f"{root}{home}"):
        os.makedirs(f"{root}{home}")
        sc.mount(home, f"{root}{home}", flags=sc.MS_BIND | sc.MS_REC)
        _read_only(f"{root}{home}")
        if home.startswith("/root/"):
            os.chmod(f"{root}/root", 0o711)
    for link in (f"{root}/usr/local/bin/python3", f"{root}/usr/bin/python3"):
        if not os.path.lexists(link):
            os.symlink(str(Path(python).resolve()), link)


def _identity(root: str, plan: RootPlan) -> None:
    etc = Path(root, "etc")
    for name, text in (("hostname", f"{plan.hostname}\n"), ("hosts", plan.hosts)):
        _own_file(etc / name, text)
    Path(root, "run/.boot_id").write_text(plan.boot_id + "\n")
    sc.mount(f"{root}/run/.boot_id", f"{root}/proc/sys/kernel/random/boot_id", flags=sc.MS_BIND)
    Path(root, "run/sshd").mkdir(mode=0o755)
    Path(root, "run/lock").mkdir(mode=0o1777)


def _own_file(path: Path, text: str) -> None:
    """Replaces a file instead of writing into it: its owner may not exist here, and it may be a link."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def _protect_sysctl() -> None:
    """Kernel settings are this machine's, not the host's; those of its network are its own."""
    sc.mount("/proc/sys/net", "/proc/sys/net", flags=sc.MS_BIND)
    for path in ("/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"):
        sc.mount(path, path, flags=sc.MS_BIND | sc.MS_REC)
        _read_only(path)
    if os.access("/proc/sysrq-trigger", os.W_OK):
        sc.mount("/dev/null", "/proc/sysrq-trigger", flags=sc.MS_BIND)
