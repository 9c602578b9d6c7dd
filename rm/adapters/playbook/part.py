"""Carries out the hosts of one part of a play: batches to a pool of threads, answers back to the hosts."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rm.adapters.playbook.control import Hands, carry_out
from rm.adapters.playbook.hosts import Ways
from rm.adapters.playbook.orders import Orders
from rm.adapters.playbook.program import OutcomeUnknown
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.secrets import masked, masked_text
from rm.errors import RmError, UsageError
from rm.playbook.model.steps import Batch
from rm.playbook.run.conduct import Part
from rm.playbook.run.report import Progress, Report

WAKE_S = 1.0  # a Ctrl-C that comes right before a wait is seen only after it


class Conductor:
    """Results go to `report`; `stopping` ends waits of the control machine's own steps.

    Everything but the steps themselves happens in the thread that calls `run`.
    """

    def __init__(
        self,
        orders: Orders,
        roster: Roster,
        ways: Ways,
        report: Report,
        stopping: threading.Event,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.orders, self.roster, self.ways = orders, roster, ways
        self.report, self.stopping, self.pool = report, stopping, pool
        self.planned: dict[str, dict[str, Any]] = {}  # in check mode: what would be there by now
        self._over: queue.SimpleQueue[tuple[str, Batch, Future[dict[str, Any]]]] = queue.SimpleQueue()

    def run(self, part: Part) -> None:
        """The hosts of one part of a play, to the end."""
        later: list[tuple[float, int, str, Batch]] = []  # steps that wait for their time
        running = count = 0
        self._over = queue.SimpleQueue()
        while not part.done:
            for name, batch in part.ready():
                self._settle(part)  # what was skipped on the way is told before what begins
                running, count = running + 1, count + 1
                if batch.delay_s > 0:
                    heapq.heappush(later, (time.monotonic() + batch.delay_s, count, name, batch))
                else:
                    self._start(part, name, batch)
            self._settle(part)
            if not running:
                if not part.done:
                    raise RuntimeError(f"the hosts of the play '{part.play.name}' wait for each other")
                break
            try:
                wait_s = max(0.0, min(WAKE_S, later[0][0] - time.monotonic())) if later else WAKE_S
                name, batch, future = self._over.get(timeout=wait_s)
            except queue.Empty:
                while later and later[0][0] <= time.monotonic():
                    self._start(part, *heapq.heappop(later)[2:])
                continue
            running -= 1
            try:
                result = future.result()
            except RmError as problem:
                part.lost(name, str(problem), isinstance(problem, OutcomeUnknown))
            else:
                self.planned[batch.target or name] = result["planned"]
                part.record(name, result["results"])
            self._settle(part)

    def _start(self, part: Part, name: str, batch: Batch) -> None:
        over = self._over
        task, more = part.doing(name)
        said = masked_text(task, self.orders.files.vault.secrets)
        self.orders.tell(Progress("start", said, hosts=(name,), more=more))
        future = self.pool.submit(self._carry_out, name, batch)
        future.add_done_callback(lambda done: over.put((name, batch, done)))

    def _settle(self, part: Part) -> None:
        for settled in part.settled():
            self.roster.adopt(settled)
            result = masked(settled, self.orders.files.vault.secrets)
            self.report.results.setdefault(result.host, []).append(result)
            self.orders.tell(Progress("task", result=result))

    def _carry_out(self, name: str, batch: Batch) -> dict[str, Any]:
        """A batch's steps to their answers; runs in a thread of the pool. Raises RmError."""
        target = batch.target or name
        request = {
            "steps": [step.wire() for step in batch.steps],
            "check": self.orders.check,
            "diff": self.orders.diff,
            "planned": self.planned.get(target, {}),
        }
        if not batch.control:
            return self.ways.send(target, batch, request)
        hands = Hands(
            host=self.ways.host(target, batch.way),
            request=request,
            send=lambda host, asked: self.ways.send(host, _for(host, target, batch), asked),
            reconnect=lambda: self.ways.reconnect(target),
            hosts=tuple(self.roster.hosts.values()),
            stopping=self.stopping,
            daemon=self.orders.daemon,
            groups=self.roster.groups,
            settings=self.ways.settings,
            passwords=self.ways.passwords(target, batch.way),
            local=self.ways.connection(target, batch.way) == "local",
            become=batch.become,
            prompt=self.orders.prompt,
        )
        return carry_out(hands)


def _for(host: str, target: str, batch: Batch) -> Batch:
    """The batch of `target` for another host that its step asks, too. Raises UsageError."""
    if host == target or not batch.way.variables:
        return batch
    names = ", ".join(name for name, _ in batch.way.variables)
    raise UsageError(
        f"The step on host {target} also asks host {host}: {names} of the task cannot hold for both.",
        "Set it in the inventory, for each host.",
    )
