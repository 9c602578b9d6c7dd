"""Fakes of the daemon's ports, shared by its tests: hosts that answer by hand, and a clock that stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rm.core.model.host import Host
from rm.core.model.identity import NO_CLUSTER
from rm.protocol.codes import AgentError, Code
from rm.protocol.line import read_answer, read_notification, request_line
from rm.protocol.notifications import Hello, Unasked
from rm.protocol.request import Request

PATIENCE_S = 60.0  # generous: only a failing test waits so long


def said(event: str, **fields: Any) -> Unasked:
    """A notification, read as the channel reads it."""
    return read_notification(event, msgspec.json.encode({"event": event, **fields}))


def asked(request: Request[Any]) -> tuple[str, dict[str, Any]]:
    """The operation and its arguments, as an agent gets them."""
    message = msgspec.json.decode(request_line(1, request))
    del message["id"]
    return message.pop("op"), message


@dataclass
class Call:
    """One request to a host's agent; the test answers it."""

    host: str
    request: Request[Any]
    future: Future[Any] = field(default_factory=Future)

    @property
    def op(self) -> str:
        return asked(self.request)[0]

    @property
    def args(self) -> dict[str, Any]:
        return asked(self.request)[1]

    def answer(self, **result: Any) -> None:
        self.future.set_result(read_answer(type(self.request), msgspec.json.encode(result)))

    def refuse(self, error: Exception | str) -> None:
        if isinstance(error, str):
            assert error in {*Code}, "no agent says no with that"
            error = AgentError(Code(error), "no")
        self.future.set_exception(error)


class FakeHosts:
    """Keeps the calls until the test takes and answers them."""

    def __init__(self) -> None:
        self.added: dict[str, Host] = {}
        self.offsets_us: dict[str, int] = {}
        self.cluster = NO_CLUSTER
        self.clusters: dict[str, str] = {}  # that hosts say they belong to
        self.names: dict[str, str] = {}  # that hosts say they have in it, else their own
        self.boots: dict[str, str] = {}
        self.epochs: dict[str, int] = {}  # that hosts say they have obeyed
        self.alive_us: dict[str, int] = {}  # since their boots, when they said hello
        self.raised: dict[str, int] = {}
        self.reconnected: list[str] = []
        self.made: list[Call] = []  # all of them, in order
        self._waiting: list[Call] = []
        self._changed = threading.Condition()

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        call = Call(name, request)
        with self._changed:
            self.made.append(call)
            self._waiting.append(call)
            self._changed.notify_all()
        return call.future

    def peers(self, name: str) -> list[str]:
        return [host.address for host in self.added.values() if host.name != name]

    def knows(self, name: str) -> bool:
        return name in self.added

    def take(self, op: str, host: str | None = None) -> Call:
        """The oldest call of this kind that was not taken yet; waits for it."""

        def found() -> Call | None:
            return next((c for c in self._waiting if c.op == op and host in (None, c.host)), None)

        with self._changed:
            call = self._changed.wait_for(found, PATIENCE_S)
            assert call is not None, f"nobody asked {host or 'any host'} to {op}: {self._waiting}"
            self._waiting.remove(call)
            return call

    def untaken(self, op: str) -> list[Call]:
        with self._changed:
            return [c for c in self._waiting if c.op == op]

    def add(self, host: Host) -> None:
        self.added[host.name] = host

    def remove(self, name: str) -> None:
        self.added.pop(name, None)

    def clock_offset_us(self, name: str) -> int | None:
        return self.offsets_us.get(name, 0)

    def hello(self, name: str) -> Hello | None:
        return Hello(
            version="0.1.0",
            protocol=1,
            alive_us=self.alive_us.get(name, 0),
            epoch=self.epochs.get(name, 0),
            cluster=self.clusters.get(name, ""),
            known_as=self.names.get(name, name),
            boot_id=self.boots.get(name, f"boot of {name}"),
        )

    def raise_epoch(self, name: str, epoch: int) -> None:
        self.raised[name] = epoch

    def reconnect(self, name: str) -> None:
        self.reconnected.append(name)


@dataclass
class ManualClock:
    """`us` moves as time passes; `step` sets the clock."""

    us: int = 1_000_000
    stepped_us: int = 0

    def now_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us - self.stepped_us

    def step(self, by_us: int) -> None:
        self.stepped_us += by_us
        self.us += by_us


class Inbox:
    """Collects what is posted; `wait` waits for the first item that fits."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, item: Any) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, fits: type | Callable[[Any], bool]) -> Any:
        def found() -> list[Any]:  # with the item, which may be false itself
            of_it = isinstance if isinstance(fits, type) else lambda item, fits: fits(item)
            return [item for item in self.items if of_it(item, fits)][:1]

        with self._changed:
            items = self._changed.wait_for(found, PATIENCE_S)
            assert items, f"nothing of the kind came: {self.items}"
            return items[0]

    def of(self, kind: type) -> list[Any]:
        with self._changed:
            return [i for i in self.items if isinstance(i, kind)]
