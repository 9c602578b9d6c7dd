"""Values without what only the control side knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Of a host's variables plain mappings, without the way from them to all other hosts' (`hostvars`)."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        hidden = getattr(value, "HIDDEN", ())
        return {key: plain(value[key]) for key in value if key not in hidden}
    return value
