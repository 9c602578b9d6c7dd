"""Arguments as a text, versions, parts of facts, specifications of arguments: each by Ansible's rules."""

from __future__ import annotations

from typing import Any

import pytest

from rm.adapters.playbook.vault import Vault
from rm.cli.playbook.given import extra_variables
from rm.errors import UsageError
from rm.playbook.facts.subset import chosen, topics_of
from rm.playbook.model.argument_spec import Unfit, convert, errors_of
from rm.playbook.model.hashes import HASHES, SHORT
from rm.playbook.model.problems import BadArgument
from rm.playbook.modules import registry
from rm.playbook.read.parse import parse_playbook
from rm.playbook.read.read_arguments import free_form
from rm.playbook.read.task_keys import LOOP_KEYS, TASK_KEYS
from rm.playbook.read.words import key_values, words_of
from rm.playbook.template.filters import LOOKUPS
from rm.playbook.template.filters.versions import version
from tests.unit.test_playbook_evaluate import content, play


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1 b=two", {"a": "1", "b": "two"}),
        ("a={{ x | default('y z') }}  b={% if c %}d{% endif %}", {
            "a": "{{ x | default('y z') }}", "b": "{% if c %}d{% endif %}"}),
        ("a='b c' d=\"e f\" g=h'i j'", {"a": "b c", "d": "e f", "g": "h'i j'"}),
        ("line=a\\nb tab=\"\\t\" u=\\u00e9 quoted=\"a \\\" b\"", {
            "line": "a\nb", "tab": "\t", "u": "é", "quoted": 'a " b'}),
        ("a==b c=", {"a": "=b", "c": ""}),
        ("a=1\n  b=2", {"a": "1", "b": "2"}),
        ("a={# b c #}d", {"a": "{# b c #}d"}),
    ],
)  # fmt: skip
def test_words_that_set(text: str, found: dict[str, str]) -> None:
    assert key_values(text) == found


@pytest.mark.parametrize("text", ["a='b", "a={{ b", "a=1 word", "a={% if", 'a="b\\"'])
def test_words_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"missing|closed|name=value"):
        key_values(text)


def test_all_of_a_text_is_in_its_words() -> None:
    text = "echo  'a  b'\n\tc {{ d  }}  "
    assert "".join(word + space for word, space in words_of(text)) == text


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('echo "x chdir=/no y"', {"_raw": 'echo "x chdir=/no y"'}),
        ("chdir=/tmp echo 'a  b'", {"chdir": "/tmp", "_raw": "echo 'a  b'"}),
        ("echo a chdir=/tmp\necho b", {"chdir": "/tmp", "_raw": "echo a echo b"}),
        ("echo it\\'s {{ \"it's\" }}", {"_raw": "echo it\\'s {{ \"it's\" }}"}),
        ("a=b other=c echo", {"_raw": "a=b other=c echo"}),
        ("a b chdir=/x\n", {"chdir": "/x", "_raw": "a b "}),
        ("chdir=/x a b\n", {"chdir": "/x", "_raw": "a b\n"}),
        ("ls creates={{ a | default('b c') }}", {"creates": "{{ a | default('b c') }}", "_raw": "ls"}),
    ],
)
def test_arguments_of_a_command(text: str, given: dict[str, str]) -> None:
    assert dict(free_form(text, registry()["shell"], "_raw")) == given


@pytest.mark.parametrize(
    "text", ["echo it's", "# it's\necho", 'echo "{{ "it' + "'" + 's" }}"', "echo {{ a", "a='b"]
)
def test_a_command_that_ansible_cannot_split_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not closed"):
        free_form(text, registry()["shell"], "_raw")


@pytest.mark.parametrize(
    ("one", "how", "two", "given", "true"),
    [
        ("8", ">=", "8.0", {}, False),
        ("1.2", "==", "1.2.0", {}, False),
        ("1.10", "gt", "1.9", {}, True),
        ("1.0a", "<", "1.0", {}, False),
        (8, ">", 7, {}, True),
        ("1.2", "eq", "1.2.0", {"strict": True}, True),
        ("1.0b2", "lt", "1.0", {"version_type": "strict"}, True),
        ("1.2.3-rc.2", "<", "1.2.3-rc.10", {"version_type": "semver"}, True),
        ("1.2.3+a", "==", "1.2.3+b", {"version_type": "semantic"}, True),
        ("1.2.3-a", ">", "1.2.3-1", {"version_type": "semver"}, True),
    ],
)
def test_versions(one: Any, how: str, two: Any, given: dict[str, Any], true: bool) -> None:
    assert version(one, two, how, **given) is true


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("1.0", "a", "<"), "do not|cannot be compared"),
        (("1", "2", "~"), "operator"),
        (("1", "2", "<", True), "not a version"),
        (("1", "2", "<", None, "pep440"), "not known"),
        (("1", "2", "<", True, "strict"), "either"),
        (("1", "1.0.0", "<", None, "semver"), "semantic"),
    ],
)
def test_versions_that_are_none(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        version(*given)


FACTS = {"hostname": "h", "distribution": "D", "memtotal_mb": 1, "eth0": {}, "interfaces": [], "kernel": "k",
         "virtualization_type": "kvm", "os_family": "F", "local": {}}  # fmt: skip


@pytest.mark.parametrize(
    ("subset", "patterns", "names"),
    [
        ([], [], {*FACTS, "gather_subset", "module_setup"}),
        (["all"], ["ansible_k*"], {"kernel"}),
        (["!all"], ["*"], {"hostname", "distribution", "kernel", "os_family", "local", "gather_subset",
                           "module_setup"}),
        (["!all", "!min", "hardware"], ["[hmde]*"], {"hostname", "memtotal_mb", "module_setup"}),
        (["network"], ["eth0", "interfaces", "memtotal_mb"], {"eth0", "interfaces"}),
        (["!hardware", "!facter"], ["memtotal_mb", "eth0", "kernel"], {"kernel"}),
        (["all", "!hardware"], ["memtotal_mb", "eth0", "kernel"], {"eth0", "kernel"}),
        (["!all", "!min", "os_family"], ["distribution", "hostname"], {"distribution"}),
    ],
)  # fmt: skip
def test_parts_of_facts(subset: list[str], patterns: list[str], names: set[str]) -> None:
    assert set(chosen(FACTS, subset, patterns)) == names


@pytest.mark.parametrize("name", ["nosuch", "facter"])
def test_no_such_part(name: str) -> None:
    with pytest.raises(BadArgument, match="gather_subset"):
        topics_of([name])


SPEC = {
    "port": {"type": "int", "required": True, "aliases": ["p"]},
    "mode": {"choices": ["a", "b"]},
    "many": {"type": "list", "elements": "int", "choices": [1, 2]},
    "more": {"type": "dict", "options": {"k": {"required": True}, "x": {}, "y": {}},
             "required_together": [["x", "y"]], "mutually_exclusive": [["k", "y"]],
             "required_if": [["k", "1", ["x"]]], "required_by": {"k": ["x"]},
             "required_one_of": [["x", "y"]]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"p": "1", "mode": "a", "many": "1,2", "more": "k=0,x=1"}, 1),  # x without y
        ({}, 1),
        ({"port": "x", "mode": "c", "many": [3], "more": {"z": 1}}, 6),
        ({"port": 1.5}, 1),
        ({"port": 1, "more": {"k": "1", "y": 2}}, 4),
        ({"port": 1, "more": {"k": "1", "x": 1, "y": 2}}, 1),
        ({"port": True}, 0),
    ],
)
def test_arguments_by_their_specification(given: dict[str, Any], errors: int) -> None:
    found = errors_of(SPEC, given)
    assert len(found) == errors, found


@pytest.mark.parametrize(
    ("spec", "given", "errors"),
    [
        ({"a": {"required": True}}, {"a": None}, []),
        ({"d": {"type": "dict", "options": {"a": {"required": True}}}}, {"d": {"a": None}}, []),
        ({"a": {"required": "yes"}}, {}, ["missing required arguments: a"]),
        ({"a": {"required": "no"}}, {}, ["missing required arguments: a"]),  # any text is true
        ({"a": {"required": 0}}, {}, []),
        ({"a": {}}, {"a": None}, []),
        ({"a": {"choices": ["x", "y"]}}, {"a": None}, ["value of a must be one of: x, y, got: None"]),
        (
            {"a": {"aliases": ["q"]}, "c": {}},
            {"q": 1, "b": 2},
            ["b. Supported parameters include: a, c (q)."],
        ),
    ],
)
def test_null_required_and_unknown_arguments(
    spec: dict[str, Any], given: dict[str, Any], errors: list[str]
) -> None:
    assert errors_of(spec, given) == errors


@pytest.mark.parametrize("spec", [{"required": True}, {"default": 3}])
def test_null_is_no_number(spec: dict[str, Any]) -> None:
    [error] = errors_of({"a": {"type": "int", **spec}}, {"a": None})
    assert "is of type NoneType and we were unable to convert to int" in error


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("int", "1.0", 1), ("int", "1e3", 1000), ("int", " 7 ", 7), ("int", 2.0, 2),
        ("bool", "yes", True), ("bool", 0, False), ("float", "1.5", 1.5), ("list", "a, b", ["a", "b"]),
        ("list", 3, ["3"]), ("dict", '{"a": 1}', {"a": 1}), ("dict", "a=1 b=2", {"a": "1", "b": "2"}),
        ("json", {"a": 1}, '{"a": 1}'), ("bytes", "2K", 2048), ("str", 3, "3"), ("raw", [1], [1]),
    ],
)  # fmt: skip
def test_types_of_arguments(kind: str, value: Any, found: Any) -> None:
    assert convert(kind, value) == found


@pytest.mark.parametrize(
    ("kind", "value"), [("bool", "maybe"), ("int", "x"), ("list", {"a": 1}), ("dict", "a"), ("dict", [1]),
                        ("bytes", "many"), ("bytes", "inf"), ("int", float("inf")), ("dict", "{[]: 1}"),
                        ("dict", "{" + "[" * 5000), ("int", "1.5"), ("int", "nan"), ("int", "1e999999999"),
                        ("nosuch", 1), ("float", [1])],
)  # fmt: skip
def test_no_such_type(kind: str, value: Any) -> None:
    with pytest.raises(Unfit):
        convert(kind, value)


def test_variables_of_the_command_line_are_words_of_ansible() -> None:
    given = ["v={{ 1 + 2 }} w='a b'", 'x=1 y="c d"', "line=a=b"]
    found = {"v": "{{ 1 + 2 }}", "w": "a b", "x": "1", "y": "c d", "line": "a=b"}
    assert extra_variables(given, Vault(())) == found
    for text, said in (("a b=1", "'a' sets nothing"), ("a='b", "not closed"), ("1a=b", "sets nothing")):
        with pytest.raises(UsageError, match=said):
            extra_variables([text], Vault(()))


def test_what_is_not_supported_is_refused_with_why() -> None:
    for task, why in (
        ("debugger: on_failed", "rm sends a host many tasks at once"),
        ("with_config: [A]", "rm has no settings of Ansible's"),
    ):
        with pytest.raises(UsageError, match="is not supported") as refused:
            parse_playbook(f"- hosts: all\n  tasks:\n    - debug: {{msg: x}}\n      {task}\n", "site.yml")
        assert why in refused.value.hint
    text = "- hosts: all\n  tasks:\n    - debug: {msg: \"{{ lookup('config', 'A') }}\"}\n"
    with pytest.raises(UsageError, match="rm has no settings of Ansible's"):
        parse_playbook(text, "site.yml")


@pytest.mark.parametrize("name", ["config", "dependent"])
def test_a_loop_over_a_lookup_that_rm_lacks_is_no_spelling_mistake(name: str) -> None:
    text = f"- hosts: all\n  tasks:\n    - debug: {{msg: x}}\n      with_{name}: [a]\n"
    with pytest.raises(UsageError, match=f"'with_{name}' is not supported"):
        parse_playbook(text, "site.yml")


@pytest.mark.parametrize("name", ["set_fact", "add_host"])
def test_what_sets_variables_names_them_in_the_task(name: str) -> None:
    """Otherwise a host's answer could say which."""
    with pytest.raises(UsageError, match=f"a template for all arguments of '{name}' is not supported") as no:
        parse_playbook(f"- hosts: all\n  tasks:\n    - {name}: '{{{{ m }}}}'\n", "site.yml")
    assert "Write each argument" in no.value.hint


@pytest.mark.parametrize(
    "task",
    [
        "{set_fact: {'*': '{{ m }}'}}",
        "{set_fact: '*={{ m }}'}",
        "{file: {'*': {path: /x}}}",
        "{file: {'*': }}",
        "{file: '{{ m }}', args: {'*': x}}",
        "{file: {path: /x}, args: {'*': x}}",
        "{file: {path: /x}, module_defaults: {file: {'*': x}}}",
    ],
)
def test_no_argument_is_called_as_the_template_of_all(task: str) -> None:
    with pytest.raises(UsageError, match=r"^site.yml:3: '(file|set_fact)' has no argument '\*'"):
        parse_playbook(f"- hosts: all\n  tasks:\n    - {task}\n", "site.yml")


def test_each_lookup_of_ansible_may_be_looped_over() -> None:
    assert {"loop", "with_items", "with_url", "with_password", "with_varnames"} <= set(LOOP_KEYS)
    assert "now" in LOOKUPS
    assert "with_now" not in TASK_KEYS


def test_a_prompt_is_hashed_in_one_of_the_ways_that_there_are() -> None:
    text = "- hosts: all\n  vars_prompt: [{name: p, encrypt: KIND}]\n"
    for kind in HASHES:
        assert parse_playbook(text.replace("KIND", kind), "site.yml").plays[0].prompts[0].encrypt == kind
    with pytest.raises(UsageError, match="'rot13' is not a kind of hash"):
        parse_playbook(text.replace("KIND", "rot13"), "site.yml")
    assert set(SHORT.values()) == set(HASHES)


@pytest.mark.parametrize(
    ("value", "beside", "taken"),
    [
        ("'{{ a }}'", "'{{ b }}'", {"src": "of-b", "dest": "/of-a"}),
        ("'dest=/kv'", "'{{ b }}'", {"src": "of-b", "dest": "/kv"}),
        ("{dest: /dict}", "'{{ b }}'", {"src": "of-b", "dest": "/dict"}),
        ("'{{ a }}'", "{src: written, dest: /written}", {"src": "written", "dest": "/written"}),
        ("'dest=\"{{ a.dest }}\"'", "{src: '{{ b.src }}', dest: /args}", {"src": "of-b", "dest": "/of-a"}),
    ],
)
def test_arguments_of_a_task_and_of_its_args_are_merged_as_ansible_does(
    value: str, beside: str, taken: dict[str, str]
) -> None:
    """ansible-core 2.19: what is written beats templates, and the module's own value beats `args`."""
    tasks = (
        f"  - file: {value}\n    args: {beside}\n    module_defaults: {{file: {{state: link, src: usual}}}}\n"
    )
    variables = {"a": {"dest": "/of-a"}, "b": {"src": "of-b", "dest": "/of-b"}}
    _, ((step,),), _ = play(tasks, inventory=variables)
    assert {"src": step["args"]["src"], "dest": step["args"]["path"]} == taken


def test_arguments_that_a_host_gave_are_never_evaluated() -> None:
    tasks = (
        "  - {command: x, register: r}\n  - copy: '{{ r.a }}'\n    args: '{{ r.b }}'\n"
        "  - assert: '{{ r.c }}'\n    args: '{{ r.d }}'\n    ignore_errors: true\n"
    )
    evil = "{{ lookup('pipe', 'touch /srv/owned') }}"
    said = {"a": {"content": evil}, "b": {"dest": "/srv/x" + evil}, "c": {"that": "1 == 1"}, "d": {}}
    results, batches, _ = play(tasks, answer=lambda step: said)
    (step,) = batches[1]
    assert step["args"]["dest"] == "/srv/x" + evil
    assert content(step) == evil
    assert "is a condition, which is written in the task" in results[-1].message
