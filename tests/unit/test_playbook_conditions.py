"""Templates in the texts of conditions: evaluated as parts of them, shown as they are written."""

import pytest

from rm.errors import UsageError
from rm.playbook.read.parse import parse_playbook
from tests.unit.test_playbook_evaluate import play

HOLDS = [
    "b == '{{ 1 + 1 }}'",  # one template has its value
    "'x2' == 'x{{ b }}'",
    "'x2y3' == 'x{{ b }}y{{- b + 1 }}'",
    "'x' == 'x   {{- \"\" }}'",
    r'"x\"2" == "x\"{{ b }}"',
    r'b == "{{ {\"k\": 2}[\"k\"] }}"',
    'b == \'{{ {"k": {"j": 2}}["k"]["j"] }}\'',
    "'ab2' == 'a' 'b{{ b }}'",
    "'ab2c' == 'a'   'b{{ b }}' 'c' and b in [2]",
    "'é2' == 'é{{ b }}'",
    r"'a\n2' == 'a\n{{ b }}'",
    "'n' in {'x2': 'n'}['x{{ b }}']",
    "'ab2' is match 'a.{{ b }}'",
]


@pytest.mark.parametrize("condition", HOLDS)
def test_a_condition_takes_templates_in_its_texts(condition: str) -> None:
    quoted = "'" + condition.replace("'", "''") + "'"
    tasks = f"  - {{debug: {{msg: met}}, when: [{quoted}]}}\n  - assert: {{that: [{quoted}]}}\n"
    tasks += f"  - assert: {{that: {quoted}}}\n  - {{command: x, failed_when: {quoted}}}\n"
    results, _, _ = play(tasks, inventory={"b": 2})
    assert [one.status for one in results] == ["ok", "ok", "ok", "failed"]
    assert results[0].message == "met"


@pytest.mark.parametrize(
    "condition",
    ["b == '{{ }}'", "b == '{{ b'", "b == 'x{% if b %}{{ b }}{% endif %}'", "b == '{# #}{{ b }}'"],
)
def test_a_text_that_holds_more_than_templates_is_refused(condition: str) -> None:
    quoted = "'" + condition.replace("'", "''") + "'"
    for task in (f"{{debug: , when: {quoted}}}", f"assert: {{that: [{quoted}]}}"):
        with pytest.raises(UsageError, match="holds a template"):
            parse_playbook(f"- hosts: all\n  tasks:\n  - {task}\n", "p.yml")


@pytest.mark.parametrize("written", ["b == 'x{{ b }}'", "{{ b == 3 }}", "  b  == 3 "])
def test_a_condition_is_shown_as_it_is_written(written: str) -> None:
    """As ansible-core 2.19 does."""
    quoted = "'" + written.replace("'", "''") + "'"
    results, _, _ = play(f"  - {{debug: , when: {quoted}}}\n", inventory={"b": 2})
    assert results[0].result["false_condition"] == written


def test_what_is_wrong_with_a_condition_names_it_as_it_is_written() -> None:
    tasks = "  - assert: {that: [\"b == 'x{{ b }}'\"]}\n    ignore_errors: true\n"
    tasks += "  - {debug: , when: \"c == 'x{{ b }}'\", ignore_errors: true}\n"
    tasks += "  - {debug: , when: \"'x{{ b }}'\"}\n"
    results, _, _ = play(tasks, inventory={"b": 2})
    assert results[0].result["assertion"] == "b == 'x{{ b }}'"
    said = [one.message for one in results]
    assert said[0] == "the assertion 'b == 'x{{ b }}'' does not hold"
    assert said[1].startswith("'c == 'x{{ b }}''")
    assert said[2].startswith("the condition ''x{{ b }}'' gave 'x2'")


def test_a_condition_of_an_assertion_that_a_host_s_text_completes_is_no_condition() -> None:
    tasks = "  - {command: x, register: r}\n  - assert: {that: [\"'1' == '{{ r.stdout }}'\"]}\n"
    results, _, _ = play(tasks, answer=lambda step: {"stdout": "' or true or '"})
    assert results[-1].message == "the assertion ''1' == '{{ r.stdout }}'' does not hold"


CONDITIONS = ["b == 2", "b == '{{ 1 + 1 }}'", "'x2' == 'x{{ b }}'", "{{ b == 2 }}", "{{ one }}"]
NAMED = {"b": 2, "one": "b in [2]", "conds": CONDITIONS, "through": "{{ conds }}", "deep": ["{{ through }}"]}


@pytest.mark.parametrize("name", ["one", "conds", "through"])
def test_conditions_of_the_admin_s_variables_may_hold_templates(name: str) -> None:
    tasks = f"  - assert: {{that: '{{{{ {name} }}}}'}}\n"
    results, _, _ = play(tasks, inventory=NAMED)
    assert [one.message for one in results] == ["All assertions passed"]
    results, _, _ = play(tasks, inventory={**NAMED, "one": "b in [3]"})
    assert results[0].status == "failed"


@pytest.mark.parametrize("held", [{"a": "{{ 1 }}"}, [{"a": "{{ 1 }}"}]])
def test_a_mapping_with_a_template_where_a_condition_is_written_is_refused_in_a_sentence(
    held: object,
) -> None:
    results, _, _ = play("  - assert: {that: '{{ conds }}'}\n", inventory={"conds": held})
    assert "gave {'a': 1} (dict), not true or false" in results[0].message


ATTACKS = [
    ["{{ r.stdout }}"],
    "{{ r.stdout }}",
    ["b == 2", "{{ r.stdout }}"],
    "{{ r.stdout_lines }}",
    ["{{ r.stdout_lines }}"],
    ["{{ r.stdout }} == 2"],
    ["{{ inner }}"],
    "{{ inner }}",
    "{{ [r.stdout] }}",
]


@pytest.mark.parametrize("written", ATTACKS)
def test_what_a_host_says_is_no_condition_of_a_variable_either(written: object) -> None:
    """Text of a host that is a true expression must not hold, nor be evaluated at all."""
    tasks = "  - {command: x, register: r}\n  - assert: {that: '{{ conds }}'}\n"
    inventory = {"b": 2, "conds": written, "inner": "{{ r.stdout }}"}
    for said in ("b == 2", "{{ b == 2 }}", "lookup('pipe', 'touch /srv/owned') == ''"):
        answer = {"stdout": said, "stdout_lines": [said]}
        results, _, _ = play(tasks, inventory=inventory, answer=lambda step, answer=answer: answer)
        assert results[-1].status == "failed"
        assert "/srv/owned" not in results[-1].message.partition(" gave ")[0]


def test_variables_of_conditions_that_name_each_other_are_refused() -> None:
    results, _, _ = play(
        "  - assert: {that: '{{ a }}'}\n", inventory={"a": ["{{ c }}"], "c": ["b == 2", "{{ a }}"]}
    )
    assert results[0].message.startswith("the variables a > c > a form a loop")
