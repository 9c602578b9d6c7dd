"""Modules on real hosts: accounts, mounts, keys, restarts, and the burn-in that names the bad cable."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.run import Report, run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.core.model.host import Host
from rm.lab import Lab
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.cluster import ssh_settings

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(make_module_lab: Any) -> Lab:
    made: Lab = make_module_lab(zones=1, hosts=4)
    return made


def run(lab: Lab, playbook: Path, hosts: list[Host] | None = None, **options: Any) -> Report:
    hosts = hosts or to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))
    return run_playbook(playbook, hosts, ssh_settings(lab), **options)


def out(lab: Lab, host: str, script: str) -> str:
    return lab.exec(host, ["sh", "-c", script]).stdout.decode()


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - group: {name: team, gid: 4242}
    - user:
        name: ada
        groups: [team]
        password: $6$salt$hashed
        comment: Ada L
        shell: /bin/sh
        generate_ssh_key: true
        ssh_key_type: ed25519
        ssh_key_passphrase: of ada alone
    - authorized_key: {user: ada, key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGlQUzggxmS8XOj4vb0AbB ada"}
    - command: id -Gn
      become: true
      become_user: ada
      register: groups_of_ada
      changed_when: false
    - assert: {that: "'team' in groups_of_ada.stdout"}
      when: not ansible_check_mode
    - mount: {path: /srv/scratch, src: tmpfs, fstype: tmpfs, opts: "size=1m", state: mounted}
    - sysctl: {name: net.ipv4.ip_local_port_range, value: "20000 60000", sysctl_set: true, reload: false}
    - hostname: {name: "{{ inventory_hostname }}-lab"}
    - getent: {database: passwd, key: ada}
    - copy: {content: "{{ ansible_facts.getent_passwd.ada[4] }}\\n", dest: /srv/home, mode: "u=rw,g=r,o="}
      when: not ansible_check_mode
    - fetch: {src: /etc/fstab, dest: "{{ into }}/"}
"""


def test_accounts_mounts_and_settings(lab: Lab, tmp_path: Path) -> None:
    path, name = tmp_path / "play.yml", lab.hosts[0].name
    path.write_text(PLAY)
    options: dict[str, Any] = {"limit": name, "variables": {"into": str(tmp_path / "got")}, "diff": True}
    foretold = run(lab, path, check=True, **options)
    assert foretold.ok, foretold.failures()
    assert lab.exec(name, ["id", "ada"]).returncode != 0
    assert "/srv/scratch" not in out(lab, name, "mount")
    first = run(lab, path, **options)
    assert first.ok, first.failures()
    changed = [(one.task, one.status) for one in first.results[name] if one.task not in ("assert", "copy")]
    said = [(one.task, one.status) for one in foretold.results[name] if one.task not in ("assert", "copy")]
    unsure = {"command", "getent", "fetch"}  # of what check mode has not made
    assert [c for c in changed if c[0] not in unsure] == [s for s in said if s[0] not in unsure]
    second = run(lab, path, **options)
    assert (second.ok, second.changed) == (True, 0), [
        (one.task, one.diffs) for one in second.results[name] if one.status == "changed"
    ]
    assert out(lab, name, "getent shadow ada").split(":")[1] == "$6$salt$hashed"
    assert "tmpfs /srv/scratch tmpfs size=1m 0 0" in (tmp_path / f"got/{name}/etc/fstab").read_text()
    assert out(lab, name, "cat /srv/home; stat -c %a /srv/home; hostname").split() == [
        "/home/ada", "640", f"{name}-lab",
    ]  # fmt: skip
    key = f"{tmp_path}/id_ed25519"  # read by this machine's program
    Path(key).write_text(out(lab, name, "cat /home/ada/.ssh/id_ed25519"))
    Path(key).chmod(0o600)
    for word, code in (("of ada alone", 0), ("", 255)):
        argv = ["ssh-keygen", "-y", "-P", word, "-f", key]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == code
    assert "alone" not in repr([one.result for one in first.results[name] if one.task == "user"])
    assert "hashed" not in repr([one.result for one in first.results[name] if one.task == "user"])


REBOOT = """
- hosts: all
  gather_facts: false
  tasks:
    - shell: "[ -e /run/boots ] || echo 1 > /run/boots"
      changed_when: false
    - reboot:
        reboot_command: sh -c 'echo 2 > /run/boots; kill -KILL $(pgrep -x sshd)'
        boot_time_command: cat /run/boots
        reboot_timeout: 60
    - wait_for_connection: {timeout: 30}
    - shell: cat /run/boots
      register: boots
    - assert: {that: boots.stdout == '2'}
"""


def test_a_host_that_restarts_is_waited_for(lab: Lab, tmp_path: Path) -> None:
    path, name = tmp_path / "reboot.yml", lab.hosts[1].name
    path.write_text(REBOOT.replace("kill -KILL $(pgrep -x sshd)", "kill -KILL $PPID"))
    report = run(lab, path, limit=name)
    assert report.ok, report.failures()
    assert report.recap()[name].unreachable == 0


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("udp dport 8621-8820 numgen random mod 2 0 drop", "loses"),
        ("tcp dport 8621-8820 limit rate over 100 kbytes/second drop", "carries"),
    ],
)
def test_burn_in_names_the_bad_cable(lab: Lab, faults: str, says: str) -> None:
    """The limits are wide, so that a busy machine is not a fault; the bad host is worse than all of them."""
    playbook, bad = shipped_directory("playbooks") / "burn_in.yml", lab.hosts[2].name
    quick = {"rm_burn_in_network_seconds": 2, "rm_burn_in_probes": 100, "rm_burn_in_max_loss_pct": 20,
             "rm_burn_in_rate_mbps": 20, "rm_burn_in_min_share_pct": 15}  # fmt: skip
    rules = f"table inet bad {{ chain in {{ type filter hook input priority 0; {faults}; }}; }}"
    if lab.exec(bad, ["nft", rules]).returncode != 0:
        pytest.skip("this kernel cannot drop packets at random")
    try:
        found = run(lab, playbook, tags=["network"], variables=quick)
    finally:
        lab.exec(bad, ["nft", "delete table inet bad"])
    assert {host for host, recap in found.recap().items() if recap.failed} == {bad}
    (said,) = found.failures()
    assert f"The cable or port of {bad} is bad" in said
    assert says in said


def test_burn_in_of_a_host_that_is_cut_off_names_it(lab: Lab) -> None:
    playbook, bad = shipped_directory("playbooks") / "burn_in.yml", lab.hosts[1].name
    quick = {"rm_burn_in_network_seconds": 0.3, "rm_burn_in_probes": 10, "rm_burn_in_max_loss_pct": 90,
             "rm_burn_in_rate_mbps": 5, "rm_burn_in_min_share_pct": 0}  # fmt: skip
    rules = "table inet bad { chain in { type filter hook input priority 0; meta l4proto udp drop; }; }"
    assert lab.exec(bad, ["nft", rules]).returncode == 0
    try:
        found = run(lab, playbook, tags=["network"], variables=quick)
    finally:
        lab.exec(bad, ["nft", "delete table inet bad"])
    assert {host for host, recap in found.recap().items() if recap.failed} == {bad}
    assert "is cut" in found.failures()[0]


def test_burn_in_of_one_host(lab: Lab) -> None:
    name = lab.hosts[3].name
    small = {"rm_burn_in_seconds": 1, "rm_burn_in_memory_percent": 1, "rm_burn_in_disk_mb": 8}
    report = run(
        lab,
        shipped_directory("playbooks") / "burn_in.yml",
        limit=name,
        skip_tags=["network"],
        variables=small,
    )
    assert report.ok, report.failures()
    (found,) = [one.result for one in report.results[name] if one.module == "rm_burn_in"]
    assert found["cpu"]["processors"] >= 1
    assert found["disk"]["write_mbps"] > 0


def test_keys_are_rotated_without_locking_anyone_out(lab: Lab, tmp_path: Path) -> None:
    name = lab.hosts[3].name
    new = tmp_path / "new"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(new)], check=True)
    old = tmp_path / "old"
    old.write_bytes(lab.key.read_bytes())
    old.chmod(0o600)
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(old)], check=True, capture_output=True).stdout
    (tmp_path / "old.pub").write_bytes(public)
    playbook = shipped_directory("playbooks") / "rotate_keys.yml"
    variables = {"rm_new_key": str(new), "rm_old_key": str(old), "rm_known_hosts": str(lab.known_hosts)}
    same = run(lab, playbook, limit=name, variables={**variables, "rm_new_key": str(old)})
    assert "the old one" in same.failures()[0]
    first = run(lab, playbook, limit=name, variables=variables)
    assert first.ok, first.failures()
    refused = run(lab, playbook, limit=name, variables=variables)
    assert refused.recap()[name].unreachable == 1
    hosts = to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))
    moved = [
        replace(one, variables=tuple((k, v) for k, v in one.variables if "private_key" not in k))
        for one in hosts
        if one.name == name
    ]
    back = {"rm_new_key": str(old), "rm_old_key": str(new), "rm_known_hosts": str(lab.known_hosts)}
    # as an interrupted run leaves it: the new key is in, and nothing was proven
    both = ssh_settings(lab, identity_files=(new, old))
    stopped = run_playbook(playbook, moved, both, variables={**back, "rm_known_hosts": "/dev/null"})
    assert "Host key verification failed" in stopped.failures()[0]
    for changes in (1, 0):  # the old key goes, once
        again = run_playbook(playbook, moved, both, variables=back)
        assert again.ok, again.failures()
        assert again.recap()[name].changed == changes
