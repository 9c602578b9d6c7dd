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


def deeply(value: Any) -> Any:
    """The same of everything inside, in lists and dicts that are nothing more."""
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: deeply(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [deeply(inner) for inner in value]
    return str(value) if isinstance(value, str) else value
