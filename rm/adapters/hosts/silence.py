"""How long a peer has been silent, as far as it is the peer's."""

from __future__ import annotations


class Silence:
    """For one who looks again and again. One look counts `step_s` at most: while this process itself stood
    still, no peer was silent."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._looked_at = 0.0
        self._lasts_s = 0.0

    def look(self, now: float, silent: bool) -> float:
        """Seconds that it lasts by now; 0 while the peer is not silent. `now`: monotonic seconds."""
        step_s = min(self._step_s, now - self._looked_at)
        self._looked_at = now
        self._lasts_s = self._lasts_s + step_s if silent else 0.0
        return self._lasts_s
