"""Roles, imports and includes from files; which variable wins; wrong files are told before any host."""

import pytest

from rm.errors import UsageError
from tests.unit.playbook_world import World, play

FILES = {
    "roles/app/tasks/main.yml": """\
- name: start
  debug: {msg: "{{ d }} {{ v }} {{ dep_d }} {{ p | default('-') }} {{ role_name }} {{ role_path }}"}
- import_tasks: more.yml
- {template: {src: t.j2, dest: /t}, notify: restart}
""",
    "roles/app/tasks/more.yml": "- {name: more, debug: {msg: '{{ d }}'}, tags: more}\n",
    "roles/app/tasks/other.yml": "- {name: other, debug: {msg: '{{ d }}'}}\n",
    "roles/app/defaults/main.yml": "d: default\n",
    "roles/app/vars/main.yml": "v: var\n",
    "roles/app/handlers/main.yml": "- {name: restart, command: 'restart {{ v }}'}\n",
    "roles/app/templates/t.j2": "{{ d }}\n",
    "roles/app/meta/main.yml": "dependencies: [{role: base, bq: 1}]\n",
    "roles/base/tasks/main.yml": "- {name: base, debug: {msg: 'base {{ bq }}'}}\n",
    "roles/base/defaults/main.yml": "dep_d: from base\n",
    "one.yml": "- {name: in one, debug: {msg: '{{ word }} {{ item | default() }}'}}\n- command: x\n",
    "two.yml": "- {name: in two, command: x}\n",
    "vars/v.yml": "word: included\nother: '{{ word }}!'\n",
}


def run(text, **given):
    return World(text, hosts=("a",), files={**FILES, **given.pop("files", {})}, **given).run()


def test_a_role_brings_defaults_vars_handlers_templates_and_its_dependencies_first():
    world = run("- hosts: all\n  gather_facts: false\n  roles:\n  - {role: app, p: param}\n  - base\n")
    assert world.told() == [
        "base : base: base 1",
        "app : start: default var from base param app /p/roles/app",
        "app : more: default",
        "app : template: changed",
        "base : base: failed",  # without its parameter
    ]


def test_a_role_includes_roles_that_lie_in_it():
    files = {
        "roles/outer/tasks/main.yml": "- include_role: {name: '{{ role_path }}/roles/inner'}\n",
        "roles/outer/roles/inner/tasks/main.yml": (
            "- {name: inner, debug: {msg: '{{ role_path }}'}, notify: mend}\n"
        ),
        "roles/outer/roles/inner/handlers/main.yml": "- {name: mend, command: mend}\n",
    }
    world = run("- hosts: all\n  gather_facts: false\n  roles: [outer]\n", files=files)
    assert world.told()[-1] == "inner : inner: /p/roles/outer/roles/inner"


def test_playbooks_that_lie_beside_files_of_tasks_are_none():
    files = {
        "site.yml": "- hosts: all\n  tasks: []\n",
        "all.yml": "- ansible.builtin.import_playbook: site.yml\n",
    }
    text = (
        "- hosts: all\n  gather_facts: false\n  vars: {n: two}\n  tasks:\n  - include_tasks: '{{ n }}.yml'\n"
    )
    assert "in two: changed" in run(text, files=files).told()


def test_handlers_of_a_role_are_notified_by_their_name_with_or_without_the_roles():
    text = "- hosts: all\n  gather_facts: false\n  roles: [app]\n"
    text += "  tasks:\n  - {command: x, notify: 'app : restart'}\n"
    assert [what for _, what in run(text).log] == ["copy", "x", "restart var"]


def test_the_same_role_runs_once_unless_its_parameters_differ():
    roles = "[{role: base, bq: 1}, {role: base, bq: 1}, {role: base, bq: 2}]"
    text = f"- hosts: all\n  gather_facts: false\n  roles: {roles}\n"
    assert run(text).told() == ["base : base: base 1", "base : base: base 2"]


def test_a_dependency_runs_once_whatever_those_that_ask_for_it_are_given():
    roles = "[{role: app, p: 1, vars: {x: 1}}, {role: app, p: 2}]"
    text = f"- hosts: all\n  gather_facts: false\n  roles: {roles}\n"
    assert [name.split(": ")[1] for name in run(text).told()].count("base") == 1


def test_includes_with_loops_variables_and_conditions():
    tasks = """\
  - include_tasks: "{{ item }}.yml"
    loop: [one, two]
    vars: {word: "hello {{ item }}"}
  - {include_tasks: two.yml, when: false}
  - import_tasks: one.yml
    vars: {word: imported}
    when: false
  - {import_role: {name: app, tasks_from: other}}
  - {include_role: {name: app, tasks_from: other}, vars: {d: given}}
  - {include_vars: v.yml}
  - debug: {msg: "{{ other }}"}
"""
    files = {
        **FILES,
        "roles/base2/tasks/other.yml": FILES["roles/app/tasks/other.yml"],
        "roles/base2/defaults/main.yml": "d: own\n",
    }
    world = play(tasks.replace("name: app", "name: base2"), files=files, hosts=("a",))
    assert world.told() == [
        "include_tasks: ok", "in one: hello one one", "command: changed", "in two: changed",
        "include_tasks: skipped", "in one: skipped", "command: skipped",
        "base2 : other: own", "include_role : base2: ok", "base2 : other: given", "include_vars: ok",
        "debug: included!",
    ]  # fmt: skip


def test_an_include_may_include_itself_under_a_condition():
    files = {
        "down.yml": "- debug: {msg: '{{ n }}'}\n"
        "- include_tasks: down.yml\n  vars: {n: '{{ n | int - 1 }}'}\n  when: n | int > 1\n"
    }
    world = play("  - include_tasks: down.yml\n    vars: {n: 3}\n", files=files, hosts=("a",))
    assert next(line for line in world.told() if line.startswith("debug")) == "debug: 3"


def test_tags_of_an_include_are_its_own_and_apply_reaches_inside():
    tasks = """\
  - {name: plain, include_tasks: two.yml, tags: t}
  - {name: applied, include_tasks: {file: one.yml, apply: {tags: t}}, tags: t, vars: {word: w}}
  - {import_tasks: two.yml, tags: t}
"""
    world = play(tasks, files=FILES, hosts=("a",), tags=("t",))
    assert world.told() == [
        "plain: ok", "applied: ok", "in one: w ", "command: changed", "in two: changed",
    ]  # fmt: skip


def test_precedence_from_defaults_to_extra_variables():
    files = {
        "roles/r/defaults/main.yml": "".join(f"x{i}: default\n" for i in range(1, 10)),
        "roles/r/vars/main.yml": "".join(f"x{i}: role\n" for i in range(4, 10)),
        "vars.yml": "".join(f"x{i}: file\n" for i in range(3, 10)),
        "iv.yml": "".join(f"x{i}: include\n" for i in range(6, 10)),
        "roles/r/tasks/main.yml": """\
- include_vars: ../../iv.yml
- set_fact: {x7: fact, x8: fact, x9: fact}
- debug: {msg: "{{ x1 }} {{ x2 }} {{ x3 }} {{ x4 }} {{ x5 }} {{ x6 }} {{ x7 }} {{ x8 }} {{ x9 }}"}
  vars: {x5: task, x6: task, x7: task, x8: task, x9: task}
""".replace("../../iv.yml", "/p/iv.yml"),
    }
    text = "- hosts: all\n  gather_facts: false\n  vars: {x2: play, x3: play}\n  vars_files: [vars.yml]\n"
    text += "  roles: [{role: r, x8: param}]\n"
    world = World(
        text, hosts=("a",), files=files, inventory={"a": {"x2": "host"}}, extra={"x9": "extra"}
    ).run()
    assert world.told()[-1] == "r : debug: default play file role task include fact param extra"


def test_imported_playbooks_carry_their_condition():
    files = {"other.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: t, command: x}\n"}
    world = run("- import_playbook: other.yml\n- import_playbook: other.yml\n  when: false\n", files=files)
    assert world.told() == ["t: changed", "t: skipped"]


@pytest.mark.parametrize(
    ("files", "place", "says"),
    [
        ({"roles/app/tasks/more.yml": "- file: {pth: /x}\n"}, "/p/roles/app/tasks/more.yml:1:", "'path'"),
        ({"roles/app/handlers/main.yml": "- {command: a, wen: b}\n"}, "handlers/main.yml:1:", "'when'"),
        ({"roles/app/defaults/main.yml": "- a\n"}, "/p/roles/app/defaults/main.yml:1:", "mapping"),
        ({"roles/app/vars/main.yml": "v: '{{ x | defualt(1) }}'\n"}, "vars/main.yml:1:", "'default'"),
        ({"roles/app/meta/main.yml": "dependencies: [bsae]\n"}, "/p/roles/app/meta/main.yml:1:", "'base'"),
        ({"roles/app/tasks/more.yml": "a: b\n"}, "/p/roles/app/tasks/more.yml:1:", "list of tasks"),
        ({"roles/app/tasks/more.yml": "- import_tasks: more.yml\n"}, "more.yml:1:", "loop"),
        ({"roles/app/tasks/more.yml": "- include_tasks: '{{ x }}_os.yml'\n",
          "roles/app/tasks/a_os.yml": "- file: {pth: /x}\n"}, "/p/roles/app/tasks/a_os.yml:1:", "'path'"),
    ],
)  # fmt: skip
def test_mistakes_in_any_file_are_told_before_any_host(files, place, says):
    with pytest.raises(UsageError) as caught:
        run("- hosts: all\n  roles: [app]\n", files=files)
    assert place in caught.value.what
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{ a.b.c | default('none') }}", "none"),
        ("{{ nested.good }} {{ nested.bad is defined }}", "1 False"),
        ("{{ 'a b' | regex_replace('(\\w) (\\w)', '\\2 \\1') }}", "b a"),
        ("{{ 'it\\'s' ~ 1 }}", "it\\'s1"),  # the backslash stays, as in Ansible
        ("{{ [1, [2, [3]]] | flatten(1) }}", "[1, 2, [3]]"),
        ("{{ {'a': {'b': 1}} | combine({'a': {'c': 2}}, recursive=true) }}", "{'a': {'b': 1, 'c': 2}}"),
        ("{{ {'a': [{'b': 1, 'ok': true}, {'b': 2}]} | json_query('a[?ok].b') }}", "[1]"),
        ("{{ [{'b': 1}, {'b': 2}] | community.general.json_query('[].b') }}", "[1, 2]"),
        ("{{ '10G' | human_to_bytes }} {{ 1536 | human_readable }}", "10737418240 1.50 KB"),
        ("{{ '1Kb' | human_to_bytes(isbits=true) }} {{ '2 megabyte' | human_to_bytes }}", "1024 2097152"),
        ("{{ ['yes', 'ON', '1', 1, 1.0, 'y', 't', 'x', 2, none] | map('bool') | sum }}", "5"),
        ("{{ {'a': [1]} | to_nice_yaml(default_flow_style=true) | trim }}", "{a: [1]}"),
        ("{{ 'http://u@h:80/p?q=1' | urlsplit('hostname') }}", "h"),
        ("{{ lookup('vars', 'word') }} {{ query('items', [1], [2]) }}", "w [1, 2]"),
        ("{{ lookup('file', 'f.txt') }}", "text"),
        ("{{ ['a', 'c'] | map('extract', hostvars, 'inventory_hostname') | join(',') }}", "a,c"),
        ("{{ '1.10' is version('1.9', '>') }} {{ [1] is subset([1, 2]) }}", "True True"),
        ("{{ 'x' | to_uuid }}", "66b2f013-1baa-5313-9c8c-e6f1182e0e90"),
    ],
)  # fmt: skip
def test_templates(template, shown):
    head = "  vars: {word: w, nested: {good: 1, bad: '{{ nothing }}'}}\n"
    tasks = f"  - debug:\n      msg: >-\n        {template}\n"
    world = play(tasks, head, files={"files/f.txt": "text\n"})
    assert world.told() == [f"debug: {shown}"]


CHECKED = {
    "roles/checked/meta/argument_specs.yml": "argument_specs: {main: {options: {a: {required: true}}}}\n",
    "roles/checked/tasks/main.yml": "- debug: {msg: in}\n",
}


@pytest.mark.parametrize("said", ['"no"', "false", "'{{ x }}'"])
def test_a_role_whose_arguments_are_not_to_be_checked(said):
    task = f"  - include_role: {{name: checked, rolespec_validate: {said}}}\n"
    assert play(task, "  vars: {x: false}\n", files=CHECKED).told()[-1] == "checked : debug: in"
    if "{{" not in said:
        assert play(task.replace("include_", "import_"), files=CHECKED).told()[-1] == "checked : debug: in"


@pytest.mark.parametrize(
    ("kind", "said", "error"),
    [
        ("include", "maybe", "'rolespec_validate' must be true or false, not 'maybe'"),
        ("import", "'{{ x }}'", "'import_role' depends on what is not known yet: .* 'x' is undefined"),
    ],
)
def test_whether_arguments_are_checked_must_be_known(kind, said, error):
    with pytest.raises(UsageError, match=error):
        play(f"  - {kind}_role: {{name: checked, rolespec_validate: {said}}}\n", files=CHECKED)
