"""Playbooks interrupted at random points: no file is ever half written, the next run finishes."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.lab import Lab
from tests.cluster import RMX, WAIT_S, until

pytestmark = pytest.mark.lab
SEED = 20_261_121
WRITTEN = {
    "copied/0": "", "copied/1": "", "copied/2": "", "long": "", "templated": "", "line": "", "block": "",
    **{f"tree/{number}": "" for number in range(8)},
}  # fmt: skip
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - file: {path: /srv/copied, state: directory}
    - copy: {content: "{{ text }}", dest: "/srv/copied/{{ item }}", mode: "0640"}
      loop: [0, 1, 2]
    - template: {src: page.j2, dest: /srv/templated}
    - lineinfile: {path: /srv/line, regexp: "^version=", line: "version={{ version }}", create: true}
    - blockinfile: {path: /srv/block, block: "{{ text }}", create: true}
    - file: {path: /srv/tree, state: directory}
    - unarchive: {src: "tree{{ version }}.tar", dest: /srv/tree}
    - copy: {src: "long{{ version }}", dest: /srv/long}
    - copy: {content: "{{ version }}", dest: /srv/done}
"""


def text(version: int) -> str:
    return f"line of version {version}\n" * 4000


class Site:
    """The playbook in a directory, and what its files hold on the hosts."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab, self.directory = lab, directory
        (directory / "site.yml").write_text(PLAY)
        (directory / "page.j2").write_text("{{ text }}")
        (directory / "rm.toml").write_text(
            f'[daemon]\nstate_dir = "{directory}/state"\nsocket = "{directory}/none"\n'
            f'[ssh]\nknown_hosts = "{lab.known_hosts}"\ndead_after_s = 6.0\nconnect_timeout_s = 20.0\n'
        )

    def start(self, version: int) -> subprocess.Popen[str]:
        (self.directory / f"long{version}").write_text(text(version) * 20)
        with tarfile.open(self.directory / f"tree{version}.tar", "w") as archive:
            for number in range(8):
                data = text(version).encode()
                member = tarfile.TarInfo(str(number))
                member.size, member.mtime = len(data), version
                archive.addfile(member, io.BytesIO(data))
        given = json.dumps({"version": version, "text": text(version)})
        (self.directory / "given.json").write_text(given)
        argv = [RMX, "--config", self.directory / "rm.toml", "playbook", "run", self.directory / "site.yml"]
        argv += ["-i", self.lab.inventory, "-e", f"@{self.directory}/given.json"]
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, version: int) -> tuple[int, str, str]:
        process = self.start(version)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, out, err

    def versions(self, host: str) -> Iterator[tuple[str, int]]:
        """Each file of the host with its version; fails where one is neither whole."""
        argv = ["tar", "--ignore-failed-read", "-cf", "-", "-C", "/srv", "."]
        with tarfile.open(fileobj=io.BytesIO(self.lab.exec(host, argv).stdout)) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if not member.isfile() or name.rpartition("/")[2].endswith(".rm-new"):
                    continue
                taken = archive.extractfile(member)
                assert taken is not None
                yield name, _version(name, taken.read().decode())

    def left_behind(self, host: str) -> str:
        look = "find /srv /etc /var/tmp -xdev -name '*rm-new*'; pgrep -af 'import [r]m_steps' || true"
        return self.lab.exec(host, ["sh", "-c", look]).stdout.decode()


def _version(name: str, content: str) -> int:
    if name == "done":
        return int(content)
    words = content.replace("# BEGIN ANSIBLE MANAGED BLOCK", "").split()
    number = int(words[0].partition("=")[2] if name == "line" else words[3])
    whole = {
        "line": f"version={number}\n",
        "long": text(number) * 20,
        "block": f"# BEGIN ANSIBLE MANAGED BLOCK\n{text(number)}# END ANSIBLE MANAGED BLOCK\n",
    }.get(name, text(number))
    assert content == whole, f"{name} is neither old nor new: {len(content)} characters"
    return number


def test_a_file_is_old_or_new_and_the_next_run_finishes(make_lab: Any, tmp_path: Path) -> None:
    chance, lab = random.Random(SEED), make_lab(zones=1, hosts=2)
    site = Site(lab, tmp_path)
    hosts = [host.name for host in lab.hosts]
    began = time.monotonic()
    code, out, err = site.run(0)
    assert code == 0, err
    takes_s = time.monotonic() - began  # a whole run, on this machine as busy as it is
    allowed = {host: {name: {0} for name in (*WRITTEN, "done")} for host in hosts}
    cut_short = 0
    for version, how in enumerate(["kill", "int", "cut", "crash", "kill"], 1):
        began = time.monotonic()
        process = site.start(version)
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline().startswith("PLAY")
        time.sleep(chance.uniform(0, takes_s / 3))  # any point will do
        if how in ("cut", "crash"):
            getattr(lab, how)(hosts[0])
        else:
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
        assert "Traceback" not in err
        if how == "int" and process.returncode:
            assert process.returncode in (130, -signal.SIGINT)  # the latter where it was ending by itself
            assert process.returncode != 130 or out.splitlines()[-1].startswith("not finished: ")
        if how in ("cut", "crash"):
            assert process.returncode in (0, 4), err
            assert f"{hosts[1]} : " in out
            assert dict(site.versions(hosts[1])) == dict.fromkeys((*WRITTEN, "done"), version)
            lab.heal(hosts[0]) if how == "cut" else lab.boot(hosts[0])
        cut_short += process.returncode != 0
        if not process.returncode:  # it was quicker than the first, whose time says nothing any more
            takes_s = min(takes_s, time.monotonic() - began)
        for host in hosts:
            for name, seen in site.versions(host):
                assert seen in allowed[host][name] | {version}, f"{name} of {host} after {how}"
                allowed[host][name] = {seen, version}  # a step that was under way may still end
    assert cut_short >= 2  # runs were interrupted indeed

    code, out, err = site.run(99)
    assert code == 0, err
    for host in hosts:
        assert dict(site.versions(host)) == dict.fromkeys((*WRITTEN, "done"), 99)
        until(lambda host=host: not site.left_behind(host), f"nothing is left on {host}")
    assert all(" changed=0 " in line for line in site.run(99)[1].splitlines())


def test_history_tells_how_runs_ended(make_lab: Any, tmp_path: Path) -> None:
    """An interrupted run is in the history, with the hosts that it did not reach."""
    lab = make_lab(zones=1, hosts=1)
    site = Site(lab, tmp_path)
    (tmp_path / "site.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n  - copy: {content: x, dest: /srv/begun}\n"
        "    register: begun\n  - wait_for: {path: /srv/go}\n    when: begun is not failed\n"
        "    register: waited\n"
        "  - wait_for: {path: /srv/never, timeout: 20}\n    when: waited is not failed\n"
    )
    process = site.start(1)
    (name,) = (host.name for host in lab.hosts)
    until(lambda: lab.exec(name, ["test", "-e", "/srv/begun"]).returncode == 0, "the first task is done")
    process.send_signal(signal.SIGINT)
    lab.exec(name, ["touch", "/srv/go"])  # the step that is under way is finished
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert f"not finished: {name}" in out
    argv = [RMX, "--config", tmp_path / "rm.toml", "playbook", "history", "--json"]
    (kept,) = json.loads(subprocess.run(argv, capture_output=True, check=True, env=os.environ).stdout)["runs"]
    assert (kept["result"], kept["not_reached"]) == ("interrupted", [name])
