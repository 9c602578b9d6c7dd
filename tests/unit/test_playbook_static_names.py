"""Templates in the names of imports: what Ansible knows while it reads a playbook, and what it does not."""

import pytest

from rm.adapters.playbook.checking import problems_of
from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.errors import UsageError
from rm.playbook.model.schema import tasks_of

FILES = {
    "one.yml": "- {name: one, command: x}\n",
    "two.yml": "- {name: two, command: x}\n",
    "v.yml": "from_file: two\n",
    "roles/r/defaults/main.yml": "from_default: one\n",
    "roles/r/tasks/main.yml": "- import_tasks: '{{ from_default }}.yml'\n",
    "roles/r/tasks/one.yml": "- {name: one of r, command: x}\n",
    "roles/other/tasks/main.yml": "- import_tasks: '{{ from_default }}.yml'\n",
    "roles/d/tasks/part.yml": "- {name: part of d, command: x}\n",
    "imported.yml": "- hosts: all\n  tasks:\n  - import_tasks: '{{ given }}.yml'\n",
    "own.yml": "- hosts: all\n  vars: {given: one}\n  tasks:\n  - import_tasks: '{{ given }}.yml'\n",
}
PLAY = "- hosts: all\n  vars: {n: one}\n  vars_files: ['v.yml', '{{ ansible_os_family }}.yml']\n"


@pytest.fixture
def names(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("WHICH_TASKS", "two")

    def names(text, **extra):
        (tmp_path / "site.yml").write_text(text)
        read = read_playbook(tmp_path / "site.yml", variables=extra)
        tasks = [task for play in read.plays for task in tasks_of(play.tasks) if task.module != "meta"]
        return [task.name for task in tasks]

    return names


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ("- import_tasks: '{{ n }}.yml'", ["one"]),
        ("- import_tasks: '{{ from_file }}.yml'", ["two"]),
        ("- import_tasks: '{{ from_extra }}.yml'", ["two"]),
        ('- import_tasks: \'{{ lookup("env", "WHICH_TASKS") }}.yml\'', ["two"]),
        ("- import_tasks: '{{ nowhere | default(\"two\") }}.yml'", ["two"]),
        ("- {import_tasks: '{{ n }}.yml', vars: {n: two}}", ["two"]),
        ("- {block: [import_tasks: '{{ n }}.yml'], vars: {n: two}}", ["two"]),
        (
            "- import_role: {name: '{{ m }}', tasks_from: '{{ m2 }}'}\n    vars: {m: d, m2: part}",
            ["part of d"],
        ),
        ("- import_tasks: '{{ playbook_dir }}/{{ n }}.yml'", ["one"]),
    ],
)
def test_a_name_holds_what_is_known_before_there_are_hosts(names, tasks, found):
    assert names(f"{PLAY}  tasks:\n  {tasks}\n", from_extra="two") == found


def test_a_name_holds_variables_of_roles_once_ansible_has_read_them(names):
    roles = "  roles: [{role: '{{ r }}'}]\n"
    before = "  pre_tasks:\n  - import_tasks: '{{ from_default }}.yml'\n"
    after = "  tasks:\n  - import_tasks: '{{ from_default }}.yml'\n"
    found = names(f"- hosts: all\n  vars: {{r: r}}\n{before}{roles}{after}")
    assert found == ["one", "one of r", "one"]
    with pytest.raises(UsageError, match="'from_default' is undefined"):  # a role sees none listed before it
        names("- hosts: all\n  roles: [r, other]\n")


def test_a_playbook_is_imported_by_a_variable_and_sees_those_of_the_import(names):
    text = "- import_playbook: '{{ which }}.yml'\n  vars: {which: imported, given: two}\n"
    assert names(text) == ["two"]
    assert names(text, which="own") == ["one"]  # where the play's own are stronger


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (
            "- import_tasks: '{{ ansible_facts.os_family }}.yml'",
            "no attribute 'os_family'",
        ),
        (
            "- import_tasks: '{{ ansible_os_family }}.yml'",
            "ansible_os_family is known only while",
        ),
        ("- import_tasks: '{{ groups.gpu | default(\"one\") }}.yml'", "groups is known only while"),
        ("- import_role: {name: '{{ nowhere }}'}", "'nowhere' is undefined"),
    ],
)
def test_what_only_hosts_know_is_refused_by_name(names, tmp_path, tasks, said):
    with pytest.raises(UsageError, match=said) as refused:
        names(f"{PLAY}  tasks:\n  {tasks}\n")
    assert "site.yml:5:" in refused.value.what
    assert "Or use include_" in refused.value.hint
    assert [one.line for one in problems_of(tmp_path / "site.yml", LocalFiles())] == [5]


def test_check_takes_the_variables_of_the_command_line(names, tmp_path):
    text = f"{PLAY}  tasks:\n  - import_tasks: '{{{{ from_extra }}}}.yml'\n"
    assert names(text, from_extra="one") == ["one"]
    assert problems_of(tmp_path / "site.yml", LocalFiles(), {"from_extra": "one"}) == []
