"""The demo's cluster: a lab, its hosts bootstrapped over SSH, and a daemon that can be restarted.

Everything is done through rm's own doors: `rmx playbook`, `rmx daemon`, `rmx host import` and the HTTP
API, as an administrator would do it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from rm.client import Client
from rm.client.connection import Connection
from rm.errors import RmError, Unreachable
from rm.lab import Lab, LabSpec, up
from rm.lab.lab import discard

START_S = 120.0  # of patience, on a machine that is busy
STOP_S = 15.0
PR_SET_PDEATHSIG = 1
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Tell = Callable[[str], None]


class Chosen(Protocol):
    """One way to run rm."""

    def tables(self, spec: LabSpec, shapes: bool) -> str:
        """What it adds to rm.toml, on hosts of this lab, which can shape traffic or not."""
        ...


class Stage:
    """Brought up by `prepare` and `first_daemon`; `stage()` makes it, and takes everything down."""

    def __init__(self, lab: Lab, work: Path) -> None:
        self.lab = lab
        self.work = work
        self.config = work / "rm.toml"
        self.shapes = True
        self._daemon: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._kept: list[subprocess.Popen[bytes]] = []

    @property
    def client(self) -> Client:
        """Of the daemon that runs."""
        assert self._client is not None
        return self._client

    @property
    def full_root(self) -> bool:
        """Whether hosts have several users and control groups, so that jobs run as one of their own."""
        return self.lab.mode != "user"

    # -- commands ------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """This process's, without settings of another rm, with ours, and with rmx in the PATH."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("RM_")}
        path = f"{Path(rmx()[0]).parent}:{env.get('PATH', os.defpath)}"
        return {**env, "RM_CONFIG": str(self.config), "PATH": path}

    def rmx(self, *words: str, inside: bool = False) -> str:
        """Run one rmx command and return its output; `inside` where the hosts can be reached."""
        argv = [*rmx(), *words]
        name = " ".join(["rmx", *(word for word in words[:3] if not word.startswith("-"))])
        return self.run(self.lab.enter_command(argv) if inside else argv, name)

    def run(self, argv: list[str], name: str) -> str:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            told = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            failed = [line for line in told if ": failed" in line or ": unreachable" in line]
            why = (failed or told[-1:] or [f"exit code {done.returncode}"])[0]
            raise RmError(f"`{name}` failed in the demo: {why.rstrip('.')}.")
        return done.stdout

    def keep(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start a program that is ended with the stage."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment(),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._kept.append(process)
        return process

    def end_kept(self) -> None:
        while self._kept:
            process = self._kept.pop()
            process.kill()
            process.wait()

    # -- the daemon ----------------------------------------------------------------------------

    def configure(self, mode: Chosen) -> None:
        """Write the rm.toml of the mode."""
        users = 'run_root_as = "rmjob"' if self.full_root else "allow_root = true"
        self.config.write_text(
            f'[daemon]\nsocket = "{self.work}/rm.sock"\nstate_dir = "{self.work}/state"\n'
            f'[jobs]\n{users}\ngrace_s = 2\ndeliver = ""\n'
            f'[ssh]\nknown_hosts = "{self.lab.known_hosts}"\n'
            # probes beside the measurements would be measured, too: the demo asks for them once
            "[monitor]\nenabled = false\n"
            f"{mode.tables(self.lab.spec, self.shapes)}"
        )

    def prepare(self, mode: Chosen, now: Tell) -> list[str]:
        """Write the rm.toml of the mode, and run the playbooks that every job needs; their names."""
        self.configure(mode)
        # bootstrap installs the agents, too; without users of their own there is none to make
        names = ["bootstrap" if self.full_root else "agents", "probes"]
        for name in names:
            self.playbook(name, now)
        return names

    def playbook(self, name: str, now: Tell) -> None:
        """Run one of rm's own on all hosts."""
        now(f"running the playbook {name} on {len(self.lab.hosts)} hosts")
        self.rmx("playbook", "run", name, "--inventory", str(self.lab.inventory), inside=True)

    def first_daemon(self, mode: Chosen) -> None:
        """Start the daemon, and import the hosts; when this returns they are up."""
        self.start_daemon(mode)
        self.rmx("host", "import", str(self.lab.inventory))
        self.await_hosts()

    def start_daemon(self, mode: Chosen) -> None:
        """Start the daemon, or start it again in another mode, and wait until all hosts are up."""
        self.stop_daemon()
        self.configure(mode)
        with open(self.work / "daemon.log", "ab") as log:
            self._daemon = subprocess.Popen(
                self.lab.enter_command([*rmx(), "daemon"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,  # Ctrl-C is the demo's to handle
                preexec_fn=_die_with_parent,
            )
        self._client = Client(Connection(str(self.work / "rm.sock")))
        self._until(lambda: bool(self.client.status()), "The daemon did not answer")

    def await_hosts(self) -> None:
        """Until every host of the lab is up."""
        wanted = len(self.lab.hosts)

        def up_now() -> bool:
            states = [host.state for host in self.client.hosts()]
            return states.count("UP") == wanted

        self._until(up_now, "Not all hosts came up")

    def _until(self, reached: Callable[[], bool], sentence: str) -> None:
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(Unreachable):
                if reached():
                    return
            code = self._daemon.poll() if self._daemon else None
            if code is not None or time.monotonic() > end:
                raise RmError(f"{sentence}: {self.last_words()}")
            time.sleep(0.05)

    def last_words(self) -> str:
        lines = (self.work / "daemon.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty."

    def stop_daemon(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


@contextlib.contextmanager
def stage(base: Path, spec: LabSpec, tell: Tell) -> Iterator[Stage]:
    """Bring a lab up, in a directory below `base`; in any case nothing of it stays. Its hosts are
    bare, and no daemon runs."""
    with work_directory(base) as work, contextlib.ExitStack() as stack:
        stack.callback(_handle, {number: signal.getsignal(number) for number in INTERRUPTS})
        stack.callback(discard, work / "lab", remove_directory=True)
        made = Stage(up(spec, work / "lab", progress=tell), work)
        stack.callback(made.stop_daemon)
        stack.callback(made.end_kept)
        # a second Ctrl-C must not end the taking down half-way
        stack.callback(_handle, dict.fromkeys(INTERRUPTS, signal.SIG_IGN))
        yield made


@contextlib.contextmanager
def work_directory(base: Path) -> Iterator[Path]:
    """A new directory that is gone afterwards; those of demos that were killed are removed, too."""
    base.mkdir(parents=True, exist_ok=True)
    for old in base.glob("demo-*"):
        with contextlib.suppress(OSError), open(old / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(old)
    work = Path(tempfile.mkdtemp(prefix="demo-", dir=base))
    try:
        with open(work / "lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield work
    finally:
        remove(work)


def remove(work: Path) -> None:
    discard(work / "lab", remove_directory=True)
    shutil.rmtree(work, ignore_errors=True)


def rmx() -> list[str]:
    """How this installation's rmx is called."""
    beside = Path(sys.executable).with_name("rmx")
    found = str(beside) if beside.exists() else shutil.which("rmx")
    if not found:
        raise RmError("The command rmx is not beside this Python nor in the PATH.", "Install rm with pip.")
    return [found]


def _handle(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _die_with_parent() -> None:
    """In the daemon's process: killed with SIGKILL, the demo cannot clean up; the kernel does this part."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
