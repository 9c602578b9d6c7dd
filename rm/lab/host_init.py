"""PID 1 of a host: makes the host's root, brings its network up, starts sshd, reaps, and waits.

It is a fork of the lab's keeper, not a program of its own: that shares its memory and starts in a
millisecond. SIGUSR1 starts sshd again when it is gone; SIGTERM ends the host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import NoReturn

from rm.lab import cgroups, fabric, host_root
from rm.lab import syscalls as sc
from rm.lab.spec import LabHost, LabSpec

SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Subsystem sftp internal-sftp
"""
NAMESPACES = sc.CLONE_NEWNS | sc.CLONE_NEWNET | sc.CLONE_NEWUTS | sc.CLONE_NEWIPC
SIGNALS = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Host:
    """Everything one host's PID 1 needs to know, gathered by the keeper before the fork."""

    def __init__(
        self,
        host: LabHost,
        spec: LabSpec,
        root: host_root.RootPlan,
        cgroup: Path | None,
        keys: Path,
        sshd_as: str,
    ) -> None:
        self.host, self.spec, self.root, self.cgroup, self.keys = host, spec, root, cgroup, keys
        self.sshd_as = sshd_as  # "root", or "uid:gid" where only one user exists

    def run(self, status: int, go: int) -> NoReturn:
        """Never returns. Says `n` on `status` once the namespaces exist, waits for `go`, then says `u`."""
        try:
            self._enter()
            os.write(status, b"n")
            if os.read(go, 1) != b"g":
                os._exit(1)
            self._set_up()
            os.write(status, b"u")
        except Exception as error:
            os.write(status, f"e{error}".encode()[:4000])
            os._exit(1)
        for fd in (status, go):
            os.close(fd)
        self._live()

    def _enter(self) -> None:
        os.setsid()
        sc.set_process_name(f"lab-{self.host.name}")
        if self.cgroup is not None:
            cgroups.join(self.cgroup)
            sc.unshare(sc.CLONE_NEWCGROUP)
            cgroups.join(self.cgroup / "init")
        sc.unshare(NAMESPACES)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _set_up(self) -> None:
        sc.set_hostname(self.host.name)
        ipv4 = Path("/proc/sys/net/ipv4")
        if Path("/proc/sys/net/ipv6").is_dir():
            Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        with contextlib.suppress(PermissionError):  # the routes carry it in any case
            (ipv4 / "tcp_congestion_control").write_text(self.spec.congestion_control)
        if self.sshd_as != "root":
            (ipv4 / "ip_unprivileged_port_start").write_text("0")
        keys = {path.name: path.read_bytes() for path in self.keys.iterdir()}
        host_root.build(self.root)
        fabric.ip(fabric.inside(self.host, self.spec))
        fabric.tc(fabric.queue("eth0", self.host.rate_mbps, self.spec.queue_packets))
        if not Path("/etc/ssh/.rm-lab").exists():
            self._provision(keys)
        self.start_sshd()

    def _provision(self, keys: dict[str, bytes]) -> None:
        """What a freshly installed host has on its disk; done at the first boot only."""
        ssh = Path("/etc/ssh")
        ssh.mkdir(exist_ok=True)
        _write(ssh / "sshd_config", SSHD_CONFIG.encode(), 0o644)
        _write(ssh / "ssh_host_ed25519_key", keys[self.host.name], 0o600)
        _write(ssh / "ssh_host_ed25519_key.pub", keys[f"{self.host.name}.pub"], 0o644)
        _write(Path("/etc/machine-id"), os.urandom(16).hex().encode() + b"\n", 0o444)
        _write(Path("/etc/resolv.conf"), b"# a lab host has no name server\n", 0o644)
        names = [line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines() if ":" in line]
        # sshd without PAM takes a missing or `!` password for a locked account and refuses keys, too
        shadow = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)
        _write(Path("/etc/shadow"), shadow.encode(), 0o640)
        home = Path("/root/.ssh")
        home.mkdir(mode=0o700, exist_ok=True)
        _write(home / "authorized_keys", keys["client.pub"], 0o600)
        if self.sshd_as != "root":
            self._provision_one_id()
        (ssh / ".rm-lab").touch()

    def _provision_one_id(self) -> None:
        """Where only one id exists, sshd runs as it in a namespace of its own and can log in only that user.

        So that user is called root; and no other group than its own can be given to a terminal.
        """
        passwd, group = Path("/etc/passwd"), Path("/etc/group")
        others = [line for line in passwd.read_text().splitlines() if not line.startswith("root:")]
        roots = [f"root:x:{self.sshd_as}:root:/root:/bin/sh", "superuser:x:0:0:root:/root:/bin/sh"]
        _write(passwd, ("\n".join([*roots, *others]) + "\n").encode(), 0o644)
        groups = [line for line in group.read_text().splitlines() if not line.startswith("tty:")]
        _write(group, ("\n".join(groups) + "\n").encode(), 0o644)

    def start_sshd(self) -> None:
        sshd = "/usr/sbin/sshd"
        argv = [sshd, "-D", "-f", "/etc/ssh/sshd_config", "-E", "/var/log/sshd.log"]
        if self.sshd_as != "root":
            uid, gid = self.sshd_as.split(":")
            argv = ["/usr/bin/unshare", "-U", f"--map-user={uid}", f"--map-group={gid}", *argv]
        null = os.open("/dev/null", os.O_RDWR)
        self.sshd = os.posix_spawn(
            argv[0],
            argv,
            {"PATH": PATH, "LANG": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)],
            setsid=True,
            setsigmask=[],
        )
        os.close(null)

    def _live(self) -> NoReturn:
        while True:
            # a wait with an end, so that a child signal that was merged into another is not missed for long
            received = signal.sigtimedwait(SIGNALS, 5.0)
            with contextlib.suppress(ChildProcessError):
                while (reaped := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                    if reaped == self.sshd:
                        self.sshd = 0
            if received is None:
                continue
            if received.si_signo == signal.SIGTERM:
                os._exit(0)
            if received.si_signo == signal.SIGUSR1 and not self.sshd:
                try:
                    self.start_sshd()
                except OSError as error:  # a full disk must not end the host
                    subprocess.run(["/usr/bin/logger", "-s", f"sshd: {error}"], check=False)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
