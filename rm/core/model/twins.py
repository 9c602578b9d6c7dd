"""Twins of frozen dataclasses: classes with the same slots, which refuse nothing that is written to them.

A value is filled in while it is of the twin, and becomes one of the kind at the end. Around the refusal of
the frozen class itself every way costs a call a field.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def is_plain(kind: type) -> bool:
    """Is making one of the class no more than setting its own fields? Only such a class can have a twin."""
    derived = any(map(dataclasses.is_dataclass, kind.__bases__))  # a base refuses to be written to as well
    more = derived or hasattr(kind, "__post_init__")
    return not more and all(field.init for field in dataclasses.fields(kind))


def twin_of(kind: type, named: str) -> Any:
    """`named`: what reads behind the name of the class, in its own."""
    slots = {name: value for name, value in vars(kind).items() if name == "__slots__"}
    return type(f"{kind.__name__} {named}", kind.__bases__, slots)
