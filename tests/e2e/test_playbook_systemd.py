"""`systemd`, `service` and `service_facts` against a real systemd: PID 1 of a namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import until
from tests.steps_request import AGENTS, step

SYSTEMD = next((p for p in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if os.path.exists(p)), "")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0 or not SYSTEMD, reason="needs root and systemd"),
]
UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={start}\nExecReload=/bin/true\n"
UNITS = {
    "quiet.target": "[Unit]\nDefaultDependencies=no\n",
    "lamp.service": UNIT.format(start="/bin/sleep 1000") + "[Install]\nWantedBy=quiet.target\n",
    "broken.service": UNIT.format(start="/bin/false"),
    "lamp@.service": UNIT.format(start="/bin/sleep 1001"),
}
# all that it could change is covered by file systems of the namespace's own
START = """set -e
mount -t tmpfs none "$1"
for top in etc usr; do
  mkdir -p "$1/$top.upper" "$1/$top.work"
  mount -t overlay none -o "lowerdir=/$top,upperdir=$1/$top.upper,workdir=$1/$top.work" "/$top"
done
mount -t tmpfs none /run
mount -t cgroup2 none /sys/fs/cgroup
rm -rf /etc/systemd/system /etc/fstab /etc/machine-id
mkdir -p /etc/systemd/system /run/lock
printf '%032d\\n' 1 >/etc/machine-id
ln -s /usr/lib/systemd/system/quiet.target /etc/systemd/system/default.target
{units}
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin {systemd} --system --log-target=console
"""
Ask = Callable[..., list[dict[str, Any]]]


def end(group: Path) -> None:
    """Kill what is in the control group, and remove it."""
    for one in sorted(group.rglob("cgroup.procs"), reverse=True):
        for pid in one.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), 9)

    def removed() -> bool:
        for folder in sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    until(removed, f"{group} is empty")


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Carries steps out beside that systemd; results in order."""
    tops = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    group = next(t for t in tops if (t / "cgroup.controllers").exists()) / f"rm-systemd-{os.getpid()}"
    place, log = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("log") / "log"
    units = "\n".join(
        f"cat >/usr/lib/systemd/system/{name} <<'END'\n{text}END" for name, text in UNITS.items()
    )
    script = START.replace("{units}", units).replace("{systemd}", SYSTEMD)
    group.mkdir()
    inside = ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--mount-proc",
              "--kill-child", "sh", "-c", script, "sh", str(place)]  # fmt: skip
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

    def asked(*steps: dict[str, Any], check: bool = False) -> list[dict[str, Any]]:
        request = {"op": "steps", "id": 1, "steps": list(steps), "check": check, "diff": True}
        program = [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "-S", "-E"]
        done = there(*program, str(AGENTS / "rm_steps.py"), text=json.dumps(request) + "\n")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["result"]["results"]
        return found

    try:
        until(lambda: there("systemctl", "is-active", "quiet.target").returncode == 0, "systemd is up")
        yield asked
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{log.read_text()[-2000:]}") from problem
    finally:
        end(group)
        outer.wait(60)


def test_units_start_stop_and_are_foretold(ask: Ask) -> None:
    def one(check: bool = False, module: str = "systemd", **given: Any) -> dict[str, Any]:
        return ask(step(1, module, **given), check=check)[0]

    def done(**given: Any) -> dict[str, Any]:
        foretold, first = one(check=True, **given), one(**given)
        assert (foretold["changed"], first["changed"], first["failed"]) == (True, True, False), first
        assert foretold["diff"] == first["diff"]
        assert not one(**given)["changed"]
        return first

    on = done(name="lamp", state="started", enabled=True, daemon_reload=True)
    assert (on["status"]["ActiveState"], on["status"]["UnitFileState"]) == ("active", "enabled")
    again = one(name="lamp", state="restarted")
    assert again["changed"]
    assert again["status"]["MainPID"] != on["status"]["MainPID"]
    assert one(module="service", name="lamp", state="reloaded")["changed"]
    assert not one(module="service", name="lamp.service", state="started", enabled=True)["changed"]
    facts = ask(step(1, "service_facts"))[0]["ansible_facts"]["services"]
    assert facts["lamp.service"] == {
        "name": "lamp.service", "state": "running", "status": "enabled", "source": "systemd",
    }  # fmt: skip
    done(name="lamp", state="stopped", enabled=False)
    done(name="lamp", masked=True)
    refused = one(name="lamp", state="started")
    assert refused["failed"]
    assert "masked" in refused["msg"]
    done(name="lamp", masked=False)
    done(name="lamp@one", state="started")
    done(name="lamp@one", state="stopped")


def test_units_that_fail_or_are_not_there(ask: Ask) -> None:
    assert ask(step(1, "systemd", name="broken", state="started"))[0]["changed"]  # as its start is asked for
    until(
        lambda: (
            ask(step(1, "service_facts"))[0]["ansible_facts"]["services"]["broken.service"]["state"]
            == "failed"
        ),
        "systemd notices the failure",
    )
    for module in ("systemd", "service"):
        missing = ask(step(1, module, name="nosuchthing", state="stopped"))[0]
        assert missing["failed"]
        assert "Could not find the requested service nosuchthing" in missing["msg"]
    assert ask(step(1, "systemd", daemon_reload=True))[0]["changed"] is False
