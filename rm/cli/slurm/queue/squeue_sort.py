"""The order of the lines of `squeue`: letters of columns, `P,t,-Q`."""

from __future__ import annotations

from rm.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rm.cli.formats import Column


def letter_of(word: str) -> str:
    """The column of a part of a sort specification."""
    return word.strip().lstrip("+-%")


def sorting(by: str, columns: Mapping[str, Column]) -> list[str]:
    """Its parts.

    Raises:
        UsageError: there is no such column.
    """
    words = [word for word in by.split(",") if word.strip()]
    for word in words:
        if letter_of(word) not in columns:
            raise UsageError(f"Invalid sort specification: {word.strip()}.", "Write letters: P,t,-Q.")
    return words


def sorted_by(found: list[Any], by: str, columns: Mapping[str, Column]) -> list[Any]:
    for word in reversed(sorting(by, columns)):
        column = columns[letter_of(word)]
        found.sort(key=column.order or column.text, reverse=word.strip().startswith("-"))
    return found
