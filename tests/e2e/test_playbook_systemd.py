"""`systemd`, `service` and `service_facts` against a real systemd: PID 1 of a namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster import until
from tests.steps_request import AGENTS, step
from tests.systemd_machine import SYSTEMD, machine

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0 or not SYSTEMD, reason="needs root and systemd"),
]
UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={start}\nExecReload=/bin/true\n"
UNITS = {
    "lamp.service": UNIT.format(start="/bin/sleep 1000") + "[Install]\nWantedBy=quiet.target\n",
    "broken.service": UNIT.format(start="/bin/false"),
    "lamp@.service": UNIT.format(start="/bin/sleep 1001"),
}
Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Carries steps out beside that systemd; results in order."""
    units = "\n".join(
        f"cat >/usr/lib/systemd/system/{name} <<'END'\n{text}END" for name, text in UNITS.items()
    )
    place, log = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("log") / "log"
    with machine(place, log, units) as there:

        def asked(*steps: dict[str, Any], check: bool = False) -> list[dict[str, Any]]:
            request = {"op": "steps", "id": 1, "steps": list(steps), "check": check, "diff": True}
            program = [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "-S", "-E"]
            done = there(*program, str(AGENTS / "rm_steps.py"), text=json.dumps(request) + "\n")
            assert done.returncode == 0, done.stderr
            found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["result"]["results"]
            return found

        yield asked


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
