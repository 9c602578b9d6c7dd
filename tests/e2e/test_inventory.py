"""One inventory: what rm.toml, `rmx host` and an import bring is what playbooks see, over restarts."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

from rm.adapters.store.opening import open_store
from rm.core.store import Batch
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests import builders, preloaded
from tests.cluster import RMX, WAIT_S, until

DECLARED = """
rack:
  vars: {row: 7}
  hosts:
    a: {ansible_host: 127.0.0.1, ansible_port: 1, rm_zone: east, rm_cpus: 2}
"""
PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - debug: {msg: "{{ rm_zone }} {{ row | default('-') }} {{ group_names | join(',') }}"}
"""


class Daemon:
    def __init__(self, place: Path) -> None:
        self.place, self.process = place, None
        (place / "hosts.yml").write_text(DECLARED)
        (place / "site.yml").write_text(PLAY)
        (place / "rm.toml").write_text(
            f'[daemon]\nsocket = "{place}/rm.sock"\nstate_dir = "{place}/state"\n'
            f'[hosts]\ninventory = "{place}/hosts.yml"\n[monitor]\nenabled = false\n'
        )

    def start(self) -> preloaded.Program:
        return preloaded.daemon(RMX, self.place / "rm.toml", self.place / "daemon.log")

    def __enter__(self) -> Daemon:
        self.process = self.start()
        until(self.answers, "the daemon knows the hosts of rm.toml")
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.place / "daemon.log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(self.place / "rm.sock")):
                return False
        return "a" in [host["name"] for host in json.loads(self.rmx("hosts", "--json"))["hosts"]]

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)

    def rmx(self, *words: str) -> str:
        argv = [RMX, "--config", self.place / "rm.toml", *words]
        done = preloaded.run(argv, timeout=WAIT_S, cwd=self.place)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def played(self) -> dict[str, str]:
        ran = json.loads(self.rmx("playbook", "run", "site.yml", "--json"))
        return {name: results[0]["message"] for name, results in ran["results"].items()}


def test_playbooks_see_the_hosts_that_the_daemon_knows(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    with daemon:
        assert daemon.played() == {"a": "east 7 rack"}
        daemon.rmx("host", "add", "b", "--address=127.0.0.1", "--port=1", "--zone=west", "--group=added")
        assert daemon.played() == {"a": "east 7 rack", "b": "west - added"}
        (tmp_path / "more.ini").write_text(
            "[added]\nb ansible_host=127.0.0.1 ansible_port=1 rm_zone=west row=9\n"
        )
        daemon.rmx("host", "import", "more.ini")
        daemon.rmx(
            "host", "add", "a", "--address=127.0.0.1", "--port=1", "--zone=north"
        )  # its variables stay
        assert daemon.played() == {"a": "north 7 rack", "b": "west 9 added"}
        exported = {form: daemon.rmx("host", "export", f"--format={form}") for form in ("yaml", "ini")}
        assert to_hosts(parse(exported["yaml"], "x.yml")) == to_hosts(parse(exported["ini"], "x.ini"))
    (tmp_path / "hosts.yml").write_text(DECLARED.replace("row: 7", "row: 8"))
    with daemon:  # it reads rm.toml's inventory again, and keeps what was added
        assert daemon.played() == {"a": "east 8 rack", "b": "west 9 added"}
    # without a daemon the file of rm.toml is all there is
    assert daemon.played() == {"a": "east 8 rack"}


def test_a_daemon_does_not_start_on_an_inventory_that_is_wrong(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    (tmp_path / "hosts.yml").write_text("rack:\n  hosts:\n    a: {rm_cpus: many}\n")
    assert daemon.start().wait(WAIT_S) == 8
    assert "hosts.yml:3: rm_cpus of host 'a' is 'many'" in (tmp_path / "daemon.log").read_text()
    assert not (tmp_path / "state").exists()


def test_a_daemon_leads_its_other_hosts_where_some_are_not_accepted(tmp_path: Path) -> None:
    """One stands in the inventory, another was stored by an rm that took it."""
    daemon = Daemon(tmp_path)
    (tmp_path / "state").mkdir(mode=0o700)
    store = open_store(f"sqlite:///{tmp_path}/state/rm.sqlite3")
    assert store.acquire_lease("an older rm", 0, 1)
    stored = [builders.host(name, address="127.0.0.1:22") for name in ("gpu[1-3]", "..")]
    store.commit(Batch(hosts=stored), store.load().version)
    store.release_lease()
    store.close()
    (tmp_path / "hosts.yml").write_text(DECLARED + "    c: {ansible_host: '127.0.0.1:22'}\n")
    for _ in range(2):
        with daemon:
            listed = [host["name"] for host in json.loads(daemon.rmx("hosts", "--json"))["hosts"]]
            assert sorted(listed) == ["..", "a", "gpu[1-3]"]
    log = (tmp_path / "daemon.log").read_text()
    assert f"{tmp_path}/hosts.yml: The host 'c' cannot be accepted: its address names" in log
    assert "Traceback" not in log
