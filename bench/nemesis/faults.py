"""Carries a plan of faults out, in its order, and writes down when each really began and ended."""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.nemesis.daemon import Daemon
from bench.nemesis.plan import Fault
from bench.nemesis.site import Site
from rm.errors import RmError

CLOCK_S = 3600.0
TABLE = "nemesis"
SPOOL = "/var/lib/rm"


@dataclass(slots=True)
class Played:
    """A fault as it was; times are seconds since the epoch. `led` is whether its daemon had answered last."""

    fault: Fault
    begun: float
    ended: float
    led: bool = False


class Nemesis(threading.Thread):
    """`leader()` is the socket of the daemon that answered last."""

    def __init__(
        self, site: Site, plan: Sequence[Fault], seed: int, leader: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(name="nemesis", daemon=True)
        self.played: list[Played] = []
        self.failed: list[str] = []  # faults that could not be made
        self._site = site
        self._plan = plan
        self._draw = random.Random(f"which process {seed}")
        self._leader = leader
        self._say = say
        lines = [f"table bridge {TABLE} {{"]
        for way, hook, name in (("out", "prerouting", "iifname"), ("in", "postrouting", "oifname")):
            lines += [f"set {way} {{ type ifname; }};", f"chain from_{way} {{"]
            lines += [f"type filter hook {hook} priority -200; policy accept;", f"{name} @{way} drop;", "};"]
        self._fabric([*lines, "}"])

    def run(self) -> None:
        start = time.monotonic()
        steps: list[tuple[float, int, Fault, Played | None]] = []
        for number, fault in enumerate(self._plan):
            heapq.heappush(steps, (fault.at_s, number, fault, None))
        while steps:
            at_s, number, fault, played = heapq.heappop(steps)
            time.sleep(max(0.0, start + at_s - time.monotonic()))
            try:
                if played is None:
                    self._say(str(fault))
                    led = fault.kind.startswith("daemon") and (
                        self._site.daemon(fault.target).socket == self._leader()
                    )
                    played = Played(fault, time.time(), 0.0, led)
                    self.played.append(played)
                    self._begin(fault)
                    heapq.heappush(steps, (max(at_s, fault.ends_s), number, fault, played))
                else:
                    self._end(fault)
                    played.ended = time.time()
            except (RmError, OSError, subprocess.SubprocessError, RuntimeError) as error:
                self.failed.append(f"{fault}: {error}")

    # -- kinds

    def _begin(self, fault: Fault) -> None:
        if fault.kind.startswith("daemon"):
            self._of_daemon(fault, self._site.daemon(fault.target))
        elif fault.kind.startswith("host"):
            self._of_host(fault)
        else:
            self._site.database.begin(fault.kind)

    def _of_daemon(self, fault: Fault, daemon: Daemon) -> None:
        match fault.kind:
            case "daemon killed" | "daemon killed as it starts":
                daemon.send(signal.SIGKILL)
            case "daemon told to end":
                daemon.send(signal.SIGTERM)
            case "daemon stopped":
                daemon.send(signal.SIGSTOP)
            case "daemon cut from the hosts":
                daemon.cut("hosts", fault.way)
            case "daemon cut from the database":
                daemon.cut("database", fault.way)
            case "daemon with its clock moved":
                daemon.move_clock(self._draw.choice((CLOCK_S, -CLOCK_S)))
            case "daemon with a full disk":
                daemon.fill_disk()
                self._site.database.fill_disk()
            case "daemon with a read-only disk":
                daemon.write_protect(True)
                self._site.database.write_protect(True)

    def _of_host(self, fault: Fault) -> None:
        lab, host = self._site.lab, fault.target
        match fault.kind:
            case "host crashed":
                lab.crash(host)
            case "host frozen":
                lab.freeze(host)
            case "host cut":
                self._cut(host, fault.way, "add")
            case "host with sshd killed":
                lab.kill_sshd(host)
            case "host with sshd stopped":
                self._signal(host, is_sshd, signal.SIGSTOP)
            case "host with its agent killed":
                self._signal(host, is_agent, signal.SIGKILL)
            case "host with its agent stopped":
                self._signal(host, is_agent, signal.SIGSTOP)
            case "host with a supervisor killed":
                self._signal(host, is_supervisor, signal.SIGKILL, one=True)
            case "host with a supervisor stopped":
                self._signal(host, is_supervisor, signal.SIGSTOP, one=True)
            case "host with a full disk":
                lab.fill_disk(host)
            case "host with a read-only spool":
                mount = f"mount --bind {SPOOL} {SPOOL} && mount -o remount,bind,ro {SPOOL}"
                lab.exec(host, ["sh", "-c", mount])

    def _end(self, fault: Fault) -> None:
        lab, host = self._site.lab, fault.target
        match fault.kind:
            case "daemon killed as it starts":
                self._site.daemon(host).send(signal.SIGKILL)
            case "daemon stopped":
                self._site.daemon(host).send(signal.SIGCONT)
            case "daemon cut from the hosts":
                self._site.daemon(host).cut("hosts", "")
            case "daemon cut from the database":
                self._site.daemon(host).cut("database", "")
            case "daemon with its clock moved":
                self._site.daemon(host).move_clock(0.0)
            case "daemon with a full disk":
                self._site.daemon(host).free_disk()
                self._site.database.free_disk()
            case "daemon with a read-only disk":
                self._site.daemon(host).write_protect(False)
                self._site.database.write_protect(False)
            case "host crashed":
                lab.boot(host)
            case "host frozen":
                lab.thaw(host)
            case "host cut":
                self._cut(host, fault.way, "delete")
            case "host with sshd killed":
                lab.start_sshd(host)
            case "host with sshd stopped":
                self._signal(host, is_sshd, signal.SIGCONT)
            case "host with its agent stopped" | "host with a supervisor stopped":
                self._signal(host, lambda process: True, signal.SIGCONT)
            case "host with a full disk":
                lab.free_disk(host)
            case "host with a read-only spool":
                lab.exec(host, ["umount", "-l", SPOOL])
            case kind if kind.startswith("database"):
                self._site.database.end(kind)

    # -- means

    def _cut(self, host: str, way: str, what: str) -> None:
        ways = ("in", "out") if way == "both" else (way,)
        self._fabric([f'{what} element bridge {TABLE} {one} {{ "{host}" }}' for one in ways])

    def _fabric(self, lines: Sequence[str]) -> None:
        argv = self._site.lab.fabric_command(["nft", "-f", "-"])
        text = "\n".join(lines) + "\n"
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RmError(f"nft failed: {done.stderr.strip()}")

    def _signal(self, host: str, which: Callable[[Path], bool], number: int, one: bool = False) -> None:
        found = sorted((p for p in processes(self._site, host) if which(p)), key=lambda p: int(p.name))
        if one and found:
            found = [self._draw.choice(found)]
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), number)


def processes(site: Site, host: str) -> Iterator[Path]:
    """`/proc/PID` of all that run on a host, as this machine numbers them."""
    init = site.lab.status(host).init
    if not init:
        return
    space = os.readlink(f"/proc/{init}/ns/pid")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/pid") == space:
                    yield entry


def words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def is_sshd(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text().startswith("sshd")
    return False


def _of_agent(process: Path) -> bool:
    return any(word.endswith("/rm_agent.py") for word in words(process))


def is_agent(process: Path) -> bool:
    """It speaks over a channel; its supervisors, which have its command line, have nothing there."""
    with contextlib.suppress(OSError):
        return _of_agent(process) and os.readlink(process / "fd/0") != "/dev/null"
    return False


def is_supervisor(process: Path) -> bool:
    """Not a task that it has forked and that is not its script yet: to kill that one is the job's failure."""
    with contextlib.suppress(OSError):
        if _without_channel(process):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            return not _without_channel(Path("/proc", parent))
    return False


def _without_channel(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return _of_agent(process) and os.readlink(process / "fd/0") == "/dev/null"
    return False
