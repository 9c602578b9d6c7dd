"""The files that belong to rm and are no part of its package: agents, examples, playbooks."""

from __future__ import annotations

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
