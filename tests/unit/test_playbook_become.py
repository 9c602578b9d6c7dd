"""sudo with a password: what is said to it and when, and a local run through a sudo that asks."""

import os
import sys
from contextlib import closing

import pytest

from rm.adapters.playbook.become import PROMPT, Refused, argv, converse
from rm.adapters.playbook.local import LocalSteps
from rm.core.model.host import Host
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.unit.playbook_world import play

READY = b"rm: sudo let us in\n"
PING = {
    "steps": [{"id": 1, "task": 1, "op": "ping", "args": {"data": "pong"}, "check": False}],
    "planned": {},
}


def talk(*parts):
    """What was written while these parts came; the last is repeated."""
    said, written = list(parts), []
    converse("h", "word", lambda: said.pop(0) if len(said) > 1 else said[0], written.append)
    return written


def test_the_password_is_said_once_and_only_when_asked_for():
    assert talk(READY) == []
    assert talk(b"A lecture.\n", PROMPT.encode(), READY) == [b"word\n"]
    half = len(PROMPT) // 2
    assert talk(PROMPT[:half].encode(), PROMPT[half:].encode(), READY[:5], READY[5:]) == [b"word\n"]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([PROMPT.encode(), b"Sorry, try again.\n" + PROMPT.encode(), READY], "refuses the password"),
        ([b"sudo: a password is required\n", b""], "wants a password"),
        ([b"op is not in the sudoers file.\n", b""], "op is not in the sudoers file"),
        ([PROMPT.encode(), None], "does not answer"),
        ([b""], "it said nothing"),
    ],
)
def test_a_refusal_is_a_sentence_with_its_reason(parts, sentence):
    with pytest.raises(Refused, match=sentence) as caught:
        talk(*parts)
    assert "word\n" not in str(caught.value)


def test_the_password_is_in_no_command_line():
    assert "word" not in " ".join(argv(["python3", "-c", "x"], "word")).replace("password", "")
    assert argv(["python3"], "") == ["sudo", "-n", "python3"]


@pytest.fixture
def sudo(tmp_path, monkeypatch):
    """A sudo that asks for 'word', as real ones do, and makes nobody root."""
    program = tmp_path / "sudo"
    program.write_text(
        f"#!{sys.executable} -S\nimport os, sys\n"
        "def line():\n    found = b''\n    while found[-1:] != b'\\n':\n"
        "        found += os.read(0, 1) or sys.exit(1)\n    return found\n"
        "words = sys.argv[1:]\n"
        "if words[0] == '-n':\n    sys.exit('sudo: a password is required')\n"
        "while True:\n    os.write(2, words[2].encode())\n    if line() == b'word\\n':\n        break\n"
        "os.execvp(words[3], words[3:])\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("sudo")
def test_steps_on_this_machine_go_through_sudo(capfd):
    local = LocalSteps("here", sys.executable, True, "word")
    try:
        assert local.steps(PING)["results"][0]["ping"] == "pong"
    finally:
        local.close()
    with pytest.raises(Refused, match="refuses the password"):
        LocalSteps("here", sys.executable, True, "wrong")
    with (  # at once, or at the first question
        pytest.raises(Refused, match="does not let this user become root"),
        closing(LocalSteps("here", sys.executable, True)) as asking,
    ):
        asking.steps(PING)
    assert "word\n" not in capfd.readouterr().err


TASKS = """
  - {name: plain, command: "true"}
  - {name: said, command: "true", become: false}
  - {name: named, command: "true", become_user: other}
"""


@pytest.mark.parametrize(
    ("options", "inventory", "users"),
    [
        ({}, {}, ["", "", ""]),
        ({"become": True}, {}, ["", "", "other"]),
        ({"become": True, "become_user": "app"}, {}, ["app", "", "other"]),
        ({"become": True, "become_user": "app"}, {"ansible_become_user": "db"}, ["db", "", "db"]),
        ({}, {"ansible_become": True, "ansible_become_user": "db"}, ["db", "db", "db"]),
        ({"become": True}, {"ansible_become": False}, ["", "", ""]),
    ],
)
def test_variables_beat_keywords_and_these_the_command_line(options, inventory, users):
    seen = []

    def answer(host, step):
        seen.append(step.user)
        return {}

    play(TASKS, hosts=["a"], inventory={"a": inventory}, answer=answer, **options)
    assert seen == users


def test_only_sudo_is_known():
    world = play(TASKS, "  become: true\n", hosts=["a"], inventory={"a": {"ansible_become_method": "su"}})
    assert world.told()[0].startswith("plain: failed")
    assert "only sudo is known" in world.results["a"][0].message


def test_the_method_may_be_a_variable_s():
    for how, told in (("sudo", "changed"), ("su", "failed")):
        head = "  become: true\n  become_method: '{{ how }}'\n"
        world = play(TASKS, head, hosts=["a"], inventory={"a": {"how": how}})
        assert world.told()[0] == f"plain: {told}"


def test_hosts_without_declared_resources_leave_them_to_their_agents():
    assert to_hosts(parse("all:\n  hosts:\n    a:\n", "hosts.yml")) == [
        Host("a", "default", "a", variables=(("group_names", '["ungrouped"]'),))
    ]
