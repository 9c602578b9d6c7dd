"""Secrets of a playbook: not in its output, its history, the database, a log, or any process list."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from rm.adapters.playbook.vault import seal
from tests.cluster import Cluster
from tests.e2e.conftest import MakeCluster
from tests.stand_in_sudo import SUDO

pytestmark = pytest.mark.lab
OWN = f"{os.getpid():07}"  # in the secrets: who works on this file has its text in command lines, too
SEALED, URI, KEY, HASH, SUDOERS, LITERAL, NUMBER = (
    f"se\"al'ed\\w\u00f6rd{OWN}",
    f"uri-passw0rd-{OWN}",
    f"-----BEGIN-----\nsecretline1{OWN}\nsecretline2{OWN}\n-----END-----",
    f"$6$saltsalt$hashhashhash{OWN}",
    f"sudo'ers word {OWN}",
    f"literal-passw0rd-{OWN}",
    f"480015162342{OWN}",
)
LINES = [f"secretline1{OWN}", f"secretline2{OWN}"]
PIECES = [SEALED, URI, *LINES, f"hashhashhash{OWN}", SUDOERS, LITERAL, NUMBER]
FORMS = {form for one in PIECES for form in (one, repr(one)[1:-1], one.replace('"', '\\"'))}
PLAY = """
- hosts: all
  gather_facts: false
  vars_files: [secret.yml]
  tasks:
    - copy: {content: "{{ sealed }}\\n", dest: /srv/sealed, mode: "0600"}
    - copy: {src: key.vault, dest: /srv/key, mode: "0600"}
    - template: {src: page.j2, dest: /srv/page, mode: "0600"}
    - name: "Use {{ sealed }}"
      command: {cmd: cat, stdin: "{{ sealed }} {{ number }}"}
      register: said
    - debug: {var: said}
    - debug: {msg: "{{ {'a': sealed, 'b': key} }}"}
    - debug: {msg: "{{ sealed | b64encode }} {{ sealed | to_json }}"}
    - name: Quiet
      copy: {content: "{{ literal }}\\n", dest: /srv/quiet, mode: "0600"}
      no_log: true
      loop: [1, 2]
      register: quiet
    - assert: {that: "sealed == 'x'", fail_msg: "not {{ sealed }}"}
      ignore_errors: true
    - user: {name: secretive, password: "{{ literal_hash }}"}
    - uri: {url: "http://127.0.0.1:9/", url_username: me, url_password: "{{ uri }}", force_basic_auth: true}
      ignore_errors: true
    - uri: {url: "http://127.0.0.1:9/", url_username: me, url_password: "{{ literal }}"}
      ignore_errors: true
    - get_url: {url: "http://me:{{ uri }}@127.0.0.1:9/x", dest: /srv/x}
      ignore_errors: true
    - set_fact: {kept: "{{ sealed }}"}
    - block:
        - fail: {msg: "{{ kept }}"}
      rescue:
        - debug: {var: ansible_failed_result}
"""


class Watch:
    """Reads the command line and the environment of every process of this machine, lab hosts included."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.rounds = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        forms = [form.encode() for form in FORMS]
        while not self._over.is_set():
            self.rounds += 1
            for place in Path("/proc").iterdir():
                if not place.name.isdigit():
                    continue
                for what in ("cmdline", "environ"):
                    try:
                        text = (place / what).read_bytes()
                    except OSError:
                        continue
                    if any(form in text for form in forms):
                        self.found.add(f"{what}: {text[:300]!r}")
            self._over.wait(0.01)


@pytest.fixture
def site(make_cluster: MakeCluster, tmp_path: Path) -> tuple[Cluster, Path]:
    cluster = make_cluster(zones=1, hosts=2, gpus_per_host=0)
    (tmp_path / "site.yml").write_text(PLAY)
    (tmp_path / "page.j2").write_text("word {{ sealed }}\nkey\n{{ key }}\n")
    secret = {"sealed": SEALED, "key": KEY, "uri": URI, "number": int(NUMBER), "sudo": SUDOERS}
    lines = "".join(f"{name}: {value!r}\n" if name == "number" else f"{name}: {quoted(value)}\n"
                    for name, value in secret.items())  # fmt: skip
    (tmp_path / "secret.yml").write_text(seal(lines.encode(), b"vault word"))
    (tmp_path / "key.vault").write_text(seal(KEY.encode(), b"vault word"))
    (tmp_path / "vault").write_text("vault word\n")
    (tmp_path / "extra.yml").write_text(f"literal: {quoted(LITERAL)}\nliteral_hash: {quoted(HASH)}\n")
    return cluster, tmp_path


def quoted(value: object) -> str:
    return json.dumps(value)


def test_secrets_stay_where_they_belong(site: tuple[Cluster, Path]) -> None:
    cluster, place = site
    one, two = (host.name for host in cluster.lab.hosts)
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(cluster.lab.key)], check=True, capture_output=True)
    for script, given in (
        ("useradd -m -s /bin/sh op; usermod -p '*' op; install -d -o op -m 700 /home/op/.ssh", b""),
        ("cat > /home/op/.ssh/authorized_keys; chown op /home/op/.ssh/authorized_keys", public.stdout),
        (SUDO, SUDOERS.encode()),
    ):
        assert cluster.lab.exec(two, ["sh", "-c", script], input=given).returncode == 0
    for host in (one, two):
        # userdel gives its copy of /etc/shadow the time of the original without the part of the second
        cluster.lab.exec(host, ["touch", "-d", "2 seconds ago", "/srv/before"])
    # the inventory with a password in plain text, as people have it
    sealed = seal(SUDOERS.encode(), b"vault word").replace("\n", "\n          ").rstrip()
    (place / "hosts.yml").write_text(
        f"all:\n  hosts:\n    {one}: {{rm_zone: zone1, ansible_host: {cluster.hosts()[one]['address']},"
        f" ansible_become_password: {quoted(SUDOERS)}, ansible_ssh_private_key_file: {cluster.lab.key}}}\n"
        f"    {two}:\n      rm_zone: zone1\n      ansible_host: {cluster.hosts()[two]['address']}\n"
        f"      ansible_ssh_private_key_file: {cluster.lab.key}\n"
        f"      ansible_become_password: !vault |\n          {sealed}\n"
    )
    told = [cluster.run("host", "import", place / "hosts.yml")]
    words = ["playbook", "run", place / "site.yml", "-e", f"@{place}/extra.yml", "--diff", "-v"]
    words += ["--vault-password-file", place / "vault"]
    with Watch() as watch:
        told.append(cluster.run(*words))  # the daemon's hosts, through their agents
        told.append(cluster.run(*words, "--check", "--json"))
        for host in (one, two):
            undo = "rm /srv/sealed /srv/key /srv/page /srv/quiet; userdel secretive"
            cluster.lab.exec(host, ["sh", "-c", undo])
        over_ssh = ["-l", two, "-e", "ansible_user=op", "--become"]
        told.append(cluster.run(*words, *over_ssh, "--json"))
        (place / "wrong").write_text(LITERAL)
        over_ssh += ["-e", "{ansible_become_password: }", "--become-password-file", place / "wrong"]
        told.append(cluster.run(*words, *over_ssh))
    assert [done.returncode for done in told] == [0, 0, 0, 0, 2], [
        done.stderr[-1500:] + done.stdout[-300:] for done in told
    ]
    assert "ansible_become_password" in told[0].stderr
    assert "refuses the password" in told[4].stderr
    assert cluster.read(two, "/srv/page") == f"word {SEALED}\nkey\n{KEY}\n"
    assert cluster.read(two, "/srv/quiet") == f"{LITERAL}\n"

    assert watch.rounds > 3
    assert watch.found == set()
    for done in told:
        for text in (done.stdout, done.stderr):
            assert [form for form in FORMS if form in text] == []
    assert "********" in told[1].stderr
    for path in cluster.directory.rglob("*"):  # rm.toml, database, history, logs, the daemon's log
        if path.is_file():
            data = path.read_bytes()
            assert [form for form in FORMS if form.encode() in data] == [], path
    look = (  # not in what is mounted there: some files of a /proc have no end
        "cat > /dev/shm/forms; find /etc /opt/rm /root /run /tmp /var -xdev -newer /srv/before -type f"
        " -print0 | xargs -0 grep -lFf /dev/shm/forms"
    )
    patterns = "\n".join(sorted({line for form in FORMS for line in form.splitlines()})).encode()
    for host in (one, two):
        found = cluster.lab.exec(host, ["sh", "-c", look], input=patterns).stdout.decode().split()
        assert set(found) <= {"/etc/shadow", "/etc/shadow-", "/etc/sudo-password"}
        assert {"/etc/shadow", "/etc/shadow-"} & set(found)  # they can be found
