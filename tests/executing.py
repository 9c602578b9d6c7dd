"""An executor over hosts that answer by hand, and what it is given to do."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rm.adapters.store.log_directory import LogDirectory
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Intent, Launch
from rm.core.model.job import Task, TaskPlacement
from rm.core.model.logs import KeptLog
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.greeting import HostReport
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.errors import Unreachable
from rm.protocol import attempts as wire
from rm.protocol.notifications import Iterations, Unasked
from tests.agent_process import until
from tests.fakes import FakeHosts, Inbox, ManualClock, said

LAUNCH = Launch(1, 1, "h1", (TaskPlacement(0, "h1"),), hold=False)
SILENCE = Unreachable("h1 did not answer in time; whether it was done is unknown.")


def request_of(action: Launch) -> wire.Launch:
    return wire.Launch(
        job=action.job, attempt=action.attempt, epoch=7, user="alice", script="true", args=[], chdir="/",
        chdir_required=False, env={}, tasks=[wire.Task(rank=t.rank, gpus=[], env={}) for t in action.tasks],
        mem_bytes_per_task=0, time_limit_us=0, grace_us=0, hold=action.hold, allow_root=False, not_after_us=0,
    )  # fmt: skip


class House:
    """An executor with everything around it in the test's hands."""

    def __init__(self, logs: Path, **more: Any) -> None:
        self.hosts, self.inbox, self.deposed = FakeHosts(), Inbox(), Inbox()
        self.iterations: list[tuple[str, Iterations]] = []
        self.leads = self.may_act = True
        self.strays: set[tuple[str, int, int]] = set()
        self.tasks = {("h1", 1, 1, rank): Task(rank, "h1") for rank in range(3)}
        self.logs = logs
        place = more.pop("place", LogDirectory(logs))
        given = {
            "hosts": self.hosts,
            "post": self.inbox,
            "clock": ManualClock(9_000_000),
            "leadership": Leadership(7, lambda: self.leads, self.deposed, lambda: self.may_act),
            "launch_of": request_of,
            "home": LogHome(self.hosts, place, logs, 1_000),
            "placed": lambda host, job, attempt, rank: self.tasks.get((host, job, attempt, rank)),
            "is_stray": lambda host, job, attempt: (host, job, attempt) in self.strays,
            "launch_within_us": 10_000_000,
            "on_iterations": lambda host, message: self.iterations.append((host, message)),
            "owner_of": lambda job: "",
            "delivery_of": lambda action: None,
            "repeat_s": 0.01,
        }
        self.executor = Executor(**given | more)

    def connect(self, host: str = "h1", tasks: tuple[dict[str, Any], ...] = ()) -> HostReport:
        self.executor.on_state(host, True, "")
        self.hosts.take("facts", host).answer(boot_id="boot", cpus=4)
        self.hosts.take("tasks", host).answer(tasks=list(tasks))
        report: HostReport = self.inbox.wait(
            lambda i: isinstance(i, HostReport) and i.up.host == host and self.executor.is_current(i)
        )
        self.executor.repeat_open(host)
        return report

    def reconnected(self, host: str, cluster: str) -> None:
        """The channel that the executor wants to be opened anew, is."""
        until(lambda: host in self.hosts.reconnected, "the channel is opened anew")
        self.hosts.clusters[host] = cluster
        self.executor.on_state(host, False, "closed")
        self.inbox.wait(ev.HostSilent)
        self.inbox.items.clear()
        self.executor.on_state(host, True, "")

    def submit(self, *actions: Action, first: int = 1) -> None:
        self.executor.submit([Intent(first + i, a) for i, a in enumerate(actions)])

    def settled(self, number: int) -> None:
        self.outcome(number)

    def outcome(self, number: int) -> tuple[KeptLog, ...]:
        """What became of the logs of an action that has settled."""
        settled: ev.ActionSettled = self.inbox.wait(
            lambda i: isinstance(i, ev.ActionSettled) and i.action == number
        )
        return settled.logs

    def open(self, host: str = "h1") -> list[int]:
        return [i.id for i in self.executor.open_intents(host)]


def text(data: str, size: int | None = None, offset: int | None = None) -> dict[str, Any]:
    whole = len(data) if size is None else size
    return {
        "data": base64.b64encode(data.encode()).decode(),
        "offset": len(data) if offset is None else offset,
        "size": whole,
        "done": True,
    }


def exit_of(job: int, **more: Any) -> Unasked:
    how = {"code": 0, "signal": 0, "started_us": 1, "ended_us": 2, "oom": False, "why": ""}
    return said("exit", **{"job": job, "attempt": 1, "rank": 0, **how, **more})


def executing(directory: Path, **given: Any) -> Iterator[House]:
    """For a fixture."""
    made = House(directory, **given)
    yield made
    made.executor.close()
