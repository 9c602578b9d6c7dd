"""A real agent as a local process, spoken to over pipes, with a state directory of its own."""

from __future__ import annotations

import base64
import json
import os
import pwd
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests import preloaded
from tests.preloading import AGENTS

WAIT_S = 60  # of patience before a test fails; nothing is timed by it
GRACE_US = 20_000_000  # for a task that ends when it is asked to, also where the machine is busy
ME = pwd.getpwuid(os.getuid()).pw_name
# root may start tasks of others; without root the agent can only be its own user
USER = "nobody" if os.getuid() == 0 else ME


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = true()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"did not happen: {what}")


class Agent:
    """`mounts`: shell commands that change what it sees, in a mount namespace of its own."""

    def __init__(
        self,
        state: Path,
        cgroups: str = "as they are",
        files: Path = AGENTS,
        mounts: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.state = state
        command = [sys.executable, "-S", "-E", str(files / "rm_agent.py"), "--serve", *options]
        if cgroups != "as they are":
            # another layout, mounted in a namespace of the agent's own: none, or pure v2
            kind = {"none": "tmpfs", "v2": "cgroup2"}[cgroups]
            mounts = f"mount -t {kind} none /sys/fs/cgroup\n{mounts}"
        if mounts:
            command = ["unshare", "--mount", "sh", "-ec", f'{mounts}\nexec "$@"', "sh", *command]
        env = {"RM_AGENT_STATE": str(state), "PATH": os.environ["PATH"]}
        self.process: subprocess.Popen[bytes] | preloaded.Program
        if mounts or options or files != AGENTS:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env)
        else:
            self.process = preloaded.agent(env)
        self.events: list[dict[str, Any]] = []
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None: it says nothing more
        self._number = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.hello = self.event("hello")
        except BaseException:
            self.kill()  # or a later test fails by what is left of it
            raise

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._news.put(json.loads(line))
        self._news.put(None)

    def _next(self, seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for old in self.events:
            if seen(old):
                return old
        while True:
            message = self._news.get(timeout=WAIT_S)
            if message is None:
                self._news.put(None)
                raise AssertionError("the agent has ended")
            if "event" in message:
                self.events.append(message)
            else:
                self._replies[message["id"]] = message
            if seen(message):
                return message

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first notification of that kind with these fields, also one that came before."""
        return self._next(lambda m: m.get("event") == kind and all(m.get(k) == v for k, v in fields.items()))

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, op: str, **args: Any) -> dict[str, Any]:
        """The whole reply."""
        return self.answer(self.begin(op, **args))

    def begin(self, op: str, **args: Any) -> int:
        """Send a request; its number."""
        self._number += 1
        self.send(json.dumps({"id": self._number, "op": op, "epoch": 1, **args}).encode())
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        """The whole reply to a request, once; replies to others may come before."""
        if number not in self._replies:
            self._next(lambda m: m.get("id") == number and "ok" in m)
        return self._replies.pop(number)

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        """The result of an operation that must succeed."""
        reply = self.ask(op, **args)
        assert reply["ok"], reply
        return dict(reply["result"])

    def launch(self, script: str, job: int = 1, ranks: int = 1, **args: Any) -> dict[str, Any]:
        return self.ask("launch", **launch_request(script, job, ranks, **args))

    def log(self, job: int = 1, rank: int = 0, stream: str = "out", attempt: int = 1) -> str:
        reply = self.call("logs", job=job, attempt=attempt, rank=rank, stream=stream, offset=0, limit=1 << 20)
        return base64.b64decode(reply["data"]).decode()

    def tasks(self) -> list[dict[str, Any]]:
        return list(self.call("tasks")["tasks"])

    def end(self) -> int:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.end()


def launch_request(script: str, job: int = 1, ranks: int = 1, **args: Any) -> dict[str, Any]:
    tasks = [{"rank": r, "gpus": [], "env": {}} for r in range(ranks)]
    request: dict[str, Any] = {
        "job": job, "attempt": 1, "user": USER, "script": script, "args": [], "chdir": "/", "output": "",
        "chdir_required": False, "error": "", "env": {}, "tasks": tasks,
        "mem_bytes_per_task": 0, "time_limit_us": None, "grace_us": GRACE_US, "hold": False,
        "allow_root": ME == "root" and USER == "root",
    }  # fmt: skip
    return {**request, **args}


def agents_without_programs(folder: Path) -> Path:
    """The agents' files, where bpf() is a call that the kernel does not know."""
    for file in AGENTS.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    bpf = folder / "rm_bpf.py"
    bpf.write_text(bpf.read_text() + "\n\ndef call(command, attributes):\n    raise OSError(38, 'no bpf')\n")
    return folder


Start = Callable[..., Agent]


@contextmanager
def agents(where: str | None = None) -> Iterator[Start]:
    """`start()` starts one more agent on the same state; at the end nothing is left."""
    # not below pytest's own folder, into which other users may not look
    state = Path(tempfile.mkdtemp(prefix="rm-agent-", dir=where))
    state.chmod(0o711)
    started: list[Agent] = []

    def start(cgroups: str = "as they are", files: Path = AGENTS, mounts: str = "", **more: Any) -> Agent:
        started.append(Agent(state, cgroups, files, mounts, **more))
        return started[-1]

    try:
        yield start
    finally:
        for agent in started:
            agent.end()
        _clean(state)


def _clean(state: Path) -> None:
    sys.path.insert(0, str(AGENTS))
    try:
        import rm_cgroup
        import rm_files
        import rm_spool
    finally:
        sys.path.remove(str(AGENTS))
    hierarchy = rm_cgroup.Hierarchy(str(state))
    for folder in rm_spool.Spool(str(state)).scan() if (state / "jobs").exists() else []:
        if folder.alive():  # else the number may be another process's by now: they come round soon
            with suppress(Exception):
                os.kill(rm_files.read_json(folder.at("meta.json"))["supervisor"], signal.SIGKILL)
        for pid in rm_cgroup.marked("RM_SCHEDULE", folder.at("schedule.json")):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        group = hierarchy.group(folder.job, folder.attempt)
        group.kill()
        until(group.remove, f"{group.path} is empty")
    if hierarchy.kind:
        until(
            lambda: rm_cgroup.Group(f"{hierarchy.root}/{hierarchy.parent}/agent").remove(),
            "the agent's group is empty",
        )
    hierarchy.remove_parent()
    shutil.rmtree(state)
