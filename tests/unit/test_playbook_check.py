"""`rmx playbook check`: all problems of playbooks and roles at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.checking import problems_of
from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.adapters.playbook.run import run_playbook
from rm.cli.playbook.playbook import check
from rm.errors import UsageError


def written(top: Path, **files: str) -> Path:
    for name, text in files.items():
        path = top / name.replace("__", "/").replace("_yml", ".yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def test_a_playbook_with_everything_it_reaches(tmp_path: Path) -> None:
    written(
        tmp_path,
        site_yml="- hosts: all\n  roles: [web, nowhere]\n  tasks:\n  - import_tasks: more.yml\n"
        "  - copy: {src: none.txt, dest: /x}\n  - copy: {src: odd.j2, dst: /x}\n"
        "  - vars: {ansible_connection: winrm}\n    ping:\n",
        more_yml="- file: {path: /x, state: gone}\n- acme.corp.thing: {a: 1}\n  when: false\n",
        roles__web__tasks__main_yml="- template: {src: bad.j2, dest: /y}\n- ping:\n  notify: none\n",
        roles__web__templates__bad="",
    )
    (tmp_path / "roles/web/templates/bad.j2").write_text("{{ x | nosuch }}\n")
    found = problems_of(tmp_path / "site.yml", LocalFiles())
    places = [(Path(one.file).name, one.line) for one in found]
    assert sorted(places) == sorted([
        ("site.yml", 2), ("more.yml", 1), ("more.yml", 2), ("site.yml", 5), ("site.yml", 6), ("site.yml", 6),
        ("site.yml", 6), ("site.yml", 7), ("main.yml", 1), ("main.yml", 2),
    ])  # fmt: skip
    assert all(one.what.endswith(".") for one in found)


def test_a_role_with_every_file_of_tasks(tmp_path: Path) -> None:
    role = written(
        tmp_path / "web",
        tasks__main_yml="- ping:\n",
        tasks__of__debian_yml="- pign:\n",
        handlers__main_yml="- {name: h, comand: x}\n",
        defaults__main_yml="a: '{{ b | defualt(1) }}'\n",
        meta__main_yml="dependencies: [{role: gone}]\n",
    )
    said = {(Path(one.file).name, one.line): one.hint for one in problems_of(role, LocalFiles())}
    assert said[("debian.yml", 1)] == "Did you mean 'ping'?"
    assert said[("main.yml", 1)]
    assert {name for name, _ in said} == {"debian.yml", "main.yml"}
    with pytest.raises(UsageError, match="not one of a role"):
        problems_of(tmp_path, LocalFiles())


def test_a_role_beside_others_and_what_lies_beside_the_directory_of_roles(tmp_path: Path) -> None:
    top = written(
        tmp_path,
        roles__net__cni__tasks__main_yml="- thing: {a: 1}\n- debug: {msg: '{{ 1 | ours }}'}\n",
        roles__net__cni__meta__main_yml="dependencies: [net/base, {role: store/disk}]\n",
        roles__net__base__tasks__main_yml="- ping:\n",
        roles__store__disk__tasks__main_yml="- import_role: {role: net/gone}\n",
    )
    (top / "library").mkdir()
    (top / "library/thing.py").write_text("#!/usr/bin/python3\n")
    (top / "filter_plugins").mkdir()
    (top / "filter_plugins/some.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {'ours': str}\n"
    )
    (found,) = problems_of(top / "roles/net/cni", LocalFiles())
    assert (found.what, found.line) == ("there is no role 'net/gone'.", 1)


def test_what_lies_beside_one_playbook_changes_nothing_for_the_next(tmp_path: Path) -> None:
    """Neither is it known there, nor proposed for another word."""
    tasks = """- hosts: all
  module_defaults: {%s: {mhz: 1}}
  tasks:
  - gpu_clock%s: {mhz: 1400}
  - debug: {msg: "{{ 1 | watts%s }}"}
  - debug: {msg: "{{ 1 is hot%s }}"}
  - debug: {msg: "{{ lookup('rack%s') }}"}
  - debug: {msg: "{{ item }}"}
    with_lab.gpus.rows: [1]
"""
    top = written(
        tmp_path,
        one__site_yml=tasks % ("gpu_clock", "", "", "", ""),
        two__site_yml=tasks % ("gpu_clock", "", "", "", ""),
        three__site_yml=tasks % ("gpu_clocks", "s", "_", "_", "s"),
    )
    for name, text in {
        "library/gpu_clock.py": "#!/usr/bin/python3\n",
        "filter_plugins/f.py": "class FilterModule:\n    def filters(self):\n        return {'watts': str}\n",
        "test_plugins/t.py": "class TestModule:\n    def tests(self):\n        return {'hot': bool}\n",
        "lookup_plugins/rack.py": "",
        "collections/ansible_collections/lab/gpus/plugins/lookup/rows.py": "",
    }.items():
        (top / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "one" / name).write_text(text)
    others = [top / "two/site.yml", top / "three/site.yml"]
    before = [problems_of(path, LocalFiles()) for path in others]
    assert [len(found) for found in before] == [6, 6]
    assert problems_of(top / "one/site.yml", LocalFiles()) == []
    assert [problems_of(path, LocalFiles()) for path in others] == before


def test_broken_yaml_of_an_included_file_is_one_of_several_problems(tmp_path: Path) -> None:
    written(
        tmp_path,
        site_yml="- hosts: all\n  vars_files: [v.yml]\n  tasks:\n  - include_tasks: a.yml\n  - pign:\n",
        a_yml="- debug: {msg: x\n", v_yml="a: [1\n",
    )  # fmt: skip
    found = problems_of(tmp_path / "site.yml", LocalFiles())
    assert sorted((Path(one.file).name) for one in found) == ["a.yml", "site.yml", "v.yml"]


def test_the_command_says_where_and_what_to_write(tmp_path: Path) -> None:
    written(tmp_path, bad_yml="- hosts: all\n  tasks:\n  - file: {pth: /x}\n", good_yml="- hosts: all\n")
    bad, good = str(tmp_path / "bad.yml"), str(tmp_path / "good.yml")
    done = CliRunner().invoke(check, [bad, good], standalone_mode=False)
    assert done.return_value == 1
    assert "bad.yml:3: 'file' has no argument 'pth'. Did you mean 'path'?" in done.output
    assert "2 problems" in done.output
    done = CliRunner().invoke(check, [good, "--json"], standalone_mode=False)
    assert (done.return_value, json.loads(done.stdout)["problems"]) == (0, [])


def test_what_ansible_cfg_asks_in_vain_is_listed_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "[defaults]\nfact_caching = redis\nforks = many\nroles_path = shared\n"
    written(tmp_path, site_yml="- hosts: all\n  roles: [net]\n", shared__net__tasks__main_yml="- pign:\n")
    (tmp_path / "ansible.cfg").write_text(settings)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    done = CliRunner().invoke(check, [str(tmp_path / "site.yml"), "--json"], standalone_mode=False)
    problems = [(Path(one["file"]).name, one["what"]) for one in json.loads(done.stdout)["problems"]]
    assert [file for file, _ in problems] == ["ansible.cfg", "ansible.cfg", "main.yml"], problems
    assert "fact_caching in [defaults]" in problems[1][1]
    assert "forks in [defaults]" in problems[0][1]
    assert done.return_value == 1


def test_text_that_is_never_a_template_and_backslashes_in_template_files_are_no_problems(
    tmp_path: Path,
) -> None:
    """A template file's backslashes are Jinja2's, those of a value are YAML's."""
    written(
        tmp_path,
        site_yml="- hosts: all\n  vars: {a: !unsafe '[{name: {{.Comm}}}]'}\n  tasks:\n"
        "  - template: {src: a.j2, dest: /a}\n",
    )
    (tmp_path / "a.j2").write_text('path = \'{{ path | default("\\"$user\\",public") }}\'\n')
    assert problems_of(tmp_path / "site.yml", LocalFiles()) == []


def test_the_path_of_a_role_holds_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(
        tmp_path,
        sub__site_yml="- hosts: all\n  roles: [web]\n",
        sub__roles__web__tasks__main_yml="- include_tasks: '{{ role_path }}/tasks/more.yml'\n"
        "- import_tasks: '{{ playbook_dir }}/roles/web/tasks/more.yml'\n",
        sub__roles__web__tasks__more_yml="- ping:\n",
    )
    monkeypatch.chdir(tmp_path)
    assert problems_of(Path("sub/site.yml"), LocalFiles()) == []
    (play,) = read_playbook("sub/site.yml").plays
    assert play.roles[0].whole_path == str(tmp_path / "sub/roles/web")


def test_an_include_of_a_name_by_variables_is_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path,
        sub__site_yml="- hosts: all\n  roles: [web]\n",
        sub__roles__web__tasks__main_yml="- include_tasks: '{{ item }}.yml'\n  loop: [more]\n",
        sub__roles__web__tasks__more_yml="- pign:\n",
    )
    monkeypatch.chdir(tmp_path)
    found = [(one.file, one.line) for one in problems_of(Path("sub/site.yml"), LocalFiles())]
    assert found == [("sub/roles/web/tasks/more.yml", 1)]


def test_files_that_lookups_find_are_named_for_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path,
        sub__site_yml="- hosts: localhost\n  gather_facts: false\n  tasks:\n"
        "  - include_vars: \"{{ lookup('first_found', ['none.yml', 'some.yml']) }}\"\n"
        "  - include_vars: \"{{ query('fileglob', 'more.*') | first }}\"\n"
        "  - assert: {that: [some == 1, more == 2]}\n",
        sub__vars__some_yml="some: 1\n",
        sub__files__more_yml="more: 2\n",
    )
    monkeypatch.chdir(tmp_path)
    report = run_playbook("sub/site.yml", [], SshSettings(known_hosts=tmp_path / "none"))
    assert [one.message for one in report.results["localhost"] if one.status != "ok"] == []
