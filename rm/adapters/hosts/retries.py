"""When a lost host is tried again: often until it would be down, then less and less."""

from __future__ import annotations

FIRST_S = 0.5
LAST_S = 15.0  # for a host that is down
KEY_S = 60.0  # a refused key does not change by asking; the fleet notices when one was accepted
TRIES = 10  # at least, within the time after which a host is down: who comes back in time is reached in time


class Retries:
    """Of one host. All times are monotonic seconds."""

    def __init__(self, down_after_s: float, now: float) -> None:
        self._hurry_s = down_after_s / TRIES
        self._down_after_s = down_after_s
        self._lost_at = now
        self._pause_s = FIRST_S

    def hurry(self) -> None:
        """There is reason to believe that it can be reached."""
        self._pause_s = FIRST_S

    def pause_s(self, began: float, now: float, greeted: bool = False, refused: bool = False) -> float:
        """How long to wait after a try of [began, now], in which the agent said hello (`greeted`) and kept to
        the protocol, or the host's key was refused."""
        if greeted:
            self._lost_at = now
            if now - began > LAST_S:
                self._pause_s = FIRST_S
        if refused:
            self._pause_s = LAST_S
            return KEY_S
        pause_s = self._pause_s
        self._pause_s = min(LAST_S, pause_s * 2)
        return min(pause_s, self._hurry_s) if now - self._lost_at < self._down_after_s else pause_s
