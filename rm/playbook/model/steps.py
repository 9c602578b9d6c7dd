"""Steps: what travels to a host, and what a task came to. Plain data that turns into JSON."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from rm.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One operation for the executor. `task` numbers the tasks of the run: after a failed step the
    executor still runs the other steps of the same task (loop items), then stops, unless
    `ignore_errors`. `user` is the account to run as when it is not the executor's own.
    `check` only says what would change. Environment values are text. After `timeout_s` (0 = never) it is
    broken off; with `background_s` it is started, and broken off after so long, while nobody waits.
    """

    id: int
    task: int
    op: str
    args: dict[str, Any]
    user: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    ignore_errors: bool = False
    check: bool = False
    timeout_s: float = 0
    background_s: float = 0

    def wire(self) -> dict[str, Any]:
        """The JSON object of docs/agent-protocol.md; defaults are left out."""
        step: dict[str, Any] = {"id": self.id, "task": self.task, "op": self.op, "args": self.args}
        step["check"] = self.check
        step |= {"user": self.user} if self.user else {}
        step |= {"environment": self.environment} if self.environment else {}
        step |= {"ignore_errors": True} if self.ignore_errors else {}
        step |= {"timeout": self.timeout_s} if self.timeout_s else {}
        step |= {"async": self.background_s} if self.background_s else {}
        return step


@dataclass(frozen=True, slots=True)
class Way:
    """How a task gets to its host, where the task says so: who logs in, the connection ("local", "ssh": never
    an agent's channel, "auto", or "" for the host's own), and variables stronger than the host's."""

    login: str = ""
    connection: str = ""
    variables: tuple[tuple[str, str], ...] = ()


THE_HOSTS = Way()  # as the host itself says


@dataclass(frozen=True, slots=True)
class Batch:
    """Steps to run in one go, all with the same need for root. `control`: the control machine carries
    them out (rm/adapters/playbook/control), not the host's executor. `target` is the host that does them,
    when it is another one; they start `delay_s` seconds from now. No more than `throttle` hosts (if not 0)
    are at `where` at a time."""

    steps: tuple[Step, ...]
    become: bool
    control: bool = False
    target: str = ""
    delay_s: float = 0
    way: Way = THE_HOSTS
    throttle: int = 0
    where: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task came to on one host.

    `status`: ok, changed, failed, skipped or unreachable. `ignored` marks a failure that
    `ignore_errors` allows. `might_run` marks a command in check mode. `diffs` are unified diffs.
    `items` are (label, status, message) of a loop. `result` is what `register` keeps. `rescued`: a
    failure that a `rescue` takes care of. `delegated` names the hosts that did it, when others.
    `fatal`: a failure here is one of all hosts. `took_us` is the time of its steps by the host's clock, 0
    where it does not say.
    """

    host: str
    play: str
    task: str
    module: str
    status: str
    message: str = ""
    ignored: bool = False
    might_run: bool = False
    handler: bool = False
    diffs: tuple[str, ...] = ()
    items: tuple[tuple[str, str, str], ...] = ()
    result: dict[str, Any] = field(default_factory=dict)
    line: int = 0
    file: str = ""
    rescued: bool = False
    fatal: bool = False
    delegated: str = ""
    took_us: int = 0
