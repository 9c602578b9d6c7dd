"""The daemon's playbooks over processes that only say what a test lets them say."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rm.adapters.playbook.catalogue import Catalogue
from rm.adapters.store.memory import MemoryStore
from rm.core.monitoring.mesh import Cron, Schedule
from rm.core.people.audit import Act
from rm.core.playbook_runs import PlaybookRun, PlaybookRuns, TaskOutcome
from rm.daemon.playbooks.runner import Runner
from rm.daemon.playbooks.schedules import Schedules
from rm.daemon.playbooks.service import Playbooks
from rm.daemon.playbooks.starting import Starting
from rm.daemon.playbooks.telling import Telling
from rm.errors import ConfigError
from rm.units import HOUR_US
from tests.fakes import PATIENCE_S, ManualClock

SITE = """# Updates the cluster
- hosts: all
  vars_prompt:
    - {name: password, prompt: Password of the mirror}
    - {name: release, prompt: Release, private: false, default: "7.2"}
  tasks:
    - name: Say
      debug: {msg: hello}
"""
SURVEY = """channel: {description: Channel, choices: [stable, testing], default: stable}
reboot: {description: Reboot afterwards, type: bool}
mirrors: {description: Mirrors, type: list, elements: str}
"""
PLAIN = "- hosts: all\n  tasks:\n    - ping:\n"
GONE = "- hosts: all\n  tasks:\n    - import_tasks: gone.yml\n"


def folder_of(place: Path) -> Path:
    """Three playbooks: one with a survey, one without, and one that cannot be read."""
    folder = place / "playbooks"
    folder.mkdir()
    for name, text in (
        ("site.yml", SITE), ("site.survey.yml", SURVEY), ("plain.yaml", PLAIN), ("broken.yml", GONE),
        ("notes.txt", "none"),
    ):  # fmt: skip
        (folder / name).write_text(text)
    return folder


class FakeProcess:
    """`say` is a line of it; `end` its last one."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self.orders = dict(orders)
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.stopped, self.killed = threading.Event(), False

    def say(self, **line: Any) -> None:
        self.lines.put(line)

    def task(self, outcome: TaskOutcome) -> None:
        self.say(kind="task", outcome=asdict(outcome))

    def end(self, state: str = "ok", **more: Any) -> None:
        self.say(kind="end", state=state, message=more.pop("message", ""), **more)
        self.lines.put(None)

    def die(self) -> None:
        self.lines.put(None)

    def stop(self) -> None:
        self.stopped.set()

    def kill(self) -> None:
        self.killed = True
        self.lines.put(None)

    def wait(self, timeout_s: float | None = None) -> int | None:
        return -9


@dataclass
class FakeTimers:
    """`due` by name; nothing calls them but a test."""

    due: dict[str, tuple[Schedule, Callable[[], object], int]] = field(default_factory=dict)

    def follow(
        self, name: str, schedule: Schedule, work: Callable[[], object], last_us: int = 0,
        jitter_us: int = 0, slip_us: int = 0,
    ) -> None:  # fmt: skip
        assert slip_us > 0
        self.due[name] = (schedule, work, last_us)

    def forget(self, name: str) -> None:
        self.due.pop(name, None)

    def next_us(self, name: str) -> int | None:
        return 1_900_000_000_000_000 if name in self.due else None


class Playing:
    """All of it, in memory; `processes` by when they were started."""

    def __init__(self, folder: Path, shipped: tuple[str, ...] = (), runs: PlaybookRuns | None = None) -> None:
        self.runs = runs or MemoryStore().playbook_runs
        self.clock = ManualClock()
        self.processes: list[FakeProcess] = []
        self.started = threading.Semaphore(0)
        self.acts: list[Act] = []
        self.may = True
        self.timers = FakeTimers()
        self.runner = Runner(
            runs=self.runs, clock=self.clock, start=self.start, at_once=2, time_limit_us=HOUR_US,
            may_start=lambda user: self.may,
        )  # fmt: skip
        starting = Starting(catalogue=Catalogue(str(folder), shipped), runner=self.runner, clock=self.clock)
        self.schedules = Schedules(
            runs=self.runs,
            clock=self.clock,
            timers=self.timers,
            start=lambda one: starting.start(one.playbook, one.options, one.answers, one.by, one.id),
            check=checked,
            may_start=lambda user: self.may,
            record=self.acts.append,
        )
        self.telling = Telling(runs=self.runs, clock=self.clock, enabled=True)
        self.service = Playbooks(
            starting=starting, runs=self.runs, runner=self.runner, schedules=self.schedules, clock=self.clock,
            telling=self.telling,
        )  # fmt: skip

    def start(self, orders: Mapping[str, Any]) -> FakeProcess:
        self.processes.append(FakeProcess(orders))
        self.started.release()
        return self.processes[-1]

    def next(self) -> FakeProcess:
        """The process that is started next."""
        assert self.started.acquire(timeout=PATIENCE_S)
        return self.processes[-1]

    def run(self, id: int) -> PlaybookRun:
        found = self.runs.get(id)
        assert found is not None
        return found


def checked(expression: str) -> None:
    if len(expression.split()) != 5:
        raise ConfigError(f"The cron expression '{expression}' says nothing.")
    assert Cron(expression)


OUTCOME = TaskOutcome(
    1, "h1", "Update", "Install <b>it</b>", "apt", "changed", at_us=5, took_us=1_500_000, message="done",
    output="two\nlines", diffs=("--- a\n+++ b\n-old\n+new\n",), items=(("pkg", "changed", ""),),
    file="/etc/rm/site.yml", line=7,
)  # fmt: skip


def outcome(number: int, **fields: Any) -> TaskOutcome:
    return replace(OUTCOME, number=number, **fields)


@contextmanager
def playing_in(place: Path) -> Iterator[Playing]:
    """Of those playbooks, one is for draining hosts."""
    playing = Playing(folder_of(place), ("drain",))
    yield playing
    for process in playing.processes:
        process.die()
    playing.service.close()
