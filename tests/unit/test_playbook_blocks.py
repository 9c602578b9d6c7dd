"""Blocks, rescue and always; until; loops: what a host does, and what it comes to."""

import pytest

from rm.playbook.run.report import Report
from tests.unit.playbook_world import play

FAIL = lambda host, step: {"failed": step.args.get("argv", [""])[0] == "false"}  # noqa: E731
NESTED = """\
  - block:
    - block:
      - {name: breaks, command: "false"}
      - {name: skipped over, command: "true"}
      always:
      - {name: inner always, command: "true"}
    rescue:
    - {name: rescued, debug: {msg: "{{ ansible_failed_task.name }} {{ ansible_failed_result.failed }}"}}
    always:
    - {name: outer always, command: "true"}
  - {name: after, command: "true"}
"""


def recap(world, host="a"):
    return Report("p", False, world.results).recap()[host]


def test_a_failure_goes_through_always_to_the_rescue_and_the_host_goes_on():
    world = play(NESTED, answer=FAIL, hosts=("a",))
    assert world.told() == [
        "breaks: failed",
        "inner always: changed",
        "rescued: breaks True",
        "outer always: changed",
        "after: changed",
    ]
    counts = recap(world)
    assert (counts.rescued, counts.failed, counts.ok, counts.changed) == (1, 0, 4, 3)
    assert not world.states["a"].failed


def test_without_a_rescue_always_runs_and_the_host_has_failed():
    tasks = "  - block:\n    - {name: breaks, command: 'false'}\n"
    tasks += "    always:\n    - {name: last, command: x}\n  - {name: never, command: x}\n"
    world = play(tasks, answer=FAIL, hosts=("a",))
    assert world.told() == ["breaks: failed", "last: changed"]
    assert world.states["a"].failed
    assert (recap(world).failed, recap(world).rescued) == (1, 0)


def test_a_failing_rescue_fails_the_host_after_always():
    tasks = (
        "  - block:\n    - {name: one, command: 'false'}\n    rescue:\n    - {name: two, command: 'false'}\n"
    )
    tasks += "    always:\n    - {name: three, command: x}\n"
    world = play(tasks, answer=FAIL, hosts=("a",))
    assert world.told() == ["one: failed", "two: failed", "three: changed"]
    assert world.states["a"].failed


def test_what_was_foreseen_after_a_failure_is_forgotten():
    tasks = """\
  - block:
    - command: "false"
    - set_fact: {x: never}
    - {command: y, register: never}
    rescue:
    - debug: {msg: "{{ x | default('unset') }} {{ never is defined }}"}
"""
    assert play(tasks, answer=FAIL, hosts=("a",)).told()[-1] == "debug: unset False"


def test_keywords_of_a_block_reach_its_tasks_and_conditions_add_up():
    tasks = """\
  - block:
    - {name: one, command: a, environment: {B: "2"}, when: inventory_hostname != 'b'}
    when: inventory_hostname != 'c'
    vars: {v: block}
    environment: {A: "{{ v }}"}
"""
    seen = []
    world = play(tasks, answer=lambda host, step: seen.append((host, step.environment)) or {})
    assert seen == [("a", {"A": "block", "B": "2"})]
    assert world.told("b") == world.told("c") == ["one: skipped"]


def test_until_repeats_with_its_delay_and_says_how_often():
    tries = iter("123")
    tasks = "  - {name: t, command: try, register: r, until: r.stdout == '3', retries: 5, delay: 7}\n"
    tasks += "  - debug: {msg: '{{ r.attempts }} {{ r.stdout }}'}\n"
    world = play(tasks, answer=lambda host, step: {"stdout": next(tries)}, hosts=("a",))
    assert world.told() == ["t: changed", "debug: 3 3"]
    assert world.delays == [7, 7]


def test_until_gives_up_after_its_retries():
    tasks = "  - {name: t, command: try, register: r, until: false, retries: 2, delay: 0}\n"
    world = play(tasks, hosts=("a",))
    assert len(world.log) == 3
    assert world.told() == ["t: failed"]
    assert world.results["a"][0].result["attempts"] == 2


def test_until_in_a_loop_is_about_each_item_and_check_mode_does_not_wait():
    tries = iter(["no", "yes", "yes"])
    tasks = "  - {command: 'try {{ item }}', register: r, until: r.stdout == 'yes', loop: [1, 2], delay: 0}\n"
    world = play(tasks, answer=lambda host, step: {"stdout": next(tries)}, hosts=("a",))
    assert [what for _, what in world.log] == ["try 1", "try 1", "try 2"]
    world = play(
        tasks, answer=lambda host, step: {"might_run": True, "skipped": True}, check=True, hosts=("a",)
    )
    assert len(world.log) == 2


@pytest.mark.parametrize(
    ("loop", "shown"),
    [
        ("with_items: [1, [2, 3], [[4]]]", ["1", "2", "3", "[4]"]),
        ("with_dict: {x: 1, y: 2}", ["{'key': 'x', 'value': 1}", "{'key': 'y', 'value': 2}"]),
        ("with_sequence: start=1 end=7 stride=3 format=n%02d", ["n01", "n04", "n07"]),
        ("with_sequence: count=2", ["1", "2"]),
        ("with_nested: [[1, 2], [x]]", ["[1, 'x']", "[2, 'x']"]),
        ("with_together: [[1, 2], [x]]", ["[1, 'x']", "[2, None]"]),
        ("with_subelements: [[{l: [5, 6]}], l]", ["[{}, 5]", "[{}, 6]"]),
        ("with_indexed_items: [x, y]", ["[0, 'x']", "[1, 'y']"]),
        ("loop: \"{{ query('dict', {'x': 1}) }}\"", ["{'key': 'x', 'value': 1}"]),
        ("with_first_found: [none.txt, here.txt]", ["/p/files/here.txt"]),
        ("with_fileglob: ['*.txt']", ["/p/files/here.txt", "/p/files/there.txt"]),
        ("with_fileglob: ['/p/files/h*', '/p/*/here.txt']", ["/p/files/here.txt"]),
    ],
)  # fmt: skip
def test_loops(loop, shown):
    files = {"files/here.txt": "", "files/there.txt": ""}
    world = play(f"  - debug: {{msg: '{{{{ item }}}}'}}\n    {loop}\n", files=files, hosts=("a",))
    assert [message for _, _, message in world.results["a"][0].items] == shown


def test_loops_without_items_and_with_none_that_is_wanted():
    world = play(
        "  - {debug: {msg: x}, loop: []}\n  - {debug: {msg: x}, loop: [1, 2], when: false}\n", hosts=("a",)
    )
    none, unwanted = world.results["a"]
    assert (none.status, none.items, none.result["results"]) == ("skipped", (), [])
    assert (unwanted.status, len(unwanted.items)) == ("skipped", 2)
    assert unwanted.result["msg"] == "All items skipped"
    assert unwanted.result["results"][0]["false_condition"] is False


def test_a_set_fact_in_a_loop_sees_its_earlier_items_and_extended_loops_count():
    tasks = """\
  - {set_fact: {all: "{{ all | default([]) + [item] }}"}, loop: [1, 2, 3]}
  - debug: {msg: "{{ all }} {{ ansible_loop.index }}/{{ ansible_loop.length }} {{ at }}"}
    loop: [x, y]
    loop_control: {extended: true, index_var: at, label: "L{{ item }}"}
"""
    world = play(tasks, hosts=("a",))
    assert world.results["a"][1].items == (
        ("Lx", "ok", "[1, 2, 3] 1/2 0"),
        ("Ly", "ok", "[1, 2, 3] 2/2 1"),
    )


def test_break_when_leaves_the_rest_of_a_loop_alone():
    tasks = "  - command: 'do {{ item }}'\n    loop: [1, 2, 3]\n    register: r\n"
    tasks += "    loop_control: {break_when: item == 2}\n"
    assert [what for _, what in play(tasks, hosts=("a",)).log] == ["do 1", "do 2"]


def test_what_ansible_cannot_do_in_the_background_is_refused_by_a_template_too():
    for seconds, status in (("{{ 30 }}", "failed"), ("{{ 0 }}", "changed")):
        world = play(f"  - {{name: x, raw: 'true', async: '{seconds}', poll: 0}}\n", hosts=("a",))
        assert world.told() == [f"x: {status}"]
