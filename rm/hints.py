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
