"""What a playbook may say; every unknown word is refused before any host, with line and suggestion."""

from pathlib import Path

import pytest

from rm.adapters.playbook.files import read_playbook
from rm.errors import UsageError
from rm.playbook.inventory.pattern import select
from rm.playbook.model.schema import tasks_of
from rm.playbook.read.listing import growing_of
from rm.playbook.read.parse import parse_playbook

SHIPPED = sorted(
    path
    for path in (Path(__file__).parents[2] / "playbooks").glob("*.yml")
    if not path.stem.endswith(".survey")
)
PLAY = "- hosts: all\n  tasks:\n"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_playbooks_are_valid(path):
    assert read_playbook(path).plays


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("- hots: all\n", 1, "Did you mean 'hosts'?"),
        ("- tasks: []\n", 1, "which hosts"),
        ("hosts: all\n", 1, "list of plays"),
        ("- hosts: all\n  roles: [x]\n", 2, "no role 'x'"),
        ("- hosts: all\n  roles: [[x]]\n", 2, "a role is a name"),
        ("- hosts: all\n  stratgey: free\n", 2, "Did you mean 'strategy'?"),
        ("- hosts: all\n  strategy: fast\n", 2, "linear, free"),
        ("- hosts: all\n  debugger: always\n", 2, "not supported"),
        (PLAY + "  - name: x\n    file: {path: /x}\n    wen: true\n", 5, "Did you mean 'when'?"),
        (PLAY + "  - file:\n      path: /x\n      sate: absent\n", 5, "Did you mean 'state'?"),
        (PLAY + "  - file: {path: /x, state: presnt}\n", 3, "absent, directory"),
        (PLAY + "  - file: {state: absent}\n", 3, "needs the argument 'path'"),
        (PLAY + "  - file: {path: /x}\n    copy: {dest: /y, content: z}\n", 3, "two modules"),
        (PLAY + "  - name: nothing\n", 3, "no module"),
        (PLAY + "  - debug:\n      msg: '{{ a | defualt(1) }}'\n", 4, "Did you mean 'default'?"),
        (PLAY + "  - debug: {msg: x}\n    when: a is definde\n", 4, "Did you mean 'defined'?"),
        (PLAY + "  - debug: {msg: x}\n    when: a ==\n", 4, "not a Jinja2 template"),
        (PLAY + "  - debug: {msg: '{{ a'}\n", 3, "not a Jinja2 template"),
        (PLAY + "  - debug: {msg: {{ a }}}\n", 3, ""),
        (PLAY + "  - file: {path: /x, mode: 644}\n", 3, "quoted octal"),
        (PLAY + "  - ansible.builtin.command: ls\n    become: sure\n", 4, "true or false"),
        (PLAY + "  - block: []\n    wen: true\n", 4, "Did you mean 'when'?"),
        (PLAY + "  - include_tasks: x.yml\n", 3, "no file x.yml"),
        (
            PLAY + "  - include_tasks: x.yml\n    become: true\n",
            4,
            "no keyword 'become'. Write it below 'apply'",
        ),
        (PLAY + "  - include_role: {name: x}\n    until: a\n", 4, "Use import_role"),
        (PLAY + "  - include_tasks: {file: x.yml, apply: {becom: true}}\n", 3, "Did you mean 'become'?"),
        (PLAY + "  - import_role: {name: x, allow_duplicates: false}\n", 3, "List it in 'roles:'"),
        (PLAY + "  - import_role: {nmae: x}\n", 3, "Did you mean 'name'?"),
        (PLAY + "  - command: x\n    until: a is definde\n", 4, "Did you mean 'defined'?"),
        (PLAY + "  - command: x\n    when: \"{{ a }} == 'b'\"\n", 4, "without {{ }}"),
        (PLAY + "  - debug: {msg: \"{{ lookup('fil', 'x') }}\"}\n", 3, "Did you mean 'file'?"),
        (PLAY + "  - command: x\n    retries: often\n", 4, "must be a number"),
        (PLAY + "  - command: x\n    become_method: su\n", 4, "sudo"),
        (PLAY + "  - command: ls\n    loop: [1]\n    with_items: [2]\n", 3, "both"),
        (PLAY + "  - command: ls\n    command: pwd\n", 3, "twice"),
        (PLAY + "  - copy: {dest: !!python/object/apply:os.system [ls]}\n", 3, ""),
    ],
)
def test_errors_have_line_and_suggestion(text, line, says):
    with pytest.raises(UsageError) as caught:
        parse_playbook(text, "p.yml")
    assert caught.value.what.startswith(f"p.yml:{line}:"), caught.value
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("task", "line", "says"),
    [
        ("  - fiel: {path: /x}\n", 3, "Did you mean 'file'?"),
        ("  - block:\n    - fiel: {path: /x}\n", 4, "Did you mean 'file'?"),
        ("  - include_task: x.yml\n", 3, "Did you mean 'include_tasks'?"),
        ("  - name: x\n    acme.corp.thing: {a: 1}\n    when: a is defined\n", 4, "docs/playbooks.md"),
    ],
)
def test_an_unknown_module_is_a_problem_of_its_task_alone(task, line, says):
    found = []
    (play,) = parse_playbook(PLAY + task, "p.yml", found=found).plays
    assert [one.what.startswith(f"p.yml:{line}: unknown module '") for one in found] == [True]
    assert says in found[0].hint
    unknown = [one for one in tasks_of(play.tasks) if one.unknown]
    assert [says in one.unknown for one in unknown] == [True]


@pytest.mark.parametrize("word", ["end_plai", '"{{ word }}"'])
def test_a_meta_action_that_nobody_knows_is_refused(word):
    """As by ansible-core 2.19, which takes a template as it is written, too."""
    with pytest.raises(UsageError, match=r"p.yml:3: meta: it must be one of flush_handlers, .*, not '"):
        parse_playbook(PLAY + f"  - meta: {word}\n", "p.yml")


def test_all_that_is_wrong_is_collected():
    text = (
        "- hosts: all\n  stratgey: free\n  tasks:\n"
        "  - file: {pth: /x, sate: absent, mode: 0644}\n    wen: a\n    loop: [1]\n    with_items: [2]\n"
        "  - debug: {msg: '{{ a | defualt(1) }}'}\n    when: a ==\n"
        "  - include_tasks: none.yml\n  - command: x\n    notify: gone\n"
        "- hosts: all\n  roles: [nowhere, neither]\n"
    )
    found = []
    plays = parse_playbook(text, "p.yml", found=found).plays
    said = [one.what for one in found]
    places = ["2", "4", "4", "4", "5", "4", "8", "9", "10", "11", "14", "14"]
    assert sorted(one.split(":")[1] for one in said) == sorted(places)
    assert [len(play.tasks) for play in plays] == [4, 0]


def test_short_and_full_module_names_and_argument_forms_are_the_same():
    text = (
        PLAY + "  - file: path=/x state=directory\n  - ansible.builtin.file: {path: /x, state: directory}\n"
    )
    one, two = parse_playbook(text, "p.yml").plays[0].tasks[:2]
    assert (one.module, dict(one.args)) == (two.module, dict(two.args))


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("all", "a1 a2 b1"), ("a*", "a1 a2"), ("b1,a1", "b1 a1"), ("east", "a1 b1"), ("all:!east", "a2"),
        ("all:&east:!b1", "a1"), ("!a1", "a2 b1"), ("~[ab]1", "a1 b1"), ("east,a2", "a1 b1 a2"),
    ],
)  # fmt: skip
def test_host_patterns(pattern, hosts):
    found = select(pattern, ["a1", "a2", "b1"], {"east": ("a1", "b1"), "all": ("a1", "a2", "b1")})
    assert " ".join(found) == hosts


def test_unknown_host_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="gpu01"):
        select("gpu1", ["gpu01"], {})


@pytest.mark.parametrize("pattern", ["~" + "(" * 4000, "all" + "[0]" * 1300])
def test_a_pattern_that_is_nested_too_deeply_is_refused(pattern):
    with pytest.raises(UsageError, match="nested too deeply"):
        select(pattern, ["gpu01"], {})


def test_hosts_that_a_play_before_may_add_are_no_mistake():

    text = "- hosts: all\n  tasks: [{TASK}]\n- hosts: added\n  tasks: [{debug: {msg: x}}]\n"
    for task, grows in (("{group_by: {key: added}}", True), ("{debug: {msg: x}}", False)):
        plays = parse_playbook(text.replace("{TASK}", task), "site.yml").plays
        assert [one for _, one in growing_of(plays)] == [False, grows]
    assert select("added:a", ["a", "b"], {}, growing=True) == ("a",)
    with pytest.raises(UsageError, match="no group is called 'added'"):
        select("added", ["a", "b"], {})


def test_user_of_a_play_is_an_old_name_of_remote_user():
    (play,) = parse_playbook("- hosts: all\n  user: ada\n  tasks:\n  - ping:\n", "p.yml").plays
    assert play.tasks[0].remote_user == "ada"
    with pytest.raises(UsageError, match="are the same"):
        parse_playbook("- hosts: all\n  user: ada\n  remote_user: eve\n  tasks: []\n", "p.yml")
