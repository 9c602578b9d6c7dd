"""What the lab needs of this machine, and which Debian package brings it."""

from __future__ import annotations

import os
import pwd
import shutil

from rm.errors import UsageError
from rm.lab import id_map
from rm.lab.fabric import SEARCH

# program → Debian package
PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
ONE_ID = (
    "this user has no subordinate ids (package uidmap, lines in /etc/subuid and /etc/subgid), so the hosts"
    " know one user only: what SSH runs there can write files but not shape traffic or change users;"
    " jobs run there with RM_JOBS__ALLOW_ROOT=true and RM_JOBS__RUN_ROOT_AS= in the daemon's environment"
)


def missing_packages() -> dict[str, str]:
    """The programs that are not there: program → package."""
    return {
        program: package for program, package in PROGRAMS.items() if not shutil.which(program, path=SEARCH)
    }


def check() -> None:
    """Raises with the exact command that installs what is missing."""
    missing = missing_packages()
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise UsageError(
            f"The lab needs {', '.join(sorted(missing))}, not installed on this machine.",
            f"Install with: {'' if os.geteuid() == 0 else 'sudo '}apt-get install {packages}",
        )
    try:
        pwd.getpwnam("sshd")
    except KeyError:
        raise UsageError(
            "The user sshd, which OpenSSH's server needs, does not exist on this machine.",
            "Install or repair the package openssh-server.",
        ) from None


def mode() -> str:
    """How a lab can be made here: `root`; `users` (subordinate ids); `user` (the own id alone)."""
    uid = os.geteuid()
    if uid == 0:
        return "root"
    name = pwd.getpwuid(uid).pw_name
    ranges = all(id_map.subordinate(file, name, uid) for file in ("/etc/subuid", "/etc/subgid"))
    tools = all(shutil.which(tool, path=SEARCH) for tool in ("newuidmap", "newgidmap"))
    return "users" if ranges and tools else "user"
