"""The shipped playbooks on fresh hosts: they arrive, they hold, they leave nothing; hosts fail alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.run import Report, run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.lab import Lab
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.cluster import LOSING, ssh_settings, until

pytestmark = pytest.mark.lab
# without the backups that useradd and userdel keep of the account files, and their lock
SHARED = """
find /opt /var/lib /home /srv /etc -xdev -not -name '*-' -not -name '.pwd.lock'
cat /etc/passwd /etc/group
"""
OWN = """
find /root -xdev
find /sys/fs/cgroup -maxdepth 3 -path '*rm*'
tc qdisc show | grep -v ' ref'
nft list ruleset
"""


def left(lab: Lab, host: str) -> set[str]:
    """What there is on a host and not on this machine, whose directories the host sees below its own: at both
    of two looks, since one also finds what is here for a moment."""
    return seen(lab, host) & seen(lab, host)


def seen(lab: Lab, host: str) -> set[str]:
    # this machine is looked at before and after: what comes and goes here meanwhile is not the host's
    before = lines_here(SHARED)
    found = {*out(lab, host, SHARED).splitlines()}
    return found - before - lines_here(SHARED) | {*out(lab, host, OWN).splitlines()}


def lines_here(script: str) -> set[str]:
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    return {*done.stdout.splitlines()}


def run(lab: Lab, playbook: str | Path, ssh: Mapping[str, Any] | None = None, **options: Any) -> Report:
    """`ssh`: settings of the connections that are not `ssh_settings`'."""
    hosts = to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))
    path = playbook if isinstance(playbook, Path) else shipped_directory("playbooks") / f"{playbook}.yml"
    return run_playbook(path, hosts, ssh_settings(lab, **(ssh or {})), **options)


def out(lab: Lab, host: str, script: str) -> str:
    return lab.exec(host, ["sh", "-c", script]).stdout.decode()


def test_shipped_playbooks_arrive_hold_and_leave_nothing(make_lab: Any) -> None:
    lab = make_lab(zones=1, hosts=2)
    names = [host.name for host in lab.hosts]
    for name in names:  # lab hosts see what rm, in use on this machine, keeps there
        lab.exec(name, ["rm", "-rf", "/var/lib/rm", "/opt/rm"])
    before = {name: left(lab, name) for name in names}
    for playbook, changes in (("bootstrap", True), ("agents", False), ("shaping", False), ("probes", False)):
        foretold = run(lab, playbook, check=True)
        assert foretold.ok, foretold.failures()
        first = run(lab, playbook, diff=True)
        assert first.ok, first.failures()
        assert sorted(first.results) == names
        assert (first.changed > 0) is changes, playbook
        second = run(lab, playbook)
        assert second.ok, second.failures()
        assert second.changed == 0, playbook
    greeting = out(lab, names[0], "python3 -S -E /opt/rm/agents/rm_agent.py --serve </dev/null")
    assert json.loads(greeting.splitlines()[0])["event"] == "hello"

    assert run(lab, "uninstall").ok
    assert {name: left(lab, name) for name in names} == before
    lab.exec(names[1], ["rm", "/etc/ssh/sshd_config"])  # as where sshd has its settings elsewhere
    again = run(lab, "uninstall")
    assert again.ok, again.failures()
    assert again.changed == 0


def test_agents_of_another_rm_go_and_where_none_are_found_to_install_all_stay(
    make_lab: Any, tmp_path: Path
) -> None:
    lab = make_lab(zones=1, hosts=1)
    (name,) = (host.name for host in lab.hosts)
    assert run(lab, "agents").ok
    lab.exec(name, ["touch", "/opt/rm/agents/rm_old.py", "/opt/rm/agents/notes"])
    listed = "ls /opt/rm/agents | grep -v __pycache__"
    before = out(lab, name, listed).split()
    assert run(lab, "agents", variables={"rm_agents_dir": str(tmp_path / "none")}).ok
    assert out(lab, name, listed).split() == before
    assert run(lab, "agents").ok
    assert out(lab, name, listed).split() == [one for one in before if one != "rm_old.py"]


def test_uninstall_refuses_while_a_job_runs_unless_forced(make_lab: Any) -> None:
    lab = make_lab(zones=1, hosts=1)
    (name,) = (host.name for host in lab.hosts)
    assert run(lab, "agents").ok
    start = """
        top=/sys/fs/cgroup/rm; [ -e /sys/fs/cgroup/cgroup.controllers ] || top=/sys/fs/cgroup/unified/rm
        mkdir -p $top/job_7_1
        setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $! >$top/job_7_1/cgroup.procs
    """
    lab.exec(name, ["sh", "-c", start])
    refused = run(lab, "uninstall")
    assert not refused.ok
    assert "running" in refused.failures()[0]
    forced = run(lab, "uninstall", variables={"rm_force": "yes"})
    assert forced.ok, forced.failures()
    until(lambda: lab.exec(name, ["pgrep", "-f", "sleep 300"]).returncode != 0, "what ran has ended")


PLAYS = """
- name: Write
  hosts: all
  tasks:
    - file: {path: /srv/app, state: directory, mode: "0750"}
    - copy:
        content: "{{ inventory_hostname }} on {{ ansible_distribution }}\\n"
        dest: "/srv/app/{{ item }}"
      loop: [a, b]
      notify: told
    - command: cat /srv/app/a
      register: read
      changed_when: false
      when: not ansible_check_mode
    - name: Break one
      fail: {msg: broken on purpose}
      when: inventory_hostname == broken | default('') and read.stdout is search('on')
    - copy: {content: done, dest: /srv/app/done}
  handlers:
    - name: told
      shell: echo told >> /srv/app/log
- name: After
  hosts: all
  gather_facts: false
  tasks:
    - stat: {path: /srv/app/done}
      register: done
    - assert: {that: done.stat.exists}
      when: not ansible_check_mode
"""


def test_hosts_fail_alone(make_lab: Any, tmp_path: Path) -> None:
    lab = make_lab(zones=1, hosts=4)
    one, two, three, four = (host.name for host in lab.hosts)
    (tmp_path / "plays.yml").write_text(PLAYS)
    plays = tmp_path / "plays.yml"

    foretold = run(lab, plays, check=True, limit=three, diff=True)
    assert out(lab, three, "ls /srv") == ""
    lab.crash(one)
    first = run(lab, plays, variables={"broken": two}, diff=True, ssh=LOSING["ssh"])
    assert not first.ok
    recap = first.recap()
    assert (recap[one].unreachable, recap[one].ok) == (1, 0)
    assert (recap[two].failed, recap[two].unreachable) == (1, 0)
    assert recap[three] == recap[four]
    assert (recap[three].failed, recap[three].changed) == (0, 4)
    assert [line.split(":")[0] for line in sorted(first.failures())] == [one, two]
    diffs = [one.diffs for one in first.results[three]]
    assert [d for d in diffs if d] == [one.diffs for one in foretold.results[three] if one.diffs]
    assert out(lab, three, "cat /srv/app/log") == "told\n"

    lab.boot(one)
    second = run(lab, plays)
    assert second.ok, second.failures()
    assert {name: recap.changed for name, recap in second.recap().items()} == {
        one: 4,
        two: 1,
        three: 0,
        four: 0,
    }


def test_a_host_lost_in_the_middle_is_told_and_the_next_run_finishes(make_lab: Any, tmp_path: Path) -> None:
    lab = make_lab(zones=1, hosts=2)
    one, two = (host.name for host in lab.hosts)
    plays = tmp_path / "slow.yml"
    plays.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "  - copy: {content: x, dest: /srv/first}\n    register: first\n"
        "  - wait_for: {path: /srv/go, timeout: 60}\n    when: first is not failed\n"
        "  - copy: {content: x, dest: /srv/last}\n"
    )
    freeze_at_first = []

    def watch(event: Any) -> None:
        if event.result is not None and event.result.host == one and not freeze_at_first:
            freeze_at_first.append(event)
            lab.freeze(one)
            lab.exec(two, ["touch", "/srv/go"])

    report = run(lab, plays, progress=watch, ssh=LOSING["ssh"])
    lab.thaw(one)
    recap = report.recap()
    assert (recap[one].unreachable, recap[two].failed, recap[two].changed) == (1, 0, 2)
    assert "unknown" in report.failures()[0]
    assert report.failures()[0].endswith("or at one of the 1 that were sent with it, up to 'copy'.")
    lab.exec(one, ["touch", "/srv/go"])
    assert run(lab, plays).ok
    assert out(lab, one, "cat /srv/last") == "x"


def test_a_host_whose_steps_are_stopped_is_given_up_after_their_time_limit(
    make_lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.adapters.playbook.program.GRACE_S", 1.0)
    lab = make_lab(zones=1, hosts=2)
    one, two = (host.name for host in lab.hosts)
    plays = tmp_path / "stopped.yml"
    plays.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "  - copy: {content: x, dest: /srv/first}\n    register: first\n"
        f"  - name: Wait\n    wait_for: {{path: /srv/go}}\n    timeout: 8\n"
        f"    when: first is not failed and inventory_hostname == '{one}'\n"
        "  - copy: {content: x, dest: /srv/last}\n"
    )
    stopped: list[int] = []

    def watch(event: Any) -> None:
        if event.result is not None and event.result.host == one and not stopped:
            script = "pgrep -f 'import [r]m_steps' | tee /srv/ids | xargs kill -STOP"
            stopped.append(lab.exec(one, ["sh", "-c", script]).returncode)

    report = run(lab, plays, progress=watch)
    assert stopped == [0]
    recap = report.recap()
    assert (recap[one].ok, recap[one].unreachable, recap[two].failed, recap[two].changed) == (1, 1, 0, 2)
    (said,) = report.failures()
    assert said.startswith(f"{one}: Wait: Host {one} did not end steps within their time limits")
    lab.exec(one, ["sh", "-c", "touch /srv/go; xargs kill -CONT < /srv/ids"])
    assert run(lab, plays).ok
