"""What a client can ask beside jobs and hosts, by topic: each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rm.client.asking import Asking

if TYPE_CHECKING:
    from rm.client.accounts import Accounts
    from rm.client.alerts import Alerting
    from rm.client.monitor import Monitor
    from rm.client.network import Network
    from rm.client.playbooks import Playbooks
    from rm.client.reservations import HostReservations
    from rm.client.sharing import Sharing


class Topics:
    _ask: Asking

    @property
    def network(self) -> Network:
        """Links, and measurements between hosts."""
        from rm.client.network import Network

        return Network(self._ask)

    @property
    def monitor(self) -> Monitor:
        """Meshes, their grids, and archives."""
        from rm.client.monitor import Monitor

        return Monitor(self._ask)

    @property
    def alerts(self) -> Alerting:
        """Alerts and silences."""
        from rm.client.alerts import Alerting

        return Alerting(self._ask)

    @property
    def sharing(self) -> Sharing:
        """Accounts, their shares, and who is in them."""
        from rm.client.sharing import Sharing

        return Sharing(self._ask)

    @property
    def reservations(self) -> HostReservations:
        """Reservations of hosts."""
        from rm.client.reservations import HostReservations

        return HostReservations(self._ask)

    @property
    def playbooks(self) -> Playbooks:
        """Playbooks that the daemon runs, and their reports."""
        from rm.client.playbooks import Playbooks

        return Playbooks(self._ask)

    @property
    def accounts(self) -> Accounts:
        """The caller, tokens, and the audit log."""
        from rm.client.accounts import Accounts

        return Accounts(self._ask)
