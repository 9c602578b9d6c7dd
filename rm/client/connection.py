"""A connection to the daemon by whichever door, and what it survives: standard library only
(but for long answers), cheap to import.

It asks again while a daemon restarts, and follows the leader. The typed client is `rm.client.client`.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlencode

from rm.client.address import Address
from rm.client.failure import ConnectionClosed, Interrupted, LedElsewhere, PerhapsHeard, Unanswered, failure
from rm.client.ways import doors
from rm.client.ways.leader import named_leader
from rm.client.ways.silence import head_of_answer, leader_now, what_it_waits_for
from rm.errors import RmError, Standby, StoreUnavailable, Unreachable

if TYPE_CHECKING:
    from rm.client.websocket import WebSocket

TIMEOUT_S = 60.0
POST_TIMEOUT_S = 600.0  # measuring the network takes long, and so does cancelling very many jobs
SWITCHING, TOO_MANY, WAITS = 101, 429, 503
PATIENCE_S = 60.0  # with a daemon that restarts, waits for its database, or says it is asked too often
PAUSE_S = 0.5
CHUNK_BYTES = 65_536
CLOSED = "The daemon closed the connection before it answered."
LOOK = "Look whether it happened before repeating it."
LONG_BYTES = 4 << 20  # of an answer: 2,000 whole jobs
Path = tuple[str | int, ...]
Answer = TypeVar("Answer")


class Connection:
    """One kept-alive connection, for one thread. Every failure is an RmError: the daemon's own, or
    Unreachable."""

    def __init__(
        self,
        daemon: str | Address,
        patience_s: float = PATIENCE_S,
        timeout_s: float = TIMEOUT_S,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            daemon: the path of its socket, or its address.
            timeout_s: for reads.
            on_wait: gets a sentence once for each request that has to wait for the daemon.
        """
        self.address = Address("unix", daemon) if isinstance(daemon, str) else daemon
        self.on_wait: Callable[[str], None] = on_wait or (lambda why: None)
        self.patience_s = patience_s
        self._timeout_s = timeout_s
        self.asked_again = False  # the newest request, that may be: an earlier try may have been carried out
        self.door = doors.door_to(self.address)
        self._connection: http.client.HTTPConnection | None = None
        self._connected = False  # ever
        self._aborted = False
        self._leader: Address | None = None  # the leader that the daemon at our address has named

    @property
    def answers_at(self) -> Address:
        """Of the daemon that answered last: ours, or the leader that it has named."""
        return self._leader or self.address

    def beside(self) -> Connection:
        """Another one to the same daemon, for another thread, or while this one is busy."""
        return Connection(self.address, self.patience_s, self._timeout_s, self.on_wait)

    def get(self, *path: str | int, **query: Any) -> dict[str, Any]:
        return self._object(self.ask("GET", path, query))

    def post(
        self,
        *path: str | int,
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = POST_TIMEOUT_S,
        key: str = "",
    ) -> dict[str, Any]:
        payload = json.dumps(body or {}).encode()
        return self._object(self.ask("POST", path, {}, payload, timeout_s, key))

    def delete(self, *path: str | int, **query: Any) -> dict[str, Any]:
        return self._object(self.ask("DELETE", path, query, timeout_s=POST_TIMEOUT_S))

    def ask(
        self,
        method: str,
        path: Path,
        query: Mapping[str, Any],
        body: bytes | None = None,
        timeout_s: float | None = 0,
        key: str = "",
    ) -> bytes:
        """The JSON of the answer. What changes nothing when it is repeated is asked for again while nobody
        can answer: reads, deletions, and with an idempotency `key` also a request that may have been heard.

        Args:
            path: its parts below /v1.
            query: None, False and "" are left out.
            timeout_s: for the answer; None is endless, 0 this connection's.
        """
        wait_s = self._timeout_s if timeout_s == 0 else timeout_s
        if method == "POST" and not key:
            return self._call(method, path, query, body, wait_s)
        return self._repeated(lambda: self._call(method, path, query, body, wait_s, key), bool(key))

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            answer = _decoded(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self.stranger()
        return answer

    def stranger(self) -> Unreachable:
        """Why an answer cannot be used that is none of rm's."""
        return Unreachable(f"What listens on {self.address} does not speak rm's protocol.")

    def _repeated(self, ask: Callable[[], Answer], wherever: bool) -> Answer:
        """The answer, once the daemon's database can be reached and somebody leads; and the daemon, if
        `wherever` it is. A standby has done nothing of what it was asked, and closes its door for a moment
        when its turn has come."""
        since: float | None = None
        stood_by = False
        while True:
            self.asked_again = since is not None
            try:
                return ask()
            except (StoreUnavailable, Unreachable) as error:
                stood_by = stood_by or isinstance(error, Standby)
                waits = not isinstance(error, Unreachable) or isinstance(error, Standby)
                anew = wherever or (stood_by and not isinstance(error, PerhapsHeard))
                if not waits and not (anew and self._was_here()):
                    raise
                now = time.monotonic()
                if since is None:
                    since = now
                    self.on_wait(f"{error.what} Trying again for {self.patience_s:g} s.")
                if now - since > self.patience_s:
                    raise
                time.sleep(PAUSE_S)

    def _was_here(self) -> bool:
        """Has a daemon listened there before? Its socket, or the lock beside it, stays on this machine."""
        left = self.address.scheme == "unix" and any(
            os.path.exists(self.address.path + end) for end in ("", ".lock")
        )
        return self._connected or left

    def stream(
        self,
        *path: str | int,
        _note: Callable[[str], None] = lambda note: None,
        _again: bool = False,
        _within_s: float | None = None,
        **query: Any,
    ) -> Iterator[bytes]:
        """The body as it comes, `_within_s` seconds between its parts at most. What the daemon remarks about
        it goes to `_note`. As with `ask`, its beginning is asked for again while nobody leads; `_again`:
        while no daemon is there, too. After `_within_s` without a beginning the daemon is asked whether it
        is there, and then for the same again.

        Raises:
            Interrupted: the daemon ended before its answer.
        """
        response = self._repeated(lambda: self._begun(path, query, _within_s), _again)
        if isinstance(response, Unreachable):
            raise response
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.settimeout(_within_s)
        if note := response.getheader("Rm-Note"):
            _note(unquote(note))
        try:
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException):
            raise Interrupted("The daemon closed the connection in the middle of its answer.") from None
        finally:
            self.close()

    def _begun(
        self, path: Path, query: Mapping[str, Any], within_s: float | None
    ) -> http.client.HTTPResponse | Unreachable:
        """An answer of which only the head has been read; or that a host is out of reach, for which no other
        daemon is waited for."""
        while True:
            try:
                response = self._request("GET", path, query, None, within_s)
                break
            except Unanswered:
                # a daemon may have nothing to say for hours; a machine that is gone says nothing
                self.get("status")
        if response.status < 400:
            return response
        error = failure(response.status, response.read())
        if isinstance(error, Unreachable) and not isinstance(error, Standby):
            return error
        raise error

    def upgraded(self, *path: str | int) -> WebSocket:
        """A WebSocket; this connection is then no more than that."""
        from rm.client.websocket import WebSocket, greeting, must_be_accepted

        key, headers = greeting()
        response = self._request("GET", path, {}, None, self._timeout_s, headers=headers)
        if response.status != SWITCHING:
            raise failure(response.status, response.read())
        must_be_accepted(key, response.getheader("Sec-WebSocket-Accept", ""), self.stranger)
        assert self._connection is not None
        return WebSocket(self._connection.sock)

    def open(self) -> None:
        """Connect, unless connected: a failure after this is one of a request that may have been heard."""
        self._open(self._timeout_s)

    def abort(self) -> None:
        """End the request that another thread waits for, or is about to make; there are no more."""
        self._aborted = True  # first: a thread that has no socket yet looks at it when it has one
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self,
        method: str,
        path: Path,
        query: Mapping[str, Any],
        body: bytes | None,
        timeout_s: float | None,
        key: str = "",
    ) -> bytes:
        response = self._request(method, path, query, body, timeout_s, key)
        try:
            data = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise ConnectionClosed(CLOSED, LOOK) from None
        if response.status >= 400:
            raise failure(response.status, data)
        return data

    def _request(
        self,
        method: str,
        path: Path,
        query: Mapping[str, Any],
        body: bytes | None,
        timeout_s: float | None,
        key: str = "",
        headers: Mapping[str, str] = {},
    ) -> http.client.HTTPResponse:
        target = "/v1/" + "/".join(quote(str(part), safe="") for part in path)
        present = {
            key: value
            for key, value in query.items()
            if value is not None and value is not False and value != ""
        }
        if present:
            target += "?" + urlencode({key: 1 if value is True else value for key, value in present.items()})
        until_s = time.monotonic() + self.patience_s
        followed = led = False
        while True:
            try:
                response = self._ask(method, target, body, timeout_s, key, headers)
            except LedElsewhere:
                if led or (method == "POST" and not key) or query.get("signal"):  # it would come twice
                    raise
                self.asked_again = led = True
                followed = self._leader is not None
                continue
            except Unreachable as error:
                if followed and self._leader is None:  # no connection: it was asked nothing
                    raise Standby(f"{error.what} The next leader is waited for.", error.hint) from None
                raise
            if response.status == WAITS and self._follow(response):
                followed = True
                continue
            if response.status != TOO_MANY:
                return response
            wait_s = _retry_after_s(response)
            if time.monotonic() + wait_s > until_s:
                return response
            with suppress(OSError, http.client.HTTPException):
                response.read()  # nothing was done: it may be asked again
            time.sleep(wait_s)

    def _follow(self, response: http.client.HTTPResponse) -> bool:
        """Ask the daemon that leads, if a standby has named it and it is another than before."""
        try:
            leader = named_leader(self.address, response)
        except RmError:
            self.close()
            raise
        if leader is None or leader == self._leader:
            return False
        with suppress(OSError, http.client.HTTPException):
            response.read()
        self.close()
        self._leader, self.door = leader, doors.door_to(leader)
        return True

    def _ask(
        self,
        method: str,
        target: str,
        payload: bytes | None,
        timeout_s: float | None,
        key: str,
        more: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        again = method == "GET"  # harmless: a connection that was kept may have ended meanwhile
        while True:
            try:
                return self._ask_once(method, target, payload, timeout_s, key, more)
            except ConnectionClosed:
                if not again:
                    raise
                again = False

    def _ask_once(
        self,
        method: str,
        target: str,
        payload: bytes | None,
        timeout_s: float | None,
        key: str,
        more: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        connection = self._open(timeout_s)
        if self._aborted:
            self.close()
            raise Unreachable("The daemon was not asked: this connection was ended.")
        try:
            headers = {"Content-Type": "application/json", **self.door.headers, **more}
            if key:
                headers["Idempotency-Key"] = key
            with suppress(BrokenPipeError):  # turned away before it was asked: the answer says why
                connection.request(method, target, payload, headers)
            told: list[str] = []
            return head_of_answer(connection, timeout_s, lambda: self._look_around(method, told))
        except TimeoutError:
            self.close()
            raise Unanswered(
                f"The daemon did not answer within {timeout_s:g} s.", "`rmx status` asks again."
            ) from None
        except (OSError, http.client.HTTPException):
            self.close()
            raise self.door.explain() or ConnectionClosed(CLOSED, LOOK) from None

    def _look_around(self, method: str, told: list[str]) -> None:
        """While nothing is said: a leader that stands still is replaced, and one may wait for its database.
        A read hears of the latter as its answer.

        Raises:
            LedElsewhere: by a daemon that will be asked from now on.
        """
        silent = self.answers_at
        known = (self.address, *map(self.address.at, self.address.peers))
        leader = leader_now(silent, known)
        if leader is not None and leader != silent:
            self.close()
            self.door = doors.door_to(leader)
            self._leader = leader if leader != self.address else None
            raise LedElsewhere(
                f"The daemon at {silent} does not answer, and another leads by now, at {leader}. Whether it "
                "was done is not known.",
                LOOK,
            )
        if told or (leader is not None and method == "GET"):
            return
        if why := what_it_waits_for(silent) if leader else f"{silent} does not answer. It is waited for.":
            told.append(why)
            self.on_wait(why)

    def _open(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self._connection is not None and self._connection.sock is not None:
            if not _ended(self._connection.sock):
                self._connection.sock.settimeout(timeout_s)
                return self._connection
            self.close()
        try:
            self._connection = self.door.connection(timeout_s)
        except Unreachable as error:
            if self._leader is not None:  # it may lead no longer: the daemon that was asked first knows more
                self._leader, self.door = None, doors.door_to(self.address)
                raise
            self._connection = self._at_a_peer(timeout_s, error)
        self._connected = True
        return self._connection

    def _at_a_peer(self, timeout_s: float | None, failure: Unreachable) -> http.client.HTTPConnection:
        """A connection to the first other daemon of the cluster that answers, of those that the configuration
        names. Raises `failure`, our address's, if there is none."""
        nobody = type(failure) is Unreachable  # and not somebody whose certificate is not trusted
        for peer in self.address.peers if nobody else ():
            with suppress(Unreachable):
                address = self.address.at(peer)
                door = doors.door_to(address)
                made = door.connection(timeout_s)
                self._leader, self.door = address, door
                return made
        raise failure


def _decoded(data: bytes) -> Any:
    """A long answer in half the time: by msgspec, whose loading that outweighs, and without looks for garbage
    among what is being made.

    Raises:
        ValueError: it is no JSON.
    """
    if len(data) < LONG_BYTES:
        return json.loads(data)
    import msgspec

    from rm.collector import uncollected

    with uncollected():
        return msgspec.json.decode(data)


def _retry_after_s(response: http.client.HTTPResponse) -> float:
    text = response.getheader("Retry-After", "")
    return max(0.1, float(text)) if text.isdecimal() else 1.0


def _ended(sock: socket.socket) -> bool:
    """Has the daemon closed the idle connection? It says nothing that was not asked for."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
