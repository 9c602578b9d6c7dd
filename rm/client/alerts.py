"""`client.alerts`: alerts, who looks after them, and silences."""

from __future__ import annotations

from collections.abc import Sequence

from rm.api.alerts import Acknowledge, Acknowledged, Alerts, OneSilence, Silence, SilenceRequest
from rm.client.asking import Asking


class Alerting:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def list(self) -> Alerts:
        """Alerts, silences, rules and channels."""
        return self._ask.get(Alerts, "alerts")

    def acknowledge(self, alerts: Sequence[str], comment: str = "") -> Sequence[str]:
        """Acknowledge firing alerts, named by ids, keys or subjects; the answer is their keys."""
        body = Acknowledge(alerts=alerts, comment=comment)
        return self._ask.post(Acknowledged, "alerts", "acknowledge", body=body).acknowledged

    def silence(
        self, for_s: float, *, conditions: Sequence[str] = (), hosts: Sequence[str] = (), comment: str = ""
    ) -> Silence:
        """Let nothing new fire of these conditions and hosts for a time; at least one must be named."""
        body = SilenceRequest(conditions=conditions, hosts=hosts, for_s=for_s, comment=comment)
        return self._ask.post(OneSilence, "alerts", "silences", body=body).silence

    def unsilence(self, silence_id: int) -> Silence:
        """End the silence; what holds then fires."""
        return self._ask.delete(OneSilence, "alerts", "silences", silence_id).silence
