"""Host keys before a daemon runs: shown, confirmed and pinned for the hosts of an inventory."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import preloaded
from tests.cluster import RMX
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not os.path.exists(SSHD) or os.getuid() != 0, reason="sshd is started as root"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("keys") / "sshd") as found:
        yield found


class Control:
    """A control machine without a daemon: `one` and `two` are the server, `dead` answers nobody."""

    def __init__(self, server: SshServer, directory: Path) -> None:
        self.directory = directory
        lines = [f"{name} ansible_host=127.0.0.1 ansible_port={server.port}" for name in ("one", "two")]
        (directory / "hosts.ini").write_text("\n".join(lines) + "\n")
        (directory / "dead.ini").write_text("dead ansible_host=127.0.0.1 ansible_port=1\n" + lines[0] + "\n")
        (directory / "rm.toml").write_text(
            f'[daemon]\nstate_dir = "{directory}/state"\nsocket = "{directory}/none.sock"\n'
            f'[ssh]\nidentity_files = ["{server.directory}/id"]\n'
        )
        self.environment = {**os.environ, "RM_CONFIG": str(directory / "rm.toml")}
        self.pinned = directory / "state" / "known_hosts"

    def rmx(self, *words: str) -> subprocess.CompletedProcess[str]:
        return preloaded.run([RMX, *words], env=self.environment, cwd=self.directory, timeout=60)

    def typed(self, answer: str, *words: str) -> tuple[int, str]:
        """The same on a terminal, where `answer` is typed at the question."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.directory)
            os.execvpe(str(RMX), [str(RMX), *words], {**self.environment, "TERM": "dumb"})
        said = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:
                break
            said += part
            if said.endswith(b"[y/N]: "):
                os.write(terminal, answer.encode() + b"\n")
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


@pytest.fixture
def control(server: SshServer, tmp_path: Path) -> Control:
    return Control(server, tmp_path)


def test_keys_are_pinned_when_somebody_has_confirmed_them(control: Control) -> None:
    words = ("host", "accept-key", "--all", "--inventory", "hosts.ini")
    alone = control.rmx(*words)
    assert (alone.returncode, control.pinned.exists()) == (2, False)
    assert "There is no terminal to confirm" in alone.stderr
    fingerprint = alone.stdout.split("SHA256:")[1].split()[0]
    assert control.typed("n", *words)[0] == 130
    assert not control.pinned.exists()
    code, said = control.typed("y", *words)
    assert (code, fingerprint in said) == (0, True)
    assert f"The keys of 2 host(s) are pinned in {control.pinned}." in said
    shown = json.loads(control.rmx("host", "show-key", "--all", "-i", "hosts.ini", "--json").stdout)
    assert [key["presented"] == key["pinned"] for key in shown["keys"]] == [True, True]
    again = control.rmx(*words)  # nothing is left to ask
    assert (again.returncode, again.stderr) == (0, "")


def test_the_error_of_an_unknown_key_names_a_command_that_works(control: Control) -> None:
    (control.directory / "play.yml").write_text("- hosts: one\n  gather_facts: false\n  tasks: [ping: ]\n")
    play = ("playbook", "run", "./play.yml", "--inventory", "hosts.ini")
    refused = control.rmx(*play)
    assert refused.returncode == 4
    (hint,) = {
        line.partition("then run: ")[2] for line in refused.stderr.splitlines() if "then run: " in line
    }
    named = shlex.split(hint.rstrip("."))
    assert named == ["rmx", "host", "accept-key", "one", "--inventory", "hosts.ini"]
    assert control.typed("y", *named[1:])[0] == 0
    assert control.rmx(*play).returncode == 0


def test_a_file_of_expected_fingerprints_answers_the_question(control: Control, server: SshServer) -> None:
    shown = control.rmx("host", "show-key", "--all", "--inventory", "hosts.ini").stdout
    wrong = [line for line in shown.splitlines() if line.startswith("one")]
    (control.directory / "expected").write_text("\n".join([*wrong, "two SHA256:" + "A" * 43]) + "\n")
    words = ("host", "accept-key", "--all", "--inventory", "hosts.ini", "--json")
    some = control.rmx(*words, "--expected=expected")
    told = json.loads(some.stdout)
    assert (some.returncode, [key["host"] for key in told["keys"]], told["not_pinned"]) == (
        1,
        ["one"],
        ["two"],
    )
    assert "Host two presents SHA256:" in some.stderr
    assert control.rmx(*words, "--yes").returncode == 0
    both = control.rmx(*words, "--yes", "--expected=expected")
    assert (both.returncode, "Give only one of" in both.stderr) == (2, True)


def test_a_host_that_does_not_answer_holds_up_no_other(control: Control) -> None:
    done = control.rmx("host", "accept-key", "--all", "--inventory", "dead.ini", "--yes")
    assert done.returncode == 1
    assert "The keys of 1 host(s) are pinned" in done.stdout
    assert "Host dead (127.0.0.1:1) does not answer over SSH" in done.stderr
    assert "Not pinned: dead." in done.stderr
    other = control.rmx("host", "show-key", "three", "--inventory", "dead.ini")
    assert (other.returncode, "holds no host three" in other.stderr) == (2, True)
