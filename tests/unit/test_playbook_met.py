"""What is an error only where a host meets it, what is asked before a play, and names that nobody sets."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.run import run_playbook
from rm.core.model.host import Host
from rm.errors import UsageError
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.lookups import seeker
from rm.playbook.run.report import Progress
from rm.playbook.template.filters import FILTERS
from rm.playbook.template.jinja import ENVIRONMENT
from tests.unit.playbook_world import World, play

importlib.import_module("tests.steps_request")  # which finds the programs for hosts
HEAD = "- hosts: localhost\n  gather_facts: false\n"


def run(tmp_path: Path, text: str, **given: Any) -> tuple[Any, list[str]]:
    (tmp_path / "site.yml").write_text(text)
    notes: list[str] = []

    def tell(event: Progress) -> None:
        notes.extend([event.text] if event.kind == "note" else [])

    report = run_playbook(
        tmp_path / "site.yml", [], SshSettings(tmp_path / "known_hosts"), progress=tell, **given
    )
    return report, notes


def test_a_module_that_nobody_knows_fails_where_it_is_reached(tmp_path: Path) -> None:
    tasks = "  tasks:\n  - {name: left out, dnff: {name: x}, when: false}\n"
    report, notes = run(tmp_path, HEAD + tasks + "  - debug: {msg: end}\n")
    assert (report.ok, report.results["localhost"][-1].message) == (True, "end")
    assert ["unknown module 'dnff'" in note and ":4:" in note for note in notes] == [True]
    report, _ = run(tmp_path, HEAD + "  tasks:\n  - dnff: {name: x}\n  - debug: {msg: end}\n")
    (failed,) = report.results["localhost"]
    assert failed.message == "unknown module 'dnff'. Did you mean 'dnf'?"
    report, _ = run(tmp_path, HEAD + "  tasks:\n  - dnff: {name: x}\n    ignore_errors: true\n  - ping:\n")
    assert [one.status for one in report.results["localhost"]] == ["failed", "ok"]


def test_hosts_that_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    text = "- hosts: weeb\n  tasks:\n  - fail:\n" + HEAD + "  tasks:\n  - debug: {msg: end}\n"
    report, notes = run(tmp_path, text)
    assert (report.ok, list(report.results)) == (True, ["localhost"])
    assert len(notes) == 1
    assert notes[0].startswith(f"{tmp_path}/site.yml:1: no host and no group is called 'weeb'.")


def test_answers_are_asked_twice_and_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(secret: str, kind: str, salt: str | None, salt_size: int | None) -> str:
        return f"{kind}-{salt}-{salt_size}-{len(secret)}"

    monkeypatch.setitem(FILTERS, "password_hash", hashed)
    monkeypatch.setitem(ENVIRONMENT.filters, "password_hash", hashed)
    said = iter(["secret", "sceret", "secret", "secret"])
    salted = "encrypt: sha512_crypt, salt: '{{ s }}', salt_size: 8"
    prompts = f"  vars_prompt: [{{name: w, prompt: Word, confirm: true, {salted}}}]\n"
    text = HEAD + prompts + '  vars: {s: abc}\n  tasks:\n  - debug: {msg: "{{ w }}"}\n'
    report, notes = run(tmp_path, text, prompt=lambda *asked: next(said))
    assert (report.results["localhost"][0].message, len(notes)) == ("sha512_crypt-abc-8-6", 1)
    with pytest.raises(UsageError, match="'crypt16' is not a kind of hash"):
        parse_playbook(text.replace("sha512_crypt", "crypt16"), "p.yml")


PROMPTS = """\
  vars: {x: 42}
  vars_prompt:
  - {name: who, prompt: "Who of {{ x }}"}
  - {name: word, prompt: Word, default: "{{ x }}"}
  - {name: number, prompt: Number, default: 5}
  - {name: plain, prompt: Plain, unsafe: true}
  tasks:
  - debug: {msg: "{{ who }} {{ word }} {{ number | type_debug }} {{ plain }}"}
"""


def test_prompts_are_asked_and_answered_as_in_ansible(tmp_path: Path) -> None:
    asked = []
    said = iter(["{{ x }}", "me", "", "", "{{ x }}"])

    def ask(text: str, *more: Any) -> str:
        asked.append(text)
        return next(said)

    report, notes = run(tmp_path, HEAD + PROMPTS, prompt=ask)
    assert report.results["localhost"][0].message == "me 42 str {{ x }}"
    assert asked == ["Who of 42: ", "Who of 42: ", "Word [42]: ", "Number [5]: ", "Plain: "]
    assert "No template is evaluated in the answer for 'who'" in str(notes[0])  # Ansible would evaluate it


def test_an_empty_answer_is_the_empty_text(tmp_path: Path) -> None:
    report, _ = run(tmp_path, HEAD + PROMPTS, prompt=lambda *asked: "")
    assert report.results["localhost"][0].message == " 42 str "


def test_where_nobody_is_asked_a_prompt_has_the_value_that_ansible_gives_it(tmp_path: Path) -> None:
    report, notes = run(tmp_path, HEAD + PROMPTS)
    assert report.results["localhost"][0].message == "None 42 str None"
    assert "No terminal to ask for 'who': it is the text 'None'" in str(notes[0])


def test_a_prompt_that_needs_what_only_hosts_know_is_refused_before_any_play(tmp_path: Path) -> None:
    later = HEAD + '  vars_prompt: [{name: w, default: "{{ ansible_hostname }}"}]\n  tasks: []\n'
    with pytest.raises(UsageError, match="'vars_prompt' depends on what is not known yet: ansible_hostname"):
        run(tmp_path, HEAD + "  tasks:\n  - command: 'false'\n" + later)


def test_a_broken_file_that_is_included_fails_its_hosts_with_a_place(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("- debug: {msg: x\n")
    tasks = '  tasks:\n  - include_tasks: "{{ word }}.yml"\n    vars: {word: a}\n'
    with pytest.raises(UsageError, match=r"a\.yml:2"):  # a name that may be meant is read beforehand
        run(tmp_path, HEAD + tasks)
    (tmp_path / "b").mkdir()
    (tmp_path / "a.yml").rename(tmp_path / "b/a.yml")
    tasks = '  tasks:\n  - include_tasks: "{{ word }}"\n    vars: {word: b/a.yml}\n    ignore_errors: true\n'
    report, _ = run(tmp_path, HEAD + tasks)
    (failed,) = report.results["localhost"]  # which is not ignored, as in Ansible
    assert (failed.status, failed.ignored, "b/a.yml:2" in failed.message) == ("failed", False, True)


def test_templates_of_how_to_reach_a_host_may_use_files_and_the_inventorys_place(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("2222\n")
    variables = {"ansible_ssh_private_key_file": "{{ inventory_dir }}/keys/{{ inventory_hostname_short }}",
                 "ansible_port": "{{ lookup('file', 'port') | int }}"}  # fmt: skip
    roster = Roster([Host("one.z", "z", "10.0.0.1")], {}, {"one.z": variables}, "")
    roster.names = {"inventory_dir": "/i"}
    roster.seek = seeker(LocalFiles(), (str(tmp_path),), None)
    found = roster.connection_of("one.z")
    assert (found["ansible_private_key_file"], found["ansible_port"]) == ("/i/keys/one", 2222)


def test_a_delegated_task_needs_sudo_only_where_the_other_hosts_login_is_not_root() -> None:
    text = "- hosts: a\n  gather_facts: false\n  become: true\n  tasks:\n  - {ping: , delegate_to: b}\n"
    for login, sudo in (("root", False), ("ops", True)):
        world = World(text, ("a", "b"))
        world.states["b"].login = login
        seen = []
        carry_out = world._carry_out

        def kept(part: Any, name: str, batch: Any) -> None:
            seen.append(batch.become)  # noqa: B023
            carry_out(part, name, batch)  # noqa: B023

        world._carry_out = kept
        world.run()
        assert set(seen) == {sudo}, login


def test_a_name_that_hostnamectl_refuses_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = importlib.import_module("rm_steps_kernel")
    failed = importlib.import_module("rm_steps_base").StepFailed
    made = importlib.import_module("rm_steps_base").Run(False, False, {})
    written = []
    monkeypatch.setattr(kernel, "put_content", lambda *given: written.append(given) or {"diff": []})
    monkeypatch.setattr(kernel, "find_tool", lambda *names: "/bin/false")
    monkeypatch.setattr(kernel, "tool", lambda *names: "/bin/false")
    monkeypatch.setattr("os.path.isdir", lambda path: True)

    def refused(name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("socket.sethostname", refused)
    with pytest.raises(failed, match="Operation not permitted"):
        kernel.do_hostname(made, {"name": "other-name"})
    assert written == []
    monkeypatch.setattr("socket.sethostname", lambda name: None)  # where systemd is not to be asked
    assert kernel.do_hostname(made, {"name": "other-name"})["changed"]
    assert len(written) == 1


def test_a_handler_of_a_looped_role_has_the_last_items_variables() -> None:
    files = {
        "roles/r/tasks/main.yml": "- {command: x, notify: h}\n",
        "roles/r/handlers/main.yml": "- {name: h, debug: {msg: '{{ word }}'}}\n",
    }
    tasks = "  - include_role: {name: r}\n    vars: {word: '{{ item }}'}\n    loop: [1, 2]\n"
    world = play(tasks + "  - meta: flush_handlers\n  - debug: {msg: end}\n", files=files, hosts=("a",))
    assert world.told()[-2:] == ["r : h: 2", "debug: end"]


def test_conditions_of_results_see_what_earlier_tasks_of_the_same_batch_registered() -> None:
    tasks = (
        "  - {command: one, register: a}\n"
        "  - {command: two, changed_when: a.stdout == 'x'}\n"
        "  - {command: two, changed_when: a.stdout == 'y'}\n"
        "  - {command: two, register: a, failed_when: a.stdout == 'y'}\n"
        "  - {command: two, changed_when: a.stdout == 'x'}\n"
    )
    world = play(tasks, hosts=("a",), answer=lambda host, step: {"stdout": "x"})
    assert [one.status for one in world.results["a"]] == ["changed", "changed", "ok", "changed", "changed"]
