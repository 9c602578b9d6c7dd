"""The whole product on a lab: real hosts, a real daemon as a process of its own, and its two public doors."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rm.adapters.hosts.settings import SshSettings
from rm.client.connection import Connection
from rm.errors import Conflict, RmError
from rm.lab import Lab
from tests import preloaded, prepared

WAIT_S = 60  # of patience before a test fails; nothing is timed by it
SHORTEST_S, LONGEST_S = 0.02, 0.25  # between two looks whether something has happened
PASSING_S = 0.05  # the same, of states that pass
LONG_POLL_S = 5  # in which the daemon answers as soon as a job has ended: no look until then
RMX = Path(sys.executable).with_name("rmx")
PRELOADED = {"cwd", "timeout", "input"}  # options with which rmx begins in a process that has loaded it
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
Job = dict[str, Any]
Settings = Mapping[str, Mapping[str, Any]]
# a busy machine must not look like a lost host, nor like a job that does not end when it is asked to
SETTINGS: Settings = {
    "jobs": {"run_root_as": "rmjob", "grace_s": 5.0, "deliver": ""},
    "hosts": {"down_after_s": 300.0},
    "ssh": {"connect_timeout_s": 30.0, "dead_after_s": 30.0, "agent_dead_after_s": 60.0},
    "monitor": {"enabled": False},
}
# for tests that lose a host: noticed within 6 s, but a process that gets no processor for some is none
LOSING: Settings = {"ssh": {"connect_timeout_s": 10.0, "dead_after_s": 6.0}}
LAST_WORDS = 6000  # characters of a daemon's log that a failing test shows
CRASHES = {-n for n in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)}
alive: list[Cluster] = []  # those of this process, for the report of a test that fails
_as_somebody = threading.Lock()


def ssh_settings(lab: Lab, **other: Any) -> SshSettings:
    """For playbooks on a lab's hosts: who tests that a host is lost gives `LOSING["ssh"]`."""
    return SshSettings(known_hosts=lab.known_hosts, **{**SETTINGS["ssh"], **other})


def until(true: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    """The first true value of `true()`."""
    deadline, pause_s = time.monotonic() + wait_s, SHORTEST_S
    while time.monotonic() < deadline:
        if value := true():
            return value
        time.sleep(pause_s)
        pause_s = min(LONGEST_S, pause_s * 1.2)  # a look costs the daemon as much as a job
    raise AssertionError(f"did not happen within {wait_s} s: {what}")


class ClientOf(Connection):
    """A client that connects as another user: the kernel tells the daemon who connected."""

    def __init__(self, path: str, uid: int) -> None:
        super().__init__(path)
        self.uid = uid

    def _open(self, timeout_s: float | None) -> Any:
        with _as_somebody:
            os.seteuid(self.uid)
            try:
                return super()._open(timeout_s)
            finally:
                os.seteuid(0)


class Cluster:
    """A lab with agents on its hosts, and a daemon that can be killed and started again.

    `directory` must be one that every user can enter.
    """

    def __init__(self, lab: Lab, directory: Path, settings: Settings) -> None:
        self.lab = lab
        self.directory = directory
        self.socket = str(directory / "rm.sock")
        self.config = directory / "rm.toml"
        self.log_file = directory / "daemon.log"
        self.daemon: subprocess.Popen[bytes] | preloaded.Program | None = None
        self.program = RMX
        own: Settings = {
            "daemon": {"socket": self.socket, "state_dir": str(directory / "state")},
            "ssh": {"known_hosts": str(lab.known_hosts)},
        }
        self._layers: list[Settings] = []
        self.configure({**SETTINGS, "daemon": {}}, own, settings)
        self.client = self.client_of("root")

    def configure(self, *layers: Settings) -> None:
        """Write rm.toml; what is given later wins. A list of tables becomes [[section.key]]."""
        self._layers += layers
        tables: dict[str, dict[str, Any]] = {}
        for layer in self._layers:
            for section, values in layer.items():
                tables.setdefault(section, {}).update(values)
        lines = []
        for section, values in tables.items():
            listed = {key: value for key, value in values.items() if is_tables(value)}
            lines += [f"[{section}]", *pairs({k: v for k, v in values.items() if k not in listed})]
            for key, value in listed.items():
                for table in value:
                    lines += [f"[[{section}.{key}]]", *pairs(table)]
        self.config.write_text("\n".join(lines) + "\n")

    # -- the daemon's life

    def prepare(self) -> None:
        """Prepare the hosts as `bootstrap.yml` does, start the daemon and let it know them."""
        prepared.prepare(self.lab, ssh_settings(self.lab))
        self.start()
        self.rmx("host", "import", str(self.lab.inventory))
        self.all_up()

    def start(self) -> None:
        if self.program == RMX:
            self.daemon = preloaded.daemon(RMX, self.config, self.log_file)
        else:
            with self.log_file.open("ab") as log:
                self.daemon = subprocess.Popen(
                    [self.program, "--config", self.config, "daemon"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={**os.environ, "RM_CONFIG": ""},
                )
        self.client.close()

        def answers() -> bool:
            assert self.daemon is not None
            assert self.daemon.poll() is None, self.last_words()
            try:
                self.client.get("status")
            except RmError:  # it does not listen yet, or waits for its turn to lead
                self.client.close()
                return False
            return True

        until(answers, "the daemon answers")

    def last_words(self) -> str:
        """How the daemon has ended, if it has, and the end of its log."""
        code = None if self.daemon is None else self.daemon.poll()
        by = signal.Signals(-code).name if code is not None and code < 0 else code
        end = "runs" if code is None else f"ended by {by}"
        said = self.log_file.read_text()[-LAST_WORDS:] if self.log_file.exists() else ""
        return f"the daemon on {self.socket} {end}; it said:\n{said}"

    def not_crashed(self) -> None:
        """A daemon that was ended by a fault of its own must not pass for one that the test ended."""
        assert self.daemon is None or self.daemon.poll() not in CRASHES, self.last_words()

    def kill(self) -> None:
        """SIGKILL: no last words."""
        assert self.daemon is not None
        self.not_crashed()
        self.daemon.kill()
        self.daemon.wait(WAIT_S)
        self.client.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        """SIGTERM: it ends by itself."""
        self.client.close()
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
                raise AssertionError("the daemon did not end at SIGTERM") from None
        self.not_crashed()

    # -- the command line

    def run(self, *argv: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        """`rmx ARGV…`, whatever comes of it; `options` are subprocess.run's."""
        env = {**os.environ, "RM_CONFIG": str(self.config), **options.pop("env", {})}
        words, options = [self.program, *map(str, argv)], {"timeout": WAIT_S, "cwd": "/", **options}
        if self.program == RMX and options.keys() <= PRELOADED:
            return preloaded.run(words, env=env, **options)
        options = {"capture_output": True, "text": True, **options}
        return subprocess.run(words, env=env, check=False, **options)

    def rmx(self, *argv: Any, **options: Any) -> str:
        """The standard output of `rmx ARGV…`, which must succeed."""
        done = self.run(*argv, **options)
        assert done.returncode == 0, f"rmx {argv}: {done.returncode}: {done.stderr}"
        return done.stdout

    def submit(self, *argv: Any, **options: Any) -> int:
        """The id of the job that `rmx submit ARGV…` submitted, with an empty environment."""
        return int(self.rmx("submit", "--parsable", "--export=NONE", *argv, **options))

    def refused(self, code: int, *argv: Any, **options: Any) -> str:
        """The one sentence with which `rmx ARGV…` fails."""
        done = self.run(*argv, **options)
        assert (done.returncode, done.stdout) == (code, ""), (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("rmx: ")
        return line.removeprefix("rmx: ")

    # -- the HTTP API

    def client_at(self, path: str) -> Connection:
        """A client of another daemon."""
        return Connection(path)

    def client_of(self, user: str) -> Connection:
        return Connection(self.socket) if user == "root" else ClientOf(self.socket, pwd.getpwnam(user).pw_uid)

    def post_job(self, script: str, user: str = "root", **spec: Any) -> int:
        """The id of a job submitted over the API."""
        spec = {"name": "test", "script": f"#!/bin/sh\n{script}\n", **spec}
        return int(self.client_of(user).post("jobs", body={"spec": spec})["job"])

    def job(self, job: int) -> Job:
        found: Job = self.client.get("jobs", job)["job"]
        return found

    def wait(self, job: int, *states: str, wait_s: float = WAIT_S) -> Job:
        """The job as soon as it is in one of the states (or at its end); fails if it ends otherwise."""
        wanted = states or FINAL
        ends = {*wanted} <= {*FINAL}
        deadline, pause_s = time.monotonic() + wait_s, SHORTEST_S
        while True:
            if ends:
                self.client.get("jobs", job, "wait", timeout_s=LONG_POLL_S)
            found = self.job(job)
            if found["state"] in wanted:
                return found
            assert found["state"] not in FINAL, f"not {wanted}: {told(found)}"
            assert time.monotonic() < deadline, f"never {wanted}: {told(found)}"
            time.sleep(pause_s)
            pause_s = min(PASSING_S, pause_s * 1.2)

    def all_started(self, job: int) -> None:
        until(
            lambda: (tasks := self.job(job)["tasks"]) and all(t["started_us"] for t in tasks),
            f"every task of job {job} has started",
        )

    def log(self, job: int, task: int = 0, stream: str = "out") -> str:
        return b"".join(self.client.stream("jobs", job, "logs", task=task, stream=stream)).decode()

    def until_said(self, job: int, text: str, task: int = 0) -> None:
        """Wait until the task has written exactly this."""
        until(lambda: self.said(job, task) == text, f"task {task} of job {job} has said {text!r}")

    def said(self, job: int, task: int = 0, stream: str = "out") -> str:
        """What the task has written so far; before its start there is no log."""
        try:
            return self.log(job, task, stream)
        except Conflict:
            return ""

    def hosts(self) -> dict[str, dict[str, Any]]:
        return {host["name"]: host for host in self.client.get("hosts")["hosts"]}

    def host_state(self, name: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = until(
            lambda: (host := self.hosts()[name])["state"] in states and host,
            f"{name} becomes {states}",
        )
        return found

    def all_up(self) -> None:
        until(
            lambda: all(h["schedulable"] for h in self.hosts().values()),
            "every host is up",
        )

    def tidy(self) -> None:
        """End what a test left behind, so that its failure stays its own."""
        for job in self.client.get("jobs")["jobs"]:
            if job["state"] not in FINAL:
                with suppress(RmError):
                    self.client.delete("jobs", job["id"])
        until(lambda: not any(host["jobs"] for host in self.hosts().values()), "the hosts are free")
        self.all_up()  # a daemon that was restarted may not have reached them all yet

    # -- the hosts

    def read(self, host: str, path: str) -> str:
        """A file on a host; empty when there is none."""
        return self.lab.exec(host, ["cat", path]).stdout.decode()

    def write(self, host: str, path: str, text: str, mode: str = "644") -> None:
        """A file on a host, there at once: no program sees a part of it."""
        script = f"cat >{path}.new && chmod {mode} {path}.new && mv {path}.new {path}"
        done = self.lab.exec(host, ["sh", "-c", script], text.encode())
        assert done.returncode == 0, done.stderr

    def alive(self, host: str, pattern: str) -> list[str]:
        """Processes of a host whose command line matches."""
        argv = ["pgrep", "-f", "-a", "--", pattern]
        return self.lab.exec(host, argv).stdout.decode().splitlines()


def is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def pairs(table: Mapping[str, Any]) -> list[str]:
    # JSON's strings, numbers, booleans and lists are TOML's, too
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def told(job: Job) -> str:
    history = "; ".join(what for _, what in job["history"])
    return f"job {job['id']} is {job['state']}, reason {job['reason']}; history: {history}"


@contextmanager
def running(lab: Lab, directory: Path, settings: Settings) -> Iterator[Cluster]:
    cluster = Cluster(lab, directory, settings)
    alive.append(cluster)
    try:
        cluster.prepare()
        yield cluster
    except BaseException as problem:
        problem.add_note(cluster.last_words())  # it is gone when the report is made
        raise
    finally:
        alive.remove(cluster)
        cluster.stop()


def raw(path: str, request: bytes) -> http.client.HTTPResponse:
    """The answer to a request as it is, for what no client would send."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.sendall(request)
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response
