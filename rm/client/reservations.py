"""`client.reservations`: hosts that are kept for some users, or for maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rm.api.reservations import (
    OneReservation,
    Reservation,
    ReservationRequest,
    Reservations,
    ReservationUpdate,
)
from rm.client.asking import Asking


class HostReservations:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def list(self) -> Sequence[Reservation]:
        """All that are open or to come."""
        return self._ask.get(Reservations, "reservations").reservations

    def create(self, name: str, **fields: Any) -> Reservation:
        """Make one, of the fields of a ReservationRequest; the answer names its hosts."""
        body = ReservationRequest(name=name, **fields)
        return self._ask.post(OneReservation, "reservations", body=body).reservation

    def change(self, name: str, **fields: Any) -> Reservation:
        """Change fields of a ReservationUpdate; what is left out stays."""
        body = ReservationUpdate(**fields)
        return self._ask.post(OneReservation, "reservations", name, body=body).reservation

    def delete(self, name: str) -> Reservation:
        """Delete one that no job runs in."""
        return self._ask.delete(OneReservation, "reservations", name).reservation
