"""Hosts' SSH keys for the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.adapters.hosts.fleet import Fleet
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host


class HostKeys:
    """Shows and pins host keys for the service."""

    def __init__(self, settings: SshSettings, fleet: Fleet) -> None:
        self._settings = settings
        self._fleet = fleet

    def present(self, host: Host) -> Mapping[str, Any]:
        from rm.adapters.hosts.ssh import pinned_key, present_key  # here: a daemon starts without it

        kind, fingerprint, _ = present_key(host, self._settings)
        pinned = pinned_key(host, self._settings)
        return {
            "presented": {"type": kind, "fingerprint": fingerprint},
            "pinned": {"type": pinned[0], "fingerprint": pinned[1]} if pinned else None,
        }

    def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]:
        from rm.adapters.hosts.ssh import accept_key

        accept_key(host, fingerprint, self._settings)
        self._fleet.retry(host.name)
        return self.present(host)
