"""The lab's keeper: PID 1 of a process namespace that holds all of a lab, and its only door.

Every host is a child of the keeper, every mount is in its mount namespace and every device in its
network namespace. So when the keeper is killed, the kernel ends all the rest: nothing can be left behind but
control groups and the lab's directory, which `rmx lab down` removes.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rm.errors import Conflict, NotFound, RmError, Unreachable
from rm.lab import cgroups, delay, fabric, host_init, host_root, spines
from rm.lab import syscalls as sc
from rm.lab.spec import LabHost, LabSpec, plan_hosts

BOOT_PATIENCE_S = 30.0


class Keeper:
    """Owns the hosts of one lab; each public method is an operation of the socket."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.spec = LabSpec.from_json(plan["spec"])
        self.slot: int = plan["slot"]
        self.directory = Path(plan["directory"])
        self.mode: str = plan["mode"]
        self.hosts = {host.name: host for host in plan_hosts(self.spec, self.slot)}
        self.pids: dict[str, int] = {}
        self.boots: dict[str, str] = {}
        self.frozen: set[str] = set()
        self.is_cut: set[str] = set()
        self.cgroup = Path(plan["cgroup"]) if plan["cgroup"] else None
        self.sshd_as: str = plan["sshd_as"]
        self.python: str = plan["python"]
        self.etc = ""

    # --- building ---------------------------------------------------------------------------------

    def build(self) -> None:
        mounts = self.directory / "mnt"
        sc.mount("tmpfs", str(mounts), "tmpfs", 0, "mode=0700,size=64m")
        if self.mode != "root":
            self.etc = str(mounts / "etc")
            _copy_readable("/etc", self.etc)
        for host in self.hosts.values():
            disk = mounts / host.name / "disk"
            disk.mkdir(parents=True)
            (mounts / host.name / "root").mkdir()
            sc.mount("rm-disk", str(disk), "tmpfs", 0, f"mode=0755,size={self.spec.disk_mb}m")
        _network_settings()
        hosts = list(self.hosts.values())
        fabric.ip(fabric.backbone(self.spec, self.slot, hosts, control=self.mode == "root"))
        fabric.nft(fabric.rules(self.spec, hosts))
        rate_mbps, packets = self.spec.uplink_rate_mbps, self.spec.queue_packets
        for ends in spines.devices(self.spec):
            fabric.tc(line for end in ends[:2] for line in fabric.queue(end, rate_mbps, packets))
        wires = fabric.wires(hosts, self.spec)
        if wires and os.fork() == 0:
            self._become_delay(wires)

    def _become_delay(self, wires: list[tuple[str, str, float]]) -> None:
        try:
            sc.set_process_name("lab-delay")
            hush()
            os.closerange(3, 1024)
            delay.carry(wires)
        except BaseException as error:
            print(f"the packet delay ended: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    def boot_all(self, names: list[str]) -> None:
        """Starts hosts, all at once; returns when each one's sshd has greeted."""
        status: dict[str, int] = {}
        go: dict[str, int] = {}
        for name in names:
            status[name], go[name] = self._fork(name)
        try:
            for name in names:
                self._expect(name, status[name], b"n")
            chosen = [self.hosts[name] for name in names]
            offload = self.spec.offload
            fabric.ip(line for host in chosen for line in fabric.port(host, self.pids[host.name], offload))
            fabric.tc(
                line
                for host in chosen
                for line in fabric.queue(host.name, host.rate_mbps, self.spec.queue_packets)
            )
            for name in names:
                os.write(go[name], b"g")
            for name in names:
                self._expect(name, status[name], b"u")
        finally:
            for fd in (*status.values(), *go.values()):
                os.close(fd)
        # one that is cut off answers nobody; it is up all the same
        self._await_banners([self.hosts[name] for name in names if name not in self.is_cut])

    def _fork(self, name: str) -> tuple[int, int]:
        host, base = self.hosts[name], f"{self.directory}/mnt/{name}"
        self.boots[name] = _new_boot_id()
        known = "".join(f"{other.address} {other.name}\n" for other in self.hosts.values())
        root = host_root.RootPlan(
            base=base,
            hostname=name,
            hosts=f"127.0.0.1 localhost\n{known}",
            boot_id=self.boots[name],
            disk_mb=self.spec.disk_mb,
            share=self.spec.share,
            mapped=self.mode != "root",
            etc=self.etc,
            cgroups=self.cgroup is not None,
            python=self.python,
        )
        if self.cgroup:
            cgroups.create(self.cgroup, name)
        group = self.cgroup / name if self.cgroup else None
        init = host_init.Host(host, self.spec, root, group, self.directory / "keys", self.sshd_as)
        status_r, status_w = os.pipe()
        go_r, go_w = os.pipe()
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        sc.unshare(sc.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            # low numbers for the two pipes, so that everything above can be closed in one go
            os.dup2(status_w, 3)
            os.dup2(go_r, 4)
            os.closerange(5, 4096)
            hush()
            init.run(3, 4)
        sc.setns(own, sc.CLONE_NEWPID)
        for fd in (own, status_w, go_r):
            os.close(fd)
        self.pids[name] = pid
        return status_r, go_w

    def _expect(self, name: str, fd: int, word: bytes) -> None:
        said = os.read(fd, 4096)
        if said[:1] != word:
            why = said[1:].decode(errors="replace") if said[:1] == b"e" else "its first process ended"
            raise Unreachable(f"The lab host {name} did not come up: {why}.")

    def _await_banners(self, hosts: list[LabHost]) -> None:
        end = time.monotonic() + BOOT_PATIENCE_S
        waiting = list(hosts)
        while waiting:
            waiting = [host for host in waiting if not _greets(host.address)]
            if waiting and time.monotonic() > end:
                names = ", ".join(host.name for host in waiting)
                raise Unreachable(f"sshd did not answer within {BOOT_PATIENCE_S:g} s on {names}.")

    # --- operations -------------------------------------------------------------------------------

    def _host(self, name: str, running: bool = True) -> LabHost:
        if name not in self.hosts:
            raise NotFound(f"The lab has no host {name}.", f"It has {', '.join(self.hosts)}.")
        if running and name not in self.pids:
            raise Conflict(f"The lab host {name} is not running.", f"`rmx lab boot {name}` starts it.")
        return self.hosts[name]

    def crash(self, name: str) -> None:
        self._host(name)
        # the link first: not one last packet may show the others that the host ends
        fabric.drop_port(name)
        self._kill(name)

    def _kill(self, name: str) -> None:
        pid = self.pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.frozen.discard(name)
        if self.cgroup:
            cgroups.remove(self.cgroup / name)

    def boot(self, name: str) -> None:
        self._host(name, running=False)
        if name in self.pids:
            raise Conflict(f"The lab host {name} is running already.", f"`rmx lab crash {name}` ends it.")
        try:
            self.boot_all([name])
        except (RmError, fabric.FabricError):
            if name in self.pids:
                self.crash(name)
            raise

    def freeze(self, name: str) -> None:
        self._host(name)
        if self.cgroup:
            cgroups.freeze(self.cgroup / name, True)
        else:
            self._signal_all(name, signal.SIGSTOP)
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self._host(name)
        if self.cgroup:
            cgroups.freeze(self.cgroup / name, False)
        else:
            self._signal_all(name, signal.SIGCONT)
        self.frozen.discard(name)

    def _signal_all(self, name: str, number: int) -> None:
        """Signals each process of a host, again until no new one is found."""
        done: set[int] = set()
        while fresh := {pid for pid, _ in self._processes(name)} - done:
            for pid in fresh:
                _signal(pid, number)
            done |= fresh

    def _processes(self, name: str) -> list[tuple[int, str]]:
        """(process, its program's name) of all that run in a host."""
        space = os.readlink(f"/proc/{self.pids[name]}/ns/pid")
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.readlink(f"/proc/{entry}/ns/pid") == space:
                        found.append((int(entry), Path(f"/proc/{entry}/comm").read_text().strip()))
                except OSError:  # it ended meanwhile
                    continue
        return found

    def cut(self, name: str) -> None:
        self._host(name, running=False)
        if name not in self.is_cut:
            fabric.nft(fabric.cut(name, True))
            self.is_cut.add(name)

    def heal(self, name: str) -> None:
        self._host(name, running=False)
        if name in self.is_cut:
            fabric.nft(fabric.cut(name, False))
            self.is_cut.discard(name)

    def kill_sshd(self, name: str) -> None:
        """Returns when they have ended: one that still listens would pass for its successor."""
        self._host(name)
        done: set[int] = set()
        while fresh := {pid for pid, comm in self._processes(name) if comm.startswith("sshd")} - done:
            for pid in fresh:
                _end(pid)
            done |= fresh

    def start_sshd(self, name: str) -> None:
        host = self._host(name)
        end = time.monotonic() + BOOT_PATIENCE_S
        while not _greets(host.address):
            # again and again: PID 1 may not have noticed yet that the old one is gone
            _signal(self.pids[name], signal.SIGUSR1)
            if time.monotonic() > end:
                raise Unreachable(
                    f"sshd on the lab host {name} could not be started within {BOOT_PATIENCE_S:g} s."
                )

    def status(self) -> dict[str, Any]:
        return {
            "hosts": [
                {
                    "name": name,
                    "state": "frozen" if name in self.frozen else "up" if name in self.pids else "down",
                    "cut": name in self.is_cut,
                    "boot_id": self.boots.get(name, ""),
                    "init": self.pids.get(name, 0),
                }
                for name in self.hosts
            ]
        }

    def reap(self) -> None:
        """A host's first process may end by itself (its root shut it down); orphans come here, too."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, init in self.pids.items() if init == pid]:
                del self.pids[name]
                self.frozen.discard(name)
                fabric.drop_port(name)
                if self.cgroup:
                    cgroups.remove(self.cgroup / name)


def _network_settings() -> None:
    net = Path("/proc/sys/net")
    for name, value in (
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/all/send_redirects", "0"),
        # each router that a packet passes answers by an address of its own, though one kernel is all of them
        ("ipv4/icmp_errors_use_inbound_ifaddr", "1"),
        ("ipv6/conf/all/disable_ipv6", "1"),
        # or what a zone's bridge carries would pass the rules for what is routed between zones, too
        ("bridge/bridge-nf-call-iptables", "0"),
    ):
        if (net / name).exists():
            (net / name).write_text(value)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it ended meanwhile, which is as good
        return


def _end(pid: int) -> None:
    """Returns when it has ended, with all that it had open; who reaps it is not waited for."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        _signal(pid, signal.SIGKILL)
        select.select([handle], [], [], BOOT_PATIENCE_S)
    finally:
        os.close(handle)


def _new_boot_id() -> str:
    return Path("/proc/sys/kernel/random/uuid").read_text().strip()


def _greets(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1.0) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        time.sleep(0.003)
        return False


def _copy_readable(source: str, target: str) -> None:
    """Copies what this user may read, so that every file of the copy belongs to a user who exists here."""
    os.makedirs(target, exist_ok=True)
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        try:
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), copy)
            elif entry.is_dir():
                _copy_readable(entry.path, copy)
            elif entry.is_file():
                Path(copy).write_bytes(Path(entry.path).read_bytes())
                os.chmod(copy, entry.stat().st_mode & 0o777)
        except PermissionError:
            continue


def hush() -> None:
    """Closes the pipes of the process that started the lab."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
