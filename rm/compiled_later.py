"""Regular expressions that are compiled when they are first used: a command loads dozens, and needs few."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from re import compile as compiled_later
else:

    class compiled_later:
        """Stands for the pattern that `re.compile` gives for the same arguments."""

        def __init__(self, text, flags=0):
            self._given = (text, flags)

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            from re import compile

            found = getattr(compile(*self._given), name)
            setattr(self, name, found)  # found at once the next time
            return found


__all__ = ["compiled_later"]
