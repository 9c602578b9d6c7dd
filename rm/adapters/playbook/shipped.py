"""The files that belong to rm and are no part of its package: agents, examples, playbooks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import rm
from rm.errors import UsageError


def shipped_directory(name: str) -> Path:
    """`agents`, `examples` or `playbooks`: beside rm in a checkout, inside it when installed from a wheel."""
    package = Path(rm.__file__).parent
    candidates = (package / "shipped" / name, package.parent / name)
    for directory in candidates:
        if directory.is_dir():
            return directory
    raise UsageError(
        f"The {name} directory that belongs to rm is missing (looked in {', '.join(map(str, candidates))}).",
        "Reinstall rm.",
    )


def shipped_playbook(name: str) -> Path:
    """Where the playbook of this name that comes with rm is, if there is one; `.yml` may be left out."""
    return shipped_directory("playbooks") / (name if name.endswith((".yml", ".yaml")) else f"{name}.yml")


@cache
def agents_version() -> str:
    """What an agent of this rm says of itself: its files by their content."""
    import hashlib  # here: it loads OpenSSL, which the simulator has no use for

    sums = hashlib.sha256()
    for path in sorted(shipped_directory("agents").glob("*.py")):
        sums.update(path.name.encode() + b"\0" + path.read_bytes())
    return sums.hexdigest()[:12]
