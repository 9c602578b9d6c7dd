"""Clients that submit, cancel, requeue, hold and release jobs, and write down what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.nemesis.door import Doors, NoAnswer, Refused
from bench.nemesis.ledger import Ledger, Order

CLIENTS = 4
THINK_S = 1.2  # of a client between two acts, on average
TASK = Path(__file__).with_name("task.sh").read_text()
PAUSE_S = 0.1
TIMEOUT_S = 3.0
GIVE_UP_S = 90.0  # with one submission


class Client(threading.Thread):
    """Each draws from a seed of its own, so that the order of its acts is reproduced."""

    def __init__(
        self, seed: str, sockets: Sequence[str], notes: Path, ledger: Ledger, ended: threading.Event
    ) -> None:
        super().__init__(name=seed, daemon=True)
        self._draw = random.Random(seed)
        self._doors = Doors(sockets)
        self._notes = notes
        self._ledger = ledger
        self._ended = ended
        self._own: list[Order] = []
        self._counted = 0
        self.problems: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(self._draw.expovariate(1 / THINK_S)):
            act = self._draw.choices(
                (
                    self.submit,
                    self.several,
                    self.array,
                    self.chain,
                    self.gang,
                    self.cancel,
                    self.requeue,
                    self.held,
                ),
                (5, 1, 1.5, 1, 3, 1.5, 1.5, 1),
            )[0]
            try:
                act()
            except Refused as error:
                if error.status not in (404, 409):  # too late for it
                    self.problems.append(str(error))
            except NoAnswer:
                continue

    # -- acts

    def submit(self) -> None:
        gpus = self._draw.choice((0, 0, 1, 2))
        self._submit([self._spec(1, gpus=gpus)])

    def several(self) -> None:
        self._submit([self._spec(1) for _ in range(self._draw.randint(4, 10))])

    def array(self) -> None:
        """Its elements may be so short that hosts get several at a time."""
        most = self._draw.choice(("", "", "%1", "%3"))
        spec = self._spec(1) | {"array": f"0-{self._draw.randint(2, 9)}{most}"}
        if self._draw.random() < 0.5:
            spec["script_args"][1] = "0"
        first = self._submit([spec])
        if self._draw.random() < 0.4:
            kind = self._draw.choice(("afterany", "afterok", "aftercorr"))
            more = {"array": spec["array"]} if kind == "aftercorr" else {}
            self._submit([self._spec(1) | more], kind, first)

    def chain(self) -> None:
        """One job after the other."""
        before = self._submit([self._spec(1)])
        for _ in range(self._draw.randint(1, 3)):
            before = self._submit(
                [self._spec(1)], self._draw.choice(("afterany", "afterok", "afternotok")), before
            )

    def gang(self) -> None:
        self._submit([self._spec(self._draw.randint(2, 4), gpus=self._draw.choice((0, 1)))])

    def held(self) -> None:
        orders = self._submit([self._spec(1, hold=True)])
        time.sleep(self._draw.uniform(0.2, 2))
        for order in orders:
            order.release_sent = time.time()
            self._insist("POST", f"jobs/{order.id}/release")

    def cancel(self) -> None:
        order = self._newest()
        if order is not None:
            order.cancel_sent = order.cancel_sent or time.time()
            self._insist("DELETE", f"jobs/{order.id}?{order.chosen}")
            order.cancel_acked = time.time()

    def requeue(self) -> None:
        order = self._newest()
        if order is not None:
            order.requeues.append(time.time())
            self._insist("POST", f"jobs/{order.id}/requeue?{order.chosen}")

    # -- how

    def _newest(self) -> Order | None:
        return self._draw.choice(self._own[-6:]) if self._own else None

    def _spec(self, ranks: int, gpus: int = 0, hold: bool = False) -> dict[str, Any]:
        draw = self._draw
        self._counted += 1
        tenths = draw.choice((1, 5, 10, 20, 40)) if draw.random() < 0.9 else draw.randint(100, 250)
        code, stubborn = draw.choice((0, 0, 0, 0, 3, 7)), int(draw.random() < 0.15)
        return {
            "name": f"{self.name}-{self._counted}",
            "script": TASK,
            "script_args": [str(self._notes), str(tenths), str(code), str(stubborn)],
            "ntasks": ranks,
            "tasks_per_host": draw.choice((0, 1, 2)) if ranks > 1 else 0,
            "gpus_per_task": gpus,
            "hold": hold,
            "chdir": "/",
        }

    def _submit(
        self, specs: list[dict[str, Any]], kind: str = "", before: Sequence[Order] = ()
    ) -> list[Order]:
        """Asked for with one key until somebody acknowledges it. `kind`: of the dependency on the job, or the
        array, `before`."""
        if kind:
            specs = [spec | {"dependency": f"{kind}:{before[0].id}"} for spec in specs]
        key = f"{self.name}/{self._counted}/{self._notes}"
        sent = time.time()
        answer = self._insist("POST", "jobs", {"specs": specs}, key)
        now = time.time()
        orders = [
            Order(
                int(id), spec["name"], spec["ntasks"], int(spec["script_args"][2]), now, held=spec["hold"],
                element=element, after=after(kind, before, element),
            )
            for id, spec in zip(answer["jobs"], specs, strict=True)
            for element in elements(spec.get("array", ""))
        ]  # fmt: skip
        self._ledger.add(orders, sent, self._doors.newest)
        self._own += [order for order in orders if not order.held]
        return orders

    def _insist(self, method: str, path: str, body: Any = None, key: str = "") -> dict[str, Any]:
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return self._doors.ask(method, path, body, key=key, timeout_s=TIMEOUT_S)
            except NoAnswer:
                if time.monotonic() > until:
                    self._ledger.unanswered += bool(key)
                    raise
                time.sleep(PAUSE_S)


def elements(array: str) -> list[int | None]:
    """Of `0-5%2`; of no array the job itself."""
    return [*range(int(array.partition("%")[0].partition("-")[2]) + 1)] if array else [None]


def after(kind: str, before: Sequence[Order], element: int | None) -> tuple[str, tuple[str, ...]] | None:
    """What the element waits for: of `aftercorr` the one of its index."""
    if kind == "aftercorr":
        return "afterok", tuple(one.ref for one in before if one.element == element)
    return (kind, tuple(one.ref for one in before)) if kind else None
