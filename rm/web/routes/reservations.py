"""`/v1/reservations`: hosts that are kept for some users, or for maintenance. The contract is
docs/http-api.md."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from aiohttp import web

from rm.adapters.store.audit_scope import about
from rm.api import reservations
from rm.core.model.host_reservation import HostReservation
from rm.errors import UsageError
from rm.typed import convert
from rm.web import wire
from rm.web.answers import respond, typed
from rm.web.callers.accounts import Accounts
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import decoded, settled
from rm.web.ports import Service

Asked = TypeVar("Asked", bound=msgspec.Struct)


class ReservationRoutes:
    def __init__(self, service: Service, visible: VisibleJobs, known: Accounts) -> None:
        self._service = service
        self._visible = visible
        self._known = known

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/reservations", self.reservations),
            web.post("/v1/reservations", self.create),
            web.post("/v1/reservations/{name}", self.change),
            web.delete("/v1/reservations/{name}", self.delete),
        ]

    async def reservations(self, request: web.Request) -> web.Response:
        sight = await self._visible.sight(request)
        found = map(sight.reservation, await settled(self._service.reservation_service.reservations()))
        return respond(
            reservations.Reservations(reservations=[typed(one, reservations.Reservation) for one in found])
        )

    async def create(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        wanted = await self._asked(request, reservations.ReservationRequest)
        about(f"reservation {wanted['name']}")
        create = self._service.reservation_service.create
        made = await settled(create(wanted, caller.user, caller.owns_machine))
        return _one(made, 201)

    async def change(self, request: web.Request) -> web.Response:
        caller, name = request[CALLER], request.match_info["name"]
        wanted = await self._asked(request, reservations.ReservationUpdate)
        change = self._service.reservation_service.change
        return _one(await settled(change(name, wanted, caller.user, caller.admin, caller.owns_machine)))

    async def delete(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        name = request.match_info["name"]
        return _one(await settled(self._service.reservation_service.delete(name, by)))

    async def _asked(self, request: web.Request, kind: type[Asked]) -> dict[str, Any]:
        """The fields that the request names."""
        body = await decoded(request, wire.LIST_BYTES)
        wire.fields(body, *kind.__struct_fields__)
        try:
            made = convert(body, kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"The reservation cannot be read: {error}.") from None
        if body.get("playbook"):
            request[CALLER].must_administer("let a playbook run")
        wanted = {name: getattr(made, name) for name in body}
        for user in dict.fromkeys(wanted.get("users", ())):
            if (await self._known.account(user)).uid is None:  # nobody else may submit
                raise UsageError(f"The reservation is for '{user:.80}', who is no user of this machine.")
        return wanted


def _one(found: HostReservation, status: int = 200) -> web.Response:
    return respond(reservations.OneReservation(reservation=typed(found, reservations.Reservation)), status)
