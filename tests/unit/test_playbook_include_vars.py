"""`include_vars`: which files of a directory, and how their variables meet those that are there."""

from tests.unit.playbook_world import World, play

SHOW = '  - debug: {msg: "{{ net }}"}\n'
FILES = {"new.yml": "net: {mtu: 9000, ports: [3], dns: {second: '{{ late }}'}}\n"}
HEAD = "  vars: {late: now, net: {mtu: 1500, ports: [1, 2], dns: {first: '{{ late }}'}, name: eth0}}\n"


def included(arguments, **given):
    return play(f"  - include_vars: {arguments}\n{SHOW}", hosts=("a",), **given).told()


def test_mappings_replace_those_of_the_same_name():
    assert included("new.yml", head=HEAD, files=FILES)[-1] == (
        "debug: {'mtu': 9000, 'ports': [3], 'dns': {'second': 'now'}}"
    )


def test_mappings_are_merged_where_the_task_says_so():
    told = included("{file: new.yml, hash_behaviour: merge}", head=HEAD, files=FILES)
    assert told[-1] == (
        "debug: {'mtu': 9000, 'ports': [3], 'dns': {'first': 'now', 'second': 'now'}, 'name': 'eth0'}"
    )


def test_mappings_below_a_name_are_merged_with_that_variable():
    files = {"new.yml": "mtu: 9000\n"}
    told = included("{file: new.yml, name: net, hash_behaviour: merge}", head=HEAD, files=files)
    assert "'mtu': 9000" in told[-1]
    assert "'name': 'eth0'" in told[-1]


def test_what_a_host_may_have_said_is_no_template_after_it_was_merged():
    text = "- hosts: all\n  gather_facts: false\n  tasks:\n"
    text += "  - include_vars: {file: new.yml, hash_behaviour: merge}\n"
    world = World(text + SHOW, hosts=("a",), files={"new.yml": "net: {more: '{{ 1 + 1 }}'}\n"})
    world.states["a"].added = {"net": {"said": ["{{ 6 * 7 }}"]}}
    assert world.run().told()[-1] == "debug: {'said': ['{{ 6 * 7 }}'], 'more': 2}"


TREE = {
    "tree/b.yml": "net: top\n",
    "tree/a/deep.yaml": "net: deep\n",
    "tree/c.json.old.yml": '{"net": "old"}',
}


def test_a_directorys_own_files_come_before_those_below_it():
    assert included("{dir: tree}", files=TREE)[-1] == "debug: deep"
    assert included("{dir: tree, depth: 1}", files=TREE)[-1] == "debug: old"


def test_a_name_to_be_ignored_is_its_end():
    assert included("{dir: tree, depth: 1, ignore_files: [old.yml]}", files=TREE)[-1] == "debug: top"
    assert included("{dir: tree, depth: 1, ignore_files: [old]}", files=TREE)[-1] == "debug: old"


def test_a_file_without_one_of_the_extensions_is_an_error_unless_it_may_be_there():
    files = {**TREE, "tree/README.md": "net: read me\n"}
    assert included("{dir: tree}", files=files)[0] == "include_vars: failed"
    assert included("{dir: tree, ignore_unknown_extensions: true}", files=files)[-1] == "debug: deep"
