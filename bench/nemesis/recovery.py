"""A client that asks all the time, and how long after a fault it was served again."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.nemesis.door import Doors, NoAnswer, Refused
from bench.nemesis.faults import Played
from bench.nemesis.ledger import Ledger, Order

PAUSE_S = 0.1
TIMEOUT_S = 1.0
HOSTS_EVERY_S = 0.5


class Probe(threading.Thread):
    """Submits a held job, again and again, cancels it, and counts the hosts that are UP. Its jobs are in the
    ledger as others are. `leader` answered last."""

    def __init__(self, sockets: Sequence[str], ledger: Ledger, ended: threading.Event) -> None:
        super().__init__(name="probe", daemon=True)
        self.hosts: list[tuple[float, int]] = []  # (when, how many are UP)
        self._doors = Doors(sockets)
        self._ledger = ledger
        self._ended = ended
        self._to_cancel: list[Order] = []

    def leader(self) -> str:
        return self._doors.newest

    def run(self) -> None:
        counted, looked = 0, 0.0
        while not self._ended.wait(PAUSE_S):
            counted += 1
            name, sent = f"probe-{counted}", time.time()
            body = {"spec": {"name": name, "script": "#!/bin/sh\ntrue\n", "hold": True}}
            try:
                job = self._doors.ask("POST", "jobs", body, key=f"{name}/{sent}", timeout_s=TIMEOUT_S)["job"]
                order = Order(int(job), name, 1, 0, time.time(), held=True)
                self._ledger.add([order], sent, self._doors.newest)
                self._to_cancel.append(order)
                if time.time() - looked > HOSTS_EVERY_S:
                    looked = time.time()
                    status = self._doors.ask("GET", "status", timeout_s=TIMEOUT_S)
                    self.hosts.append((looked, int(status["hosts"].get("UP", 0))))
                self.cancel()
            except (NoAnswer, Refused):
                continue

    def cancel(self) -> None:
        """What it has submitted and not yet cancelled; NoAnswer when nobody does it now."""
        while self._to_cancel:
            order = self._to_cancel[-1]
            order.cancel_sent = order.cancel_sent or time.time()
            with suppress(Refused):  # an earlier request was heard, and its answer lost
                self._doors.ask("DELETE", f"jobs/{order.id}", timeout_s=TIMEOUT_S)
            order.cancel_acked = time.time()
            self._to_cancel.pop()


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds until the first acknowledgement, and until the hosts were UP again, for one group of faults."""

    what: str
    acks_s: list[float]
    hosts_s: list[float]


def recoveries(
    played: Sequence[Played], acks: Sequence[tuple[float, float, str]], hosts: Sequence[tuple[float, int]],
    total: int,
) -> list[Recovery]:  # fmt: skip
    """By kind of fault; of a daemon only those that struck the leader."""
    groups: dict[str, list[float]] = {}
    for one in played:
        kind = one.fault.kind
        if kind.startswith("daemon") and one.led:
            groups.setdefault(kind, []).append(one.begun)
        elif kind.startswith("database") and one.ended:
            groups.setdefault(f"{kind}, from its end", []).append(one.ended)
    down = [(p.begun, p.ended or float("inf")) for p in played if p.fault.kind.startswith("host")]

    def expected(at: float) -> int:
        return total - sum(begun <= at <= ended for begun, ended in down)

    up = [(at, at) for at, count in hosts if count >= expected(at)]
    served = [(sent, answered) for sent, answered, _ in acks]
    return [
        Recovery(kind, _waits(served, times), _waits(up, times)) for kind, times in sorted(groups.items())
    ]


def _waits(answers: Sequence[tuple[float, float]], times: Sequence[float]) -> list[float]:
    """From each time to the first answer to what was asked after it, where there is one."""
    found = []
    for at in times:
        later = [answered - at for sent, answered in answers if sent >= at]
        if later:
            found.append(min(later))
    return found
