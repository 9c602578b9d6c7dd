"""A machine whose PID 1 is a real systemd: a namespace of its own over this machine's directories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster import until

SYSTEMD = next((p for p in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if os.path.exists(p)), "")
There = Callable[..., subprocess.CompletedProcess[str]]  # (*argv, text=""): run a command there
# All that it could change is covered by file systems of the namespace's own. What a system does at its start
# (clean /tmp, make devices, set the kernel's parameters) is taken out, too: units may ask for sysinit.target.
START = """set -e
mount -t tmpfs none "$1"
for top in $2; do
  mkdir -p "$1/$top.upper" "$1/$top.work"
  mount -t overlay none -o "lowerdir=/$top,upperdir=$1/$top.upper,workdir=$1/$top.work" "/$top"
done
mount -t tmpfs none /run
mkdir -p "$1/dev/pts" "$1/dev/shm"
for name in null zero full random urandom tty console; do
  [ -e "/dev/$name" ] || continue
  touch "$1/dev/$name"
  mount --bind "/dev/$name" "$1/dev/$name"
done
ln -s /proc/self/fd "$1/dev/fd"
mount -t devpts -o newinstance,ptmxmode=0666 none "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
mount --rbind "$1/dev" /dev
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
mount -t cgroup2 none /sys/fs/cgroup
rm -f /usr/lib/systemd/system/*.target.wants/* /lib/systemd/system/*.target.wants/*
rm -rf /etc/systemd/system /etc/fstab /etc/machine-id
mkdir -p /etc/systemd/system /run/lock
printf '%032d\\n' 1 >/etc/machine-id
printf '[Unit]\\nDefaultDependencies=no\\n' >/usr/lib/systemd/system/quiet.target
ln -s /usr/lib/systemd/system/quiet.target /etc/systemd/system/default.target
{prepare}
mount -t tmpfs -o mode=1777 none /tmp
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin {systemd} --system --log-target=console
"""


@contextmanager
def machine(
    place: Path, log: Path, prepare: str = "", tops: Sequence[str] = ("etc", "usr")
) -> Iterator[There]:
    """Boots it with the directories `tops` as its own, after the shell has run `prepare` there.

    `place` is an empty directory for its disk, `log` a file for what systemd says.
    """
    unified = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    group = next(t for t in unified if (t / "cgroup.controllers").exists()) / f"rm-systemd-{os.getpid()}"
    script = START.replace("{prepare}", prepare).replace("{systemd}", SYSTEMD)
    group.mkdir()
    inside = ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--mount-proc",
              "--kill-child", "sh", "-c", script, "sh", str(place), " ".join(tops)]  # fmt: skip
    join = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
    with log.open("wb") as out:
        outer = subprocess.Popen(
            ["sh", "-c", join, "sh", str(group), *inside],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip

    def there(*argv: str, text: str = "") -> subprocess.CompletedProcess[str]:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        enter = ["nsenter", "-t", children[0] if children else "none", "-m", "-p", "-u", "-i", "-n", "-C"]
        return subprocess.run([*enter, *argv], input=text, capture_output=True, text=True, check=False)

    try:
        until(lambda: there("systemctl", "is-active", "quiet.target").returncode == 0, "systemd is up")
        yield there
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{log.read_text()[-2000:]}") from problem
    finally:
        outer.kill()  # its PID 1 ends with it, and with that whatever is there
        outer.wait(60)
        _end(group)


def _end(group: Path) -> None:
    """Kill what is left in the control group, and remove it."""

    def removed() -> bool:
        with suppress(OSError):  # a group that has gone meanwhile
            for pid in (group / "cgroup.procs").read_text().split():
                os.kill(int(pid), 9)
            for folder, below, _ in os.walk(group, topdown=False):
                for name in below:
                    os.rmdir(f"{folder}/{name}")
            group.rmdir()
        return not group.exists()

    until(removed, f"{group} is empty")
