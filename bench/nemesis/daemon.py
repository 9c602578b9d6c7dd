"""One daemon: a process in a network namespace of its own, started again as its systemd unit would."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cluster import environment
from rm.errors import RmError
from rm.lab import Lab
from rm.lab import syscalls as sc

RMX = str(Path(sys.executable).with_name("rmx"))
CLOCK = Path(__file__).with_name("sitecustomize_clock.py")
RESTART_S = 2.0  # RestartSec= of packaging/rm.service
STATE_MB = 200
LOOK_S = 0.05
TABLE = "nemesis"
FILLER = "filler"
SETTINGS = """\
[daemon]
socket = "{socket}"
state_dir = "{state}"
database = "{database}"

[jobs]
run_root_as = "rmjob"
grace_s = 2.0
keep_finished = 1000000
deliver = ""

[ssh]
known_hosts = "{known_hosts}"

[monitor]
enabled = false
"""


class Daemon:
    """`a` or `b`; made stopped. `files` is a directory of its own, its state a small file system."""

    def __init__(self, name: str, files: Path, lab: Lab, number: int, database: str) -> None:
        self.name = name
        self.files = files
        self.socket = str(files / "rm.sock")
        self.log = files / "daemon.log"
        self.state = files / "state"
        self.starts = 0
        self.wanted = True  # started again when it ends
        self._begins = 0  # of what its newest life said
        self._lab = lab
        self._clock = files / "clock"
        self._process: subprocess.Popen[bytes] | None = None
        self._door = threading.Lock()
        self._closed = False
        self.state.mkdir(parents=True)
        sc.mount("tmpfs", str(self.state), "tmpfs", 0, f"mode=0755,size={STATE_MB}m")
        self._clock.write_bytes(struct.pack("q", 0))
        shutil.copy(CLOCK, files / "sitecustomize.py")
        self.config = files / "rm.toml"
        self.config.write_text(
            SETTINGS.format(
                socket=self.socket, state=self.state, database=database, known_hosts=lab.known_hosts
            )
        )
        self._namespace = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL, start_new_session=True
        )
        self._connect(number)
        self._keeper = threading.Thread(target=self._keep, name=f"keeper of {name}", daemon=True)

    # -- its life

    def start(self) -> None:
        """From now on it is started again whenever it ends."""
        self._spawn()
        self._keeper.start()

    def send(self, number: int) -> None:
        """A signal to the process, if it runs."""
        with self._door, contextlib.suppress(ProcessLookupError):
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def close(self) -> None:
        self._closed = True
        if self._keeper.is_alive():
            self._keeper.join()
        self.cut("hosts", "")
        self.cut("database", "")
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._namespace.kill()
        self._namespace.wait()
        sc.unmount(str(self.state))

    def said(self) -> str:
        """All that it has written to its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def waits(self) -> bool:
        """Is its newest life a standby, or was it before it led?"""
        with self._door:
            begins = self._begins
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as file:
            file.seek(begins)
            return b"another daemon leads" in file.read()
        return False

    def _spawn(self) -> None:
        with self._door, self.log.open("ab") as log:
            self.starts += 1
            self._begins = log.tell()
            self._process = subprocess.Popen(
                self._inside([RMX, "--config", str(self.config), "daemon"]),
                env=environment()
                | {"RM_CONFIG": "", "PYTHONPATH": str(self.files), "RM_BENCH_CLOCK": str(self._clock)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def _keep(self) -> None:
        while not self._closed:
            assert self._process is not None
            if self.wanted and self._process.poll() is not None:
                time.sleep(RESTART_S)
                if self.wanted and not self._closed:
                    self._spawn()
            time.sleep(LOOK_S)

    # -- its network

    def cut(self, whom: str, way: str) -> None:
        """Drop what goes between it and the `hosts` or the `database`: in, out, both; "" ends it."""
        net = self._lab.hosts[0].address.rsplit(".", 2)[0]
        there = f"{net}.0.1" if whom == "database" else f"{net}.1.0-{net}.200.255"
        ways = {"in": ("in",), "out": ("out",), "both": ("in", "out")}.get(way, ())
        lines = [f"flush chain inet {TABLE} {whom}_in", f"flush chain inet {TABLE} {whom}_out"]
        side = {"in": "saddr", "out": "daddr"}
        lines += [f"add rule inet {TABLE} {whom}_{one} ip {side[one]} {there} drop" for one in ways]
        self._run(["nft", "-f", "-"], "\n".join(lines) + "\n")

    def _connect(self, number: int) -> None:
        net = self._lab.hosts[0].address.rsplit(".", 2)[0]
        name, here = f"nemesis-{self.name}", f"{net}.{250 + number}"
        pid = self._namespace.pid
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            if self._namespace.poll() is not None or time.monotonic() > deadline:
                raise RmError(f"Daemon {self.name} got no network namespace of its own.")
            time.sleep(0.01)
        lines = [
            f"link add {name} type veth peer name eth0 netns {pid}",
            f"addr add {here}.1/30 dev {name}",
            f"link set {name} up",
            f"rule add pref 100 to {here}.0/30 lookup main",
        ]
        _must(self._lab.fabric_command(["ip", "-batch", "-"]), "\n".join(lines) + "\n")
        inside = [
            "link set lo up",
            "link set eth0 up",
            f"addr add {here}.2/30 dev eth0",
            f"route add default via {here}.1",
        ]
        self._run(["ip", "-batch", "-"], "\n".join(inside) + "\n")
        chains = "".join(
            f"chain {whom}_{way} {{ type filter hook {hook} priority 0; policy accept; }}\n"
            for whom in ("hosts", "database")
            for way, hook in (("in", "input"), ("out", "output"))
        )
        self._run(["nft", "-f", "-"], f"table inet {TABLE} {{\n{chains}}}\n")

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._namespace.pid}/ns/net", "--", *argv]

    def _run(self, argv: Sequence[str], text: str) -> None:
        _must(self._inside(argv), text)

    # -- its clock and disk

    def move_clock(self, seconds: float) -> None:
        """Its wall clock is `seconds` ahead of the machine's."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("q", round(seconds * 1e9)))

    def fill_disk(self) -> None:
        fill(self.state)

    def free_disk(self) -> None:
        (self.state / FILLER).unlink(missing_ok=True)

    def write_protect(self, on: bool) -> None:
        """What it opens from now on in its state it cannot write."""
        write_protect(self.state, on)


def fill(directory: Path) -> None:
    """Not a byte is left on its file system."""
    with (directory / FILLER).open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65_536)


def write_protect(directory: Path, on: bool) -> None:
    if on:
        sc.mount(str(directory), str(directory), flags=sc.MS_BIND)
        sc.mount("none", str(directory), flags=sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY)
    else:
        sc.unmount(str(directory))


def _must(argv: Sequence[str], text: str) -> None:
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RmError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
