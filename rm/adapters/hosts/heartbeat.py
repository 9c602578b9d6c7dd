"""A heartbeat for agents: one that does not answer, although its SSH server does, is found.

`pulse` asks sshd, which lives on when the agent's program is stopped, or waits for a disk that is gone.
"""

from __future__ import annotations

from rm.adapters.hosts.channel import AgentChannel
from rm.adapters.hosts.silence import Silence
from rm.protocol.hosts import Ping

BEATS_PER_DEADLINE = 3
STEP_S = 0.5  # that one look counts at most


class Heartbeat:
    """Of one channel; `look` is called again and again by one thread."""

    def __init__(self, dead_after_s: float) -> None:
        self._dead_after_s = dead_after_s
        self._interval_s = dead_after_s / BEATS_PER_DEADLINE
        self._heard = 0
        self._silence = Silence(STEP_S)
        self._asked = False

    def look(self, channel: AgentChannel, now: float) -> bool:
        """Ask when nothing was heard for a while; False when the agent hangs. `now`: monotonic seconds."""
        quiet_s = self._silence.look(now, channel.heard == self._heard)
        if channel.heard != self._heard:
            self._heard, self._asked = channel.heard, False
            return True
        if not self._asked and quiet_s >= self._interval_s:
            self._asked = True
            channel.call(Ping(), self._dead_after_s)
        # what has arrived and is not read yet is our delay, not the agent's
        return quiet_s < self._dead_after_s or channel.unread
