"""JSON by the part of Python's `json` that is written in C, for commands that scripts call in loops.

The package around it compiles regular expressions when it is loaded, which takes longer than their work.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    def dumps(value: Any) -> str: ...
    def loads(text: str) -> Any: ...
    def objects(text: str, made: Callable[[dict[str, Any]], Any]) -> Any: ...
else:
    try:
        from _json import encode_basestring_ascii, make_encoder, make_scanner
    except ImportError:  # another Python than CPython
        from json import dumps, loads

        def objects(text, made):
            return loads(text, object_hook=made)
    else:

        def _strange(value):
            raise TypeError(f"{type(value).__name__} is nothing that JSON can say")

        class _Asked:
            """What `json.loads` asks for by default."""

            strict = True
            object_hook = object_pairs_hook = None
            parse_float, parse_int, parse_constant = float, int, float

        _scan = make_scanner(_Asked)
        _encode = make_encoder(None, _strange, encode_basestring_ascii, None, ": ", ", ", False, False, False)

        def dumps(value):
            """As `json.dumps`, of dicts, lists, text, numbers, booleans and None; ValueError for NaN."""
            return "".join(_encode(value, 0))

        def loads(text, scan=_scan):
            """As `json.loads`; ValueError where it is no JSON."""
            try:
                value, end = scan(text, len(text) - len(text.lstrip(" \t\n\r")))
            except StopIteration:
                raise ValueError("a value is expected") from None
            if text[end:].strip(" \t\n\r"):
                raise ValueError("more follows the value")
            return value

        def objects(text, made):
            """As `loads`, but of each JSON object it has what `made` makes of it."""
            asked = _Asked()
            asked.object_hook = made
            return loads(text, make_scanner(asked))


__all__ = ["dumps", "loads", "objects"]
