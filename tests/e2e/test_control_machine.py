"""The daemon without root under systemd, installed by the very commands of docs/control-machine.md."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import until
from tests.systemd_machine import SYSTEMD, There, machine

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging/rm.service"
pytestmark = pytest.mark.lab
# rm as pip would install it: in a place that root owns and everybody can read
INSTALLED = """
ip link set lo up
mkdir -p /opt/rmx "$1/venv.upper" "$1/venv.work"
mount -t overlay none -o "lowerdir={venv},upperdir=$1/venv.upper,workdir=$1/venv.work" /opt/rmx
mkdir -p /srv/checkout /opt/python /etc/ld.so.conf.d
mount --bind {python} /opt/python
echo /opt/python/lib >/etc/ld.so.conf.d/000-python.conf
ldconfig
ln -sf /opt/python/bin/{name} /opt/rmx/bin/python
sed -i 's,^home = .*,home = /opt/python/bin,' /opt/rmx/pyvenv.cfg
for name in rm migrations agents playbooks examples; do
  mkdir -p "/opt/rmx/{packages}/$name"
  mount --bind "{checkout}/$name" "/opt/rmx/{packages}/$name"
done
sed -i '1s,.*,#!/opt/rmx/bin/python,' /opt/rmx/bin/rmx
mount --bind {checkout} /srv/checkout
"""
HOST = """set -e
mkdir -p /opt/rm /run/sshd /root/.ssh
cp -r /srv/checkout/agents /opt/rm/agents
cp /var/lib/rmd/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
ssh-keygen -q -t ed25519 -N '' -f /run/host_key
chmod 700 /root /root/.ssh
/usr/sbin/sshd -f /dev/null -h /run/host_key -o PermitRootLogin=yes -o ListenAddress=127.0.0.1
"""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_exposes_little() -> None:
    for unit in (UNIT, UNIT.with_name("rm-deliver@.service")):
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
            capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
        assert level is not None, done.stdout
        assert float(level[1]) <= 3.0, done.stdout


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    if os.geteuid() != 0 or not SYSTEMD:
        pytest.skip("needs root and systemd")
    venv = Path(sys.prefix)
    packages = Path(sysconfig.get_paths()["purelib"]).relative_to(venv)
    prepare = INSTALLED.format(
        venv=venv,
        packages=packages,
        checkout=ROOT,
        python=sys.base_prefix,
        name=Path(sys.executable).resolve().name,
    )
    place, log = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("log") / "log"
    with machine(place, log, prepare, ("etc", "usr", "opt", "var", "home", "srv", "root")) as there:
        page = (ROOT / "docs/control-machine.md").read_text()
        commands = page.split("<!-- install: begin -->")[1].split("<!-- install: end -->")[0]
        done = there("sh", "-c", f"set -e; cd /srv/checkout\n{commands}")
        assert done.returncode == 0, done.stderr
        yield there


def run(there: There, user: str, *argv: str) -> str:
    done = there("runuser", "-u", user, "--", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_without_any_right_of_root(there: There) -> None:
    until(lambda: there("test", "-S", "/run/rm/rm.sock").returncode == 0, "the daemon listens")
    pid = there("systemctl", "show", "--property=MainPID", "--value", "rm.service").stdout.strip()
    status = dict(line.split(":\t", 1) for line in there("cat", f"/proc/{pid}/status").stdout.splitlines())
    uid = there("id", "-u", "rmd").stdout.strip()
    assert status["Uid"].split() == [uid] * 4
    assert uid != "0"
    for capabilities in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"] == "1"
    modes = there("stat", "-c", "%a %U", "/run/rm/rm.sock", "/var/lib/rmd", "/run/rm-deliver.sock").stdout
    assert modes.splitlines() == ["666 rmd", "700 rmd", "600 rmd"]


def test_users_work_with_it_and_find_their_output(there: There) -> None:
    for user in ("rm-alice", "rm-bob"):
        done = there("useradd", "--create-home", "--shell", "/bin/sh", user)
        assert done.returncode == 0, done.stderr
    done = there("sh", "-c", HOST)
    assert done.returncode == 0, done.stderr
    rmx = "/opt/rmx/bin/rmx"
    name = socket.gethostname()
    assert there(rmx, "host", "add", name, "--address", "127.0.0.1").returncode == 0
    refused = there("runuser", "-u", "rm-alice", "--", rmx, "host", "drain", name)
    assert "Only an operator" in refused.stderr
    key = there(rmx, "host", "show-key", name).stdout
    fingerprint = re.search(r"SHA256:\S+", key)
    assert fingerprint is not None, key
    done = there(rmx, "host", "accept-key", name, "--fingerprint", fingerprint[0])
    assert done.returncode == 0, done.stderr
    until(lambda: "UP" in there(rmx, "hosts").stdout, "the host is up")
    # root's commands and those of the daemon's account find its files, and leave them to it
    inventory = "/run/hosts.yml"
    there("sh", "-c", f"echo 'all: {{hosts: {{{name}: {{ansible_host: 127.0.0.1}}}}}}' >{inventory}")
    done = there(rmx, "host", "accept-key", "--all", "--inventory", inventory, "--yes")
    assert "/var/lib/rmd/known_hosts" in done.stdout, done
    assert there("stat", "-c", "%U", "/var/lib/rmd/known_hosts", "/var/lib/rmd/known_hosts.lock").stdout == (
        "rmd\nrmd\n"
    )
    run(there, "rmd", rmx, "backup", "/var/lib/rmd/backup.db")
    submit = f"cd /home/rm-alice && {rmx} submit --parsable --export=NONE --wrap 'id -un'"
    job = run(there, "rm-alice", "sh", "-c", submit).strip()
    file = f"/home/rm-alice/rm-{job}.out"
    until(lambda: there("test", "-s", file).returncode == 0, "its output is in its directory")
    assert run(there, "rm-alice", "cat", file) == "rm-alice\n"
    assert there("stat", "-c", "%U %a", file).stdout == "rm-alice 644\n"


def test_what_root_restores_the_daemon_can_open(there: There) -> None:
    """docs/backup.md, typed as root."""
    rmx = "/opt/rmx/bin/rmx"
    for words in (
        (rmx, "backup", "/root/rm.db"),
        ("systemctl", "stop", "rm"),
        (rmx, "restore", "/root/rm.db"),
        ("systemctl", "start", "rm"),
    ):
        done = there(*words)
        assert done.returncode == 0, (words, done.stderr)
    until(lambda: there(rmx, "status").returncode == 0, "the daemon leads the restored database")
    assert there("stat", "-c", "%U %a", "/var/lib/rmd/rm.sqlite3").stdout == "rmd 600\n"


def test_who_takes_the_daemon_over_writes_no_files_but_logs(there: There) -> None:
    """The helper is asked as the daemon's account could ask it."""
    program = """
import sys
from pathlib import Path
from rm.adapters.store.log_directory import LogDirectory
from rm.daemon.execution.deliver import Deliverer, Delivery
import threading
said = threading.Event()
def done(why):
    print(why)
    said.set()
user, place, name = sys.argv[1:]
evil = Path("/var/lib/rmd/evil/1.1/0.out")
evil.parent.mkdir(parents=True, exist_ok=True)
evil.write_text("evil")
logs = LogDirectory(Path("/var/lib/rmd/evil"))
Deliverer(logs, "%x").submit(Delivery(user, place, ((0, name),)), 1, 1, done)
said.wait()
"""

    def ask(account: str, user: str, place: str, name: str) -> str:
        done = there("runuser", "-u", account, "--", "/opt/rmx/bin/python", "-c", program, user, place, name)
        return done.stdout + done.stderr

    assert "root's output is never delivered" in ask("rmd", "root", "/root", "rm-1.out")
    for name in (".bashrc", "authorized_keys", "../rm-1.out"):
        assert "is not a name that jobs.deliver" in ask("rmd", "rm-alice", "/home/rm-alice", name)
    assert "Permission denied" in ask("rmd", "rm-bob", "/home/rm-alice", "rm-1.out")
    assert ask("rmd", "rm-alice", "/home/rm-alice", "rm-9.out") == "\n"
    assert there("cat", "/home/rm-alice/rm-9.out").stdout == "evil"
    # nobody else can even ask
    other = there(
        "runuser", "-u", "rm-bob", "--", "/opt/rmx/bin/python", "-c",
        "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('/run/rm-deliver.sock')",
    )  # fmt: skip
    assert "PermissionError" in other.stderr
