"""What to say of a word that is not known."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


LONGEST = 80  # letters that are compared: the time for it grows with their square


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like `word`; None when none is."""
    import difflib  # who makes no mistake does not pay for it

    close = difflib.get_close_matches(word[:LONGEST], list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word that is most like `word`, or lists what is known."""
    words = list(known)
    close = nearest(word, words)
    return f"Did you mean '{close}'?" if close else f"Known: {', '.join(words) or 'none'}."


def toml_fault(file: str, error: Exception) -> str:
    """What `tomllib` says of a file, with its line as in other messages."""
    import re

    said, line = str(error), ""
    if at := re.search(r" \(at line (\d+), column \d+\)$", said):
        said, line = said[: at.start()], f":{at[1]}"
    if table := re.fullmatch(r"Cannot (?:declare|mutate|overwrite|redefine)\D* \((.*?),?\)(?: twice)?", said):
        said = f"[{'.'.join(re.findall(r'[^, ]+', table[1].replace(chr(39), '')))}] is there twice"
    elif said == "Cannot overwrite a value":
        said = "its key is there twice"
    said = said.rstrip(".")
    return f"{file}{line} is not valid TOML: {said[:1].lower()}{said[1:]}."


def not_utf8(file: str, error: UnicodeDecodeError) -> str:
    """Where a file is not UTF-8."""
    line = error.object[: error.start].count(b"\n") + 1
    return f"{file}:{line} is not UTF-8 text: there is the byte 0x{error.object[error.start]:02X}."
