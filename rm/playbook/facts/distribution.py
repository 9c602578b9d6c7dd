"""Facts from /etc/os-release: distribution, distribution_version, os_family, …"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

NAMES = {
    "debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RedHat", "centos": "CentOS", "rocky": "Rocky",
    "almalinux": "AlmaLinux", "fedora": "Fedora", "sles": "SLES", "opensuse-leap": "openSUSE Leap",
    "arch": "Archlinux", "alpine": "Alpine", "ol": "OracleLinux", "amzn": "Amazon",
}  # fmt: skip
FAMILIES = {
    "debian": "Debian", "ubuntu": "Debian", "rhel": "RedHat", "fedora": "RedHat", "centos": "RedHat",
    "suse": "Suse", "sles": "Suse", "arch": "Archlinux", "alpine": "Alpine",
}  # fmt: skip
MANAGERS = {"Debian": "apt", "RedHat": "dnf", "Suse": "zypper", "Archlinux": "pacman", "Alpine": "apk"}


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    fields = _fields(str(raw.get("os_release", "")))
    identity = fields.get("ID", "")
    version = fields.get("VERSION_ID", "")
    exact = str(raw.get("debian_version", "")).strip()
    if identity == "debian" and re.fullmatch(r"\d+\.\d+", exact):
        version = exact  # os-release has only the first number
    relatives = [identity, *fields.get("ID_LIKE", "").split()]
    family = next((FAMILIES[i] for i in relatives if i in FAMILIES), NAMES.get(identity, identity))
    return {
        "distribution": NAMES.get(identity, fields.get("NAME", "")),
        "distribution_version": version,
        "distribution_major_version": version.partition(".")[0],
        "distribution_release": fields.get("VERSION_CODENAME", ""),
        **({"distribution_minor_version": version.partition(".")[2]} if "." in version else {}),
        "distribution_file_variety": family,
        "distribution_file_path": "/etc/os-release",
        "distribution_file_parsed": True,
        "os_family": family,
        "pkg_mgr": _manager(family, raw.get("managers")),
        "lsb": {
            "id": NAMES.get(identity, fields.get("NAME", "")),
            "release": fields.get("VERSION_ID", ""),
            "major_release": version.partition(".")[0],
            "codename": fields.get("VERSION_CODENAME", ""),
            "description": fields.get("PRETTY_NAME", ""),
        },
    }


@lru_cache(maxsize=16)
def _fields(text: str) -> Mapping[str, str]:
    """The names of os-release; most hosts of a cluster have the same text."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            words = shlex.split(value) if value.count('"') % 2 == 0 else [value]
            found[key.strip()] = words[0] if words else ""
    return found


def _manager(family: str, present: Sequence[str] | None) -> str:
    """The usual one of the family; what is installed says which of dnf and yum, and settles the rest."""
    usual = MANAGERS.get(family, "unknown")
    if present is None or usual in present or (usual == "apt" and "apt-get" in present):
        return usual
    first = next(iter(present), "unknown")
    return "apt" if first == "apt-get" else first
