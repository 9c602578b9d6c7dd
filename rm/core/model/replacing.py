"""`replace` of dataclasses, in a tenth of the time: each event makes new versions of jobs.

A frozen dataclass refuses what is plainly written to it, and every way around that costs a call a field. So
the copy is written as a twin, a class with the same slots that refuses nothing, and then becomes of the kind
of the original. The lines that copy are generated, one for each field, as dataclasses generates `__init__`,
for each set of fields that some place of the program changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # whose arguments mypy knows
    from dataclasses import replace
else:
    import dataclasses
    import functools

    @functools.cache
    def _copier(kind: type, *changed: str) -> Any:
        """What makes a copy with these fields changed. Where making one of the kind does more than to set its
        fields, where a base refuses to be written to as well, or where it has no such field, dataclasses
        does."""
        fields = dataclasses.fields(kind)
        derived = any(map(dataclasses.is_dataclass, kind.__bases__))
        plain = not derived and not hasattr(kind, "__post_init__") and all(field.init for field in fields)
        if not plain or not {field.name for field in fields}.issuperset(changed):
            return dataclasses.replace  # which says what is wrong with them
        slots = {"__slots__": kind.__slots__} if "__slots__" in vars(kind) else {}
        twin = type(f"{kind.__name__} while it is copied", kind.__bases__, slots)
        lines = [f"def copied({', '.join(['__value', '/', *changed])}):", "    __made = __new(__twin)"]
        for name in (field.name for field in fields):
            lines.append(f"    __made.{name} = {name if name in changed else f'__value.{name}'}")
        known = {"__new": object.__new__, "__twin": twin, "__kind": kind}  # names that no field has
        exec("\n".join([*lines, "    __made.__class__ = __kind", "    return __made"]), known)
        return known["copied"]

    def replace(value: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`."""
        return _copier(type(value), *changes)(value, **changes)


__all__ = ["replace"]
