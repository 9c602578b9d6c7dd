"""A part of a document that a program writes, between two comments."""

from __future__ import annotations


def renewed(text: str, name: str, content: str) -> str:
    """The document with `content` from one comment to the other."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{content}{end}{after}"
