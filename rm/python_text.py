"""Python text as a syntax tree, or as the literal it is, one thread at a time.

CPython before 3.13 counts how deep a tree is in one place for all threads: where another one parses while
the tree of this one is made, `ast` raises a SystemError (github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_ALONE = threading.RLock()


def parsed(text: str | bytes) -> ast.Module:
    """Raises SyntaxError or ValueError where the text is no Python."""
    with _ALONE:
        return ast.parse(text)


def literal(text: str) -> Any:
    """The value of a literal.

    Raises:
        MemoryError, RecursionError, SyntaxError, ValueError: it is none.
    """
    with _ALONE:
        return ast.literal_eval(text)
