"""A lab that is up, as its users hold it: faults to inject, commands to run, files to read."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rm.errors import Conflict, NotFound, RmError, Unreachable, as_told
from rm.lab import cgroups, fabric, inventory, spines
from rm.lab.spec import LabHost, LabSpec, plan_hosts

PATIENCE_S = 60.0
FILLER = "/var/lib/.rm-lab-filler"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """`state` is up, down or frozen; `init` is the host's first process as this machine numbers it."""

    name: str
    state: str
    cut: bool
    boot_id: str
    init: int


class Lab:
    """One lab. Every method returns when its effect is there, and raises RmError otherwise."""

    def __init__(self, directory: Path, state: dict[str, Any]) -> None:
        self.directory = directory
        self.spec = LabSpec.from_json(state["spec"])
        self.hosts: list[LabHost] = plan_hosts(self.spec, state["slot"])
        self.slot: int = state["slot"]
        self.mode: str = state["mode"]
        self._state = state

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Lab:
        path = Path(directory).absolute()
        state = inventory.load_state(path)
        if state is None or not inventory.alive(state):
            raise NotFound(f"No lab is up in {path}.", "`rmx lab up` makes one.")
        return cls(path, state)

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.yml"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def key(self) -> Path:
        """The private key that every host's root accepts."""
        return self.directory / "id_ed25519"

    def host(self, name: str) -> LabHost:
        for host in self.hosts:
            if host.name == name:
                return host
        raise NotFound(f"The lab has no host {name}.", f"It has {', '.join(h.name for h in self.hosts)}.")

    # --- faults -----------------------------------------------------------------------------------

    def crash(self, host: str) -> None:
        """Power off: the link is gone first, so that nobody is notified."""
        self._ask("crash", host)

    def boot(self, host: str) -> None:
        """Starts a crashed host from its disk: new boot id, empty /tmp and /run; waits for its sshd."""
        self._ask("boot", host)

    def freeze(self, host: str) -> None:
        """Stops every process; the kernel goes on to acknowledge packets."""
        self._ask("freeze", host)

    def thaw(self, host: str) -> None:
        self._ask("thaw", host)

    def cut(self, host: str) -> None:
        """Drops every packet of the host, both ways, silently; its link stays up."""
        self._ask("cut", host)

    def heal(self, host: str) -> None:
        """Ends `cut`."""
        self._ask("heal", host)

    def kill_sshd(self, host: str) -> None:
        """Kills the host's sshd with all its sessions' server processes; what they started may live on."""
        self._ask("kill_sshd", host)

    def start_sshd(self, host: str) -> None:
        self._ask("start_sshd", host)

    def fill_disk(self, host: str) -> None:
        """Fills the host's disk to the last byte."""
        done = self.exec(host, ["dd", "if=/dev/zero", f"of={FILLER}", "bs=64k"])
        if b"No space left" not in done.stderr:
            raise Unreachable(
                f"The disk of {host} could not be filled: {done.stderr.decode(errors='replace').strip()}"
            )

    def free_disk(self, host: str) -> None:
        """Ends `fill_disk`."""
        self._must(host, ["rm", "-f", FILLER])

    def change_host_key(self, host: str) -> None:
        """Gives the host another host key, as a reinstallation does; `known_hosts` keeps the old one."""
        key = "/etc/ssh/ssh_host_ed25519_key"
        self._must(host, ["sh", "-c", f"rm -f {key} {key}.pub; ssh-keygen -q -t ed25519 -N '' -f {key}"])
        self.kill_sshd(host)
        self.start_sshd(host)

    # --- commands ---------------------------------------------------------------------------------

    def enter_command(self, argv: Sequence[str] = ()) -> list[str]:
        """The command that runs `argv` where all hosts can be reached: here, or in the lab's namespaces."""
        if self.mode == "root":
            return list(argv)
        keeper = str(self._state["keeper"])
        return [
            "nsenter",
            "--preserve-credentials",
            "-U",
            "-n",
            "-t",
            keeper,
            *(["--"] if argv else []),
            *argv,
        ]

    def fabric_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` among the lab's switches; a host's port there has the host's name."""
        user = ["--preserve-credentials", "-U"] if self.mode != "root" else []
        return ["nsenter", *user, "-n", "-t", str(self._state["keeper"]), "--", *argv]

    def link_bytes(self, host: str) -> tuple[int, int]:
        """What a host's link has carried since the host's boot, in bytes: (to the host, from the host)."""
        found = self._carried(self.host(host).name)
        if found is None:
            raise Conflict(f"The link of {host} is gone.", f"`rmx lab boot {host}` starts the host.")
        return found

    def uplink_bytes(self, leaf: int, spine: int) -> tuple[int, int]:
        """What the link between a leaf and a spine, numbered from 1 on, has carried, in bytes: (up, down)."""
        found = self._carried(spines.uplink(leaf, spine))
        if found is None:
            raise NotFound(f"No link leads from leaf {leaf} to spine {spine}.")
        return found

    def _carried(self, device: str) -> tuple[int, int] | None:
        """What a switch's port has sent and received, in bytes; None where there is no such port."""
        done = subprocess.run(
            self.fabric_command(["ip", "-j", "-s", "link", "show", "dev", device]),
            capture_output=True,
            check=False,
            env={**os.environ, "PATH": fabric.SEARCH},
        )
        if done.returncode:
            return None
        stats = json.loads(done.stdout)[0]["stats64"]
        return int(stats["tx"]["bytes"]), int(stats["rx"]["bytes"])

    def exec_command(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` in a host's namespaces, past sshd (it is not frozen with the host)."""
        init = self.status(host).init
        if not init:
            raise Conflict(f"The lab host {host} is not running.", f"`rmx lab boot {host}` starts it.")
        user = ["--preserve-credentials", "-U"] if self.mode != "root" else []
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        spaces = ["-m", "-u", "-i", "-n", "-p", *(["-C"] if self._state["cgroup"] else [])]
        return ["nsenter", *user, *spaces, "-t", str(init), "--", "env", "-i", path, "HOME=/root", *argv]

    def exec(
        self, host: str, argv: Sequence[str], input: bytes = b"", timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command in a host's namespaces as its root and returns any outcome."""
        return subprocess.run(
            self.exec_command(host, argv), input=input, capture_output=True, check=False, timeout=timeout_s
        )

    def _must(self, host: str, argv: Sequence[str]) -> None:
        done = self.exec(host, argv)
        if done.returncode:
            raise RmError(
                f"`{' '.join(argv)}` on {host} failed: {done.stderr.decode(errors='replace').strip()}"
            )

    def ssh_command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """The OpenSSH command that logs in to a host, with the lab's key and known hosts."""
        found = self.host(host)
        options = {
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return self.enter_command(["ssh", "-F", "none", *flags, f"root@{found.address}", *argv])

    # --- state ------------------------------------------------------------------------------------

    def statuses(self) -> list[HostStatus]:
        reply = self._ask("status")
        numbers = self._outer_numbers()
        return [
            HostStatus(h["name"], h["state"], h["cut"], h["boot_id"], numbers.get(h["init"], 0))
            for h in reply["hosts"]
        ]

    def status(self, host: str) -> HostStatus:
        self.host(host)
        return next(status for status in self.statuses() if status.name == host)

    def _outer_numbers(self) -> dict[int, int]:
        """The keeper's children: their number in its namespace → their number on this machine."""
        keeper = self._state["keeper"]
        depth = len(_status_field(keeper, "NSpid"))
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _status_field(int(entry), "PPid") == [keeper]:
                numbers = _status_field(int(entry), "NSpid")
                if len(numbers) >= depth:
                    found[numbers[depth - 1]] = int(entry)
        return found

    def _ask(self, op: str, host: str = "") -> dict[str, Any]:
        if host:
            self.host(host)
        here = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(PATIENCE_S)
                # by descriptor: a socket's path may have no more than 107 bytes
                door.connect(f"/proc/self/fd/{here}/lab.sock")
                door.sendall(json.dumps({"op": op, "host": host}).encode() + b"\n")
                with door.makefile("rb") as stream:
                    line = stream.readline()
        except OSError as error:
            raise Unreachable(f"The lab in {self.directory} does not answer: {error}.") from error
        finally:
            os.close(here)
        if not line:
            raise Unreachable(f"The lab in {self.directory} ended.", "`rmx lab down` clears its remains.")
        reply: dict[str, Any] = json.loads(line)
        if not reply["ok"]:
            raise as_told(reply["kind"], reply["what"], reply["hint"])
        return reply

    # --- the end ----------------------------------------------------------------------------------

    def down(self) -> None:
        """Ends the lab and removes all of it, its files included; a second call does nothing."""
        discard(self.directory, remove_directory=True)


def _status_field(pid: int, name: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return [int(number) for number in line.split()[1:]]
    except OSError:  # it ended meanwhile
        pass
    return []


def holds_lab(directory: Path) -> bool:
    state = inventory.load_state(directory)
    return state is not None and inventory.alive(state)


def discard(directory: Path, remove_directory: bool) -> None:
    """Ends the lab of the directory, if any, and removes its remains; idempotent."""
    state = inventory.load_state(directory)
    if state is not None:
        if inventory.alive(state):
            _end(state["keeper"])
        if state["control"]:
            fabric.drop_port(state["control"])
        if state["cgroup"]:
            cgroups.remove(Path(state["cgroup"]))
    # the last: of a keeper that was killed as it wrote its state
    for path in (*map(directory.joinpath, inventory.FILES), *directory.glob(".lab.json.*.rm-new")):
        path.unlink(missing_ok=True)
    shutil.rmtree(directory / "keys", ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(directory / "mnt")
    if remove_directory and directory.is_dir() and not os.listdir(directory):
        os.rmdir(directory)


def _end(keeper: int) -> None:
    """Kills the keeper, and with it everything; returns when it has gone."""
    try:
        handle = os.pidfd_open(keeper)
    except ProcessLookupError:
        return
    try:
        os.kill(keeper, signal.SIGKILL)
        if not select.select([handle], [], [], PATIENCE_S)[0]:
            raise Unreachable(f"The lab's keeper (process {keeper}) does not end within {PATIENCE_S:g} s.")
    finally:
        os.close(handle)
