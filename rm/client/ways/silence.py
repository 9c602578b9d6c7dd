"""A daemon that says nothing: who leads by now, and what it waits for, asked over other connections."""

from __future__ import annotations

import http.client
import math
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing

from rm.client.address import Address
from rm.client.failure import failure
from rm.client.quick_json import loads
from rm.client.ways import doors
from rm.client.ways.leader import named_leader
from rm.errors import RmError, Standby

SILENT_S = 5.0  # so long an answer is waited for before anybody is asked, and then twice as long each time
WITHIN_S = 2.0  # and so long for what is said then: the answer itself is not looked for meanwhile


def head_of_answer(
    connection: http.client.HTTPConnection, timeout_s: float | None, meanwhile: Callable[[], None]
) -> http.client.HTTPResponse:
    """The head of the answer; `meanwhile` is called now and then while nothing of it comes.

    Raises:
        TimeoutError: it has not come within `timeout_s`; None is endless.
    """
    sock, until_s = connection.sock, math.inf if timeout_s is None else time.monotonic() + timeout_s
    assert sock is not None
    pause_s = SILENT_S
    while not _has_come(sock, min(pause_s, until_s - time.monotonic())):
        if time.monotonic() >= until_s:
            raise TimeoutError
        meanwhile()
        pause_s *= 2
    return connection.getresponse()


def _has_come(sock: socket.socket, within_s: float) -> bool:
    pending = getattr(sock, "pending", None)  # of TLS, whose module is slow to load
    if pending is not None and pending():
        return True
    looked = select.poll()
    looked.register(sock, select.POLLIN)
    return bool(looked.poll(max(0.0, within_s) * 1000))


def leader_now(silent: Address, known: Iterable[Address]) -> Address | None:
    """The daemon that leads: the silent one, which is only slow if it answers this, or another instead of it,
    as the `known` ones tell that are not it. None: nobody tells."""
    if who_leads(silent) is not None:
        return silent  # the others may know it by another name
    for address in known:
        leader = who_leads(address) if address != silent else None
        if leader is not None and leader != silent:
            return leader
    return None


def who_leads(address: Address) -> Address | None:
    """The daemon that leads, as the one at `address` tells: itself, or the one that it names. None: it names
    nobody, or does not answer soon."""
    try:
        response, told = _status(address)
        if response.status >= 400 and isinstance(failure(response.status, told), Standby):
            return named_leader(address, response)
        return address
    except (RmError, OSError, http.client.HTTPException):
        return None


def what_it_waits_for(address: Address) -> str:
    """A sentence, of a daemon whose database does not answer; "" if that is not why it is silent, or it does
    not say so soon."""
    try:
        response, told = _status(address)
        return str(loads(told.decode()).get("waiting") or "") if response.status == http.client.OK else ""
    except (RmError, OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
        return ""


def _status(address: Address) -> tuple[http.client.HTTPResponse, bytes]:
    door = doors.door_to(address)
    with closing(door.connection(WITHIN_S)) as connection:
        connection.request("GET", "/v1/status", headers=dict(door.headers))
        response = connection.getresponse()
        return response, response.read()
