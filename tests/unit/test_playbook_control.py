"""Steps of the control machine: this process as the executor of a host, and a daemon of the test's own."""

import json
import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.playbook.control import Hands, carry_out
from rm.core.model.host import Host
from rm.errors import Unreachable
from tests.steps_request import rm_steps, step

Send = Callable[[str, dict[str, Any]], dict[str, Any]]


def here(host: str, request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = rm_steps.steps_operation(json.loads(json.dumps(request)))
    return answer


def ask(
    module: str,
    send: Send = here,
    daemon: Any = None,
    check: bool = False,
    reconnect: Callable[[], None] = lambda: None,
    **given: Any,
) -> dict[str, Any]:
    one = {**step(1, module, **given), "check": check}
    request = {"steps": [one], "check": check, "diff": False, "planned": {}}
    groups = {"blue": ["gpu01"]}
    known = Host("gpu01", "z", "10.0.0.1", 22, "root")
    hands = Hands(known, request, send, reconnect, (known,), threading.Event(), daemon, groups)
    answer: dict[str, Any] = carry_out(hands)["results"][0]
    return answer


def test_fetch_brings_a_file_in_parts_and_only_when_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.adapters.playbook.control.fetch.PART_BYTES", 1000)
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 20)
    given: dict[str, Any] = {"src": str(source), "dest": f"{tmp_path}/got", "_directory": str(tmp_path)}
    assert ask("fetch", check=True, **given)["changed"]
    assert not (tmp_path / "got").exists()
    first = ask("fetch", **given)
    assert (first["changed"], first["dest"]) == (True, f"{tmp_path}/got/gpu01{source}")
    assert Path(first["dest"]).read_bytes() == source.read_bytes()
    assert not ask("fetch", **given)["changed"]
    flat = ask("fetch", src=str(source), dest=f"{tmp_path}/flat/", flat=True)
    assert flat["dest"] == f"{tmp_path}/flat/source"
    missing: dict[str, Any] = {"src": f"{tmp_path}/none", "dest": f"{tmp_path}/x"}
    assert ask("fetch", **missing)["failed"]
    assert not ask("fetch", **missing, fail_on_missing=False)["failed"]


def test_a_file_that_changes_while_it_is_fetched_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.adapters.playbook.control.fetch.PART_BYTES", 4)
    source = tmp_path / "log"
    source.write_text("0123456789")

    def send(host: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = here(host, request)
        source.write_text("abcdefghij")
        return answer

    answer = ask("fetch", send, src=str(source), dest=f"{tmp_path}/d/", flat=True)
    assert "changed while it was fetched" in answer["msg"]
    assert list((tmp_path / "d").iterdir()) == []


@pytest.mark.parametrize("name", ["../../{0}", "/a/../../../{0}", "a/../../../../../{0}"])
def test_no_name_leads_fetch_out_of_its_directory(tmp_path: Path, name: str) -> None:
    below, victim = tmp_path / "a" / "got", tmp_path / "victim"
    victim.write_text("mine")
    source = tmp_path / "source"
    source.write_text("theirs")

    def send(host: str, request: dict[str, Any]) -> dict[str, Any]:
        request["steps"][0]["args"]["path"] = str(source)  # the host gives what it likes by any name
        return here(host, request)

    for name_now in (name.format("victim"), name.format(f"a/got/../../{victim}")):
        got = ask("fetch", send, src=name_now, dest=str(below))
        assert got["changed"]
        assert Path(got["dest"]).resolve().is_relative_to(below / "gpu01")
    assert victim.read_text() == "mine"


def test_hosts_and_groups_for_later_plays() -> None:
    new = ask("add_host", name="new", groups="a,b", port=1)
    assert new["changed"]
    assert new["add_host"] == {"host_name": "new", "groups": ["a", "b"], "host_vars": {"port": 1}}
    assert not ask("add_host", name="gpu01", groups="blue")["changed"]
    assert ask("group_by", key="os Debian")["add_group"] == "os-Debian"
    assert not ask("group_by", key="blue")["changed"]


def test_pause_without_a_terminal_does_not_wait() -> None:
    assert "no terminal" in ask("pause", prompt="sure?")["stdout"]
    assert ask("pause", seconds=0)["stdout"] == "Paused for 0 seconds"


class Rebooting:
    """A host that loses two connections while another boot id comes up."""

    def __init__(self) -> None:
        self.lost, self.reconnected, self.boots = 0, 0, 0

    def __call__(self, host: str, request: dict[str, Any]) -> dict[str, Any]:
        op = request["steps"][0]["op"]
        if op == "reboot_now":
            self.lost = 2
            self.boots += 1
            return {"results": [{"changed": True}], "planned": {}}
        if self.lost:
            self.lost -= 1
            raise Unreachable("the host is away")
        if op == "boot_id":
            return {"results": [{"boot_id": f"boot {self.boots}"}], "planned": {}}
        return here(host, request)

    def again(self) -> None:
        self.reconnected += 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting takes no time."""
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: self.is_set())


def test_reboot_refuses_at_once_where_a_restart_could_not_be_noticed() -> None:
    asked = []

    def container(host: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["steps"][0]["op"])
        return {"results": [{"failed": True, "msg": "It is a container"}], "planned": {}}

    answer = ask("reboot", container)
    assert (answer["failed"], "is a container" in answer["msg"], asked) == (True, True, ["boot_id"])


@pytest.mark.usefixtures("hasty")
def test_reboot_waits_for_another_boot() -> None:
    host = Rebooting()
    assert ask("reboot", host, check=True)["changed"]
    assert host.boots == 0
    answer = ask("reboot", host, reconnect=host.again)
    assert (answer["rebooted"], answer["changed"], host.boots, host.reconnected) == (True, True, 1, 2)
    failing = ask("reboot", host, reconnect=host.again, test_command="false", reboot_timeout=0)
    assert "did not come back" in failing["msg"]


@pytest.mark.usefixtures("hasty")
def test_wait_for_connection() -> None:
    host = Rebooting()
    host.lost = 3
    assert not ask("wait_for_connection", host, reconnect=host.again)["failed"]
    assert host.reconnected == 3
    host.lost = 9
    assert "Timed out" in ask("wait_for_connection", host, timeout=0)["msg"]


class Daemon:
    """Answers as the daemon's client does; a job ends each time somebody looks."""

    def __init__(self, jobs: list[int], drained_by: str = "") -> None:
        self.host = SimpleNamespace(name="gpu01", drained_by=drained_by, jobs=jobs)
        self.asked: list[str] = []

    def hosts(self) -> list[Any]:
        self.asked.append("hosts")
        found = copy(self.host)
        self.host.jobs = self.host.jobs[1:]
        return [found]

    def drain(self, name: str, reason: str = "") -> Any:
        self.asked.append(f"drain {name}")
        self.host.drained_by = f"{reason} (root)"
        return self.host

    def resume(self, name: str) -> Any:
        self.asked.append(f"resume {name}")
        self.host.drained_by = ""
        return self.host


@pytest.mark.usefixtures("hasty")
def test_drain_waits_for_jobs_and_resume_returns_only_its_own() -> None:
    daemon = Daemon([1, 2])
    foretold = ask("rm_drain", daemon=daemon, check=True)
    assert (foretold["changed"], daemon.asked) == (True, ["hosts"])
    daemon = Daemon([1, 2])
    answer = ask("rm_drain", daemon=daemon, reason="new switch")
    assert (answer["changed"], answer["jobs"]) == (True, [])
    assert daemon.asked.count("drain gpu01") == 1
    assert not ask("rm_drain", daemon=daemon)["changed"]
    other = ask("rm_resume", daemon=daemon, only_drained_by="bad cable")
    assert (other["changed"], other["msg"]) == (False, "gpu01 stays drained: new switch (root)")
    assert ask("rm_resume", daemon=daemon, only_drained_by="new switch")["changed"]
    assert not ask("rm_resume", daemon=daemon)["changed"]
    late = ask("rm_drain", daemon=Daemon([5, 6, 7]), timeout=0)
    assert "still runs the jobs 5, 6, 7 after 0 s" in late["msg"]


def test_without_a_daemon_or_a_known_host_it_is_told() -> None:
    assert "No daemon is known" in ask("rm_drain")["msg"]
    assert "knows no host nobody" in ask("rm_drain", daemon=Daemon([]), host="nobody")["msg"]


def test_the_network_test_names_the_bad_cable() -> None:
    names = [f"h{i}" for i in range(5)]
    variables = {
        "ansible_play_batch": names,
        "hostvars": {name: {"ansible_host": f"10.0.0.{name[1]}"} for name in names},
    }
    lock = threading.Lock()
    busy: set[str] = set()

    def send(host: str, request: dict[str, Any]) -> dict[str, Any]:
        with lock:
            assert host not in busy, "a host has one test at a time"
            busy.add(host)
        try:
            one = request["steps"][0]["args"]
            bad = "h3" in (host, "h" + one["address"][-1])
            if host == "h4" and bad:
                raise Unreachable("gone")
            found = {"answered": True, "throughput_bps": 10**9}
            if one["leads"]:
                found.update(loss_forward_pct=4.0 if bad else 0.0, loss_backward_pct=0.0)
            return {"results": [found], "planned": {}}
        finally:
            with lock:
                busy.discard(host)

    answer = ask("rm_burn_in_network", send, _variables=variables)
    assert answer["failed"]
    assert list(answer["bad_cables"]) == ["h3"]
    assert len(answer["pairs"]) == 20
    assert "h3: 4 of 4 pairs are bad" in answer["msg"]
    assert ask("rm_burn_in_network", send, check=True, _variables=variables)["might_run"]
    fine = ask("rm_burn_in_network", send, _variables=variables, hosts="h0,h1,h2")
    assert (fine["failed"], fine["bad_cables"], fine["median_mbps"]) == (False, {}, 1000)

    def lying(host: str, request: dict[str, Any]) -> dict[str, Any]:
        if host != "h1":
            return send(host, request)
        return {"results": [{"answered": True, "throughput_bps": 1 << 60, "error": "x"}], "planned": {}}

    told = ask("rm_burn_in_network", lying, _variables=variables, hosts="h0,h1,h2")
    assert told["failed"]  # where it leads it does not say what was lost
    assert all("h1" in path["hosts"] for path in told["bad_paths"])
    assert told["bad_cables"].keys() <= {"h1"}
