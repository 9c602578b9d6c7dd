"""Becoming root of an own user namespace, with the user's subordinate ids where there are any."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rm.lab import syscalls as sc


def subordinate(file: str, user: str, number: int) -> tuple[int, int] | None:
    """The first range of ids that /etc/subuid or /etc/subgid gives to a user: (first, count)."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split(":")
        if len(fields) == 3 and fields[0] in (user, str(number)) and int(fields[2]) > 1000:
            return int(fields[1]), int(fields[2])
    return None


def enter(mode: str) -> None:
    """Moves this process into a new user namespace. `mode`: `users` (many ids) or `user` (only its own)."""
    uid, gid = os.getuid(), os.getgid()
    if mode == "user":
        sc.unshare(sc.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        return
    import pwd

    user = pwd.getpwuid(uid).pw_name
    ranges = {
        "newuidmap": (uid, subordinate("/etc/subuid", user, uid)),
        "newgidmap": (gid, subordinate("/etc/subgid", user, uid)),
    }
    target = os.getpid()
    ready_r, ready_w = os.pipe()
    mapper = os.fork()
    if mapper == 0:  # outside, because the map of a namespace is written from its parent
        os.close(ready_w)
        os.read(ready_r, 1)
        for tool, (own, extra) in ranges.items():
            assert extra is not None  # `launch.py` chose this mode because both are there
            first, count = extra
            argv = [tool, str(target), "0", str(own), "1", "1", str(first), str(min(count, 65535))]
            done = subprocess.run(argv, check=False)
            if done.returncode:
                os._exit(1)
        os._exit(0)
    sc.unshare(sc.CLONE_NEWUSER)
    os.close(ready_w)
    os.close(ready_r)
    if os.waitpid(mapper, 0)[1] != 0:
        raise OSError("newuidmap or newgidmap refused the user's range of /etc/subuid or /etc/subgid")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def advice() -> str:
    """What may be done where the system refuses user namespaces: one sentence, or none if all looks open."""
    settings = (
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "1"),
        ("/proc/sys/user/max_user_namespaces", "0", "10000"),
    )
    for path, closed, opened in settings:
        try:
            found = Path(path).read_text().strip()
        except OSError:  # this kernel has no such setting
            continue
        if found == closed:
            name = path.removeprefix("/proc/sys/").replace("/", ".")
            return f"Run it as root, or let an administrator set `sysctl {name}={opened}` (it is {found})."
    return "Run it as root, or on a machine that lets users make user namespaces."
