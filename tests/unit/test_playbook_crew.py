"""Several hosts of one play: who waits for whom, who does what for all, who falls with whom."""

from dataclasses import replace

import pytest

from tests.unit.playbook_world import World, play

ONE = "inventory_hostname == 'b'"


def test_hosts_run_ahead_of_each_other_where_nothing_ties_them():
    world = play("  - command: one\n  - command: two\n")
    assert world.log[:2] in ([("c", "one"), ("c", "two")], [("a", "one"), ("a", "two")])


def test_a_task_for_one_host_is_done_by_the_first_after_all_came_there_and_all_know_its_result():
    tasks = """\
  - command: before
  - {name: once, command: "echo {{ inventory_hostname }}", run_once: true, register: r}
  - debug: {msg: "{{ r.stdout }}"}
"""
    world = play(tasks, answer=lambda host, step: {"stdout": host})
    order = [what for _, what in world.log]
    assert order == ["before", "before", "before", "echo a"]
    assert [world.told(h)[-1] for h in "abc"] == ["debug: a"] * 3
    assert [len(world.results[h]) for h in "abc"] == [3, 2, 2]


def test_the_failure_of_a_task_for_one_host_is_everybodys():
    tasks = "  - {command: x, run_once: true}\n  - command: never\n"
    world = play(tasks, answer=lambda host, step: {"failed": True})
    assert world.log == [("a", "x")]
    assert all(state.failed for state in world.states.values())


def test_a_delegated_task_waits_for_all_and_runs_on_the_other_host():
    tasks = """\
  - command: before
  - {command: "tell {{ inventory_hostname }}", delegate_to: lb}
  - command: after
"""
    world = play(tasks)
    phases = [what.split()[0] for _, what in world.log]
    assert phases == ["before"] * 3 + ["tell"] * 3 + ["after"] * 3
    assert {(where, what) for where, what in world.log if "tell" in what} == {
        ("lb", "tell a"), ("lb", "tell b"), ("lb", "tell c"),
    }  # fmt: skip


def test_items_may_be_delegated_to_different_hosts():
    tasks = "  - {command: 'x {{ item }}', delegate_to: '{{ item }}', loop: [a, b, b], run_once: true}\n"
    assert play(tasks).log == [("a", "x a"), ("b", "x b"), ("b", "x b")]


def test_facts_may_be_set_for_the_host_that_a_task_is_delegated_to():
    tasks = """\
  - {set_fact: {x: 5}, delegate_to: c, delegate_facts: true, run_once: true}
  - debug: {msg: "{{ x | default('none') }} {{ hostvars.c.x }}"}
"""
    world = play(tasks)
    assert [world.told(h)[-1] for h in "abc"] == ["debug: none 5", "debug: none 5", "debug: 5 5"]


def test_a_look_at_another_hosts_variables_waits_until_that_host_is_as_far():
    tasks = """\
  - {command: name, register: r}
  - {command: "use {{ hostvars['c'].r.stdout }} {{ hostvars.a.level }}"}
"""
    inventory = {"a": {"level": "{{ base }}1", "base": "L"}}
    world = play(tasks, answer=lambda host, step: {"stdout": host.upper()}, inventory=inventory)
    assert [what for _, what in world.log][-3:] == ["use C L1"] * 3


def test_any_errors_fatal_stops_all_after_the_task_and_rescues_all():
    tasks = f"""\
  - block:
    - {{name: breaks, fail: {{msg: x}}, when: {ONE}}}
    - {{name: never, command: x}}
    rescue:
    - {{name: saved, debug: {{msg: ok}}}}
  - {{name: breaks again, fail: {{msg: x}}, when: {ONE}}}
  - {{name: never, command: x}}
"""
    world = play(tasks, head="  any_errors_fatal: true\n")
    assert world.told("a") == ["breaks: skipped", "saved: ok", "breaks again: skipped"]
    assert world.told("b") == ["breaks: failed", "saved: ok", "breaks again: failed"]
    assert world.log == []
    assert all(state.failed for state in world.states.values())


def test_a_host_that_failed_along_and_was_rescued_is_left_out_until_errors_are_cleared():
    tasks = f"""\
  - block:
    - {{fail: {{msg: x}}, when: {ONE}}}
    rescue:
    - {{name: saved, debug: {{msg: ok}}}}
  - debug: {{msg: "{{{{ ansible_play_hosts }}}}"}}
"""
    world = play(tasks, head="  any_errors_fatal: true\n")
    assert [world.told(h)[1:] for h in "abc"] == [["saved: ok", "debug: ['b']"]] * 3
    assert [world.states[h].out for h in "abc"] == [True, False, True]
    assert not any(state.failed for state in world.states.values())
    cleared = play(tasks + "  - meta: clear_host_errors\n", head="  any_errors_fatal: true\n")
    assert not any(state.out for state in cleared.states.values())


def test_too_many_failures_stop_the_part():
    tasks = f"  - {{name: breaks, fail: {{msg: x}}, when: {ONE}}}\n  - {{name: next, command: x}}\n"
    assert len(play(tasks, max_fail=34).log) == 2  # one of three is 33.3 %
    stopped = play(tasks, max_fail=33)
    assert stopped.log == []
    assert [stopped.told(h) for h in "abc"] == [["breaks: skipped"], ["breaks: failed"], ["breaks: skipped"]]


def test_a_lost_host_is_no_failure_that_max_fail_percentage_counts():
    def answer(host, step):
        return None if host == "b" else {}

    tasks = "  - {name: first, command: first}\n  - {name: next, command: next}\n"
    world = play(tasks, answer=answer, max_fail=10)
    assert [host for host, what in world.log if what == "next"] == ["c", "a"]


@pytest.mark.parametrize(
    ("task", "goes_on"), [("command: x", False), ("command: x, any_errors_fatal: true", True),
                          ("command: x, run_once: true", True)],
)  # fmt: skip
def test_the_run_goes_on_where_a_lost_host_is_fatal_for_all(task, goes_on):
    from rm.playbook.run.conduct import Part

    world = World(f"- hosts: all\n  gather_facts: false\n  tasks:\n  - {{{task}}}\n  - command: y\n")
    part = Part(world.plays[0], list("abc"), world.states, world.shelf, world.options)
    (name, _), *others = part.ready()
    for other, batch in others:
        part.record(other, [{"id": step.id, "changed": True} for step in batch.steps])
    part.lost(name, "gone")
    assert part.goes_on == goes_on


def test_a_lost_host_leaves_the_others_and_may_be_ignored():
    def answer(host, step):
        return None if host == "b" and step.args["argv"] == ["first"] else {}

    tasks = "  - {name: first, command: first}\n  - {name: second, command: second, run_once: true}\n"
    world = play(tasks, answer=answer)
    assert world.states["b"].unreachable
    assert world.told("b") == ["first: unreachable"]
    assert ("a", "second") in world.log
    ignoring = play(tasks.replace("first}", "first, ignore_unreachable: true}"), answer=answer)
    assert not ignoring.states["b"].failed


def test_the_items_of_a_loop_on_a_lost_host_are_registered():
    def answer(host, step):
        return None if host == "b" and step.args["argv"][0] == "x" else {}

    tasks = """\
  - {name: loop, command: x, loop: [1, 2, 3], when: item != 2, register: r, ignore_unreachable: true}
  - debug: {msg: "{{ r.results | map(attribute='unreachable', default='-') | list }} {{ r is unreachable }}"}
  - debug: {msg: "{{ r.results | map(attribute='item') }} {{ r.results[1] is skipped }} {{ r is changed }}"}
"""
    world = play(tasks, answer=answer)
    assert world.told("b") == [
        "loop: unreachable", "debug: [True, '-', True] True", "debug: [1, 2, 3] True False",
    ]  # fmt: skip
    assert [item[:2] for item in world.results["b"][0].items] == [
        ("1", "unreachable"), ("2", "skipped"), ("3", "unreachable"),
    ]  # fmt: skip


def test_meta_ends_a_host_or_the_play_for_all():
    tasks = f"""\
  - {{meta: end_host, when: {ONE}}}
  - debug: {{msg: "{{{{ ansible_play_hosts | join(',') }}}}"}}
  - meta: end_play
  - {{name: never, command: x}}
"""
    world = play(tasks)
    assert [world.told(h) for h in "abc"] == [["debug: a,c"], [], ["debug: a,c"]]
    assert not any(state.failed for state in world.states.values())


def test_meta_clear_host_errors_lets_failed_hosts_into_later_plays():
    text = """\
- hosts: all
  gather_facts: false
  tasks:
  - {name: breaks, command: x}
  - meta: clear_host_errors
  - debug: {msg: "{{ ansible_play_hosts | join(',') }}"}
  - {name: after, command: y}
- hosts: all
  gather_facts: false
  tasks:
  - {name: later, command: z}
"""

    def answer(host, step):
        lost, failed = host == "b" and step.args["argv"] == ["x"], host == "c"
        return None if lost else {"failed": failed and step.args["argv"] == ["x"]}

    world = World(text, answer=answer).run()
    assert [world.told(h) for h in "abc"] == [
        ["breaks: changed", "debug: a", "after: changed", "later: changed"],
        ["breaks: unreachable", "later: changed"],
        ["breaks: failed", "later: changed"],
    ]


@pytest.mark.parametrize("key", ["included_vars", "raw_facts"])
def test_a_hosts_answer_brings_no_variables_in(key):
    tasks = "  - command: x\n  - debug: {msg: \"{{ safe | default('unset') }}\"}\n"
    brought = {key: {"safe": "{{ lookup('pipe', 'echo evil') }}"}}
    world = play(tasks, hosts=("a",), answer=lambda host, step: brought)
    assert world.told()[-1] == "debug: unset"


EVIL = "lookup('pipe', 'echo evil') == 'evil'"


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("assert: {that: '{{ out.stdout }}'}", "failed"),
        ("assert: {that: ['{{ out.stdout }}']}", "failed"),
        ("assert: {that: '{{ kept }}'}", "failed"),
        ("assert: {that: '{{ mine }}'}", "ok"),
        ("assert: {that: '{{ out.rc == 0 }}'}", "ok"),
        ("debug: {var: '{{ out.stdout }}'}", "failed"),
        ("command: y\n    when: '{{ out.stdout }}'", "failed"),
    ],
)
def test_a_hosts_output_is_never_a_condition(task, told):
    tasks = f"""\
  - {{command: x, register: out}}
  - set_fact: {{kept: ["{{{{ out.stdout }}}}"]}}
  - name: it
    {task}
"""
    head = "  vars: {mine: [out.rc == 0, true]}\n"
    world = play(tasks, head, hosts=("a",), answer=lambda host, step: {"stdout": EVIL})
    assert world.results["a"][-1].status == told
    assert "evil" not in world.results["a"][-1].message.replace("echo evil", "").replace("'evil'", "")


def test_forced_handlers_run_on_a_failed_host():
    head = "  force_handlers: true\n  handlers:\n  - {name: h, command: handle}\n"
    tasks = "  - {command: change, notify: h}\n  - {fail: {msg: x}}\n"
    assert [what for _, what in play(tasks, head, hosts=("a",)).log] == ["change", "handle"]
    kept = play(tasks, head.replace("force_handlers: true", "force_handlers: false"), hosts=("a",))
    assert [what for _, what in kept.log] == ["change"]


def test_a_handler_may_notify_another_and_the_first_of_one_name_in_a_list_counts():
    head = """\
  handlers:
  - {name: h, command: handle, notify: later}
  - {name: h, command: shadowed}
  - {name: later, command: chained}
"""
    world = play(
        "  - {command: change, notify: h}\n  - {meta: flush_handlers}\n  - command: end\n", head, hosts=("a",)
    )
    assert [what for _, what in world.log] == ["change", "handle", "chained", "end"]


def test_a_flush_runs_each_handler_once_and_those_that_it_went_past_wait_for_the_next():
    head = """\
  handlers:
  - {name: early, command: early}
  - {name: middle, command: middle, notify: [early, late]}
  - {name: late, command: late}
"""
    tasks = """\
  - {command: change, notify: [late, middle]}
  - {meta: flush_handlers}
  - command: between
"""
    world = play(tasks, head, hosts=("a",))
    assert [what for _, what in world.log] == ["change", "middle", "late", "between", "early"]


def test_a_flush_may_depend_on_a_condition():
    head = "  handlers:\n  - {name: told, command: told}\n"
    tasks = """\
  - {command: change, notify: told}
  - {meta: flush_handlers, when: inventory_hostname == 'a'}
  - command: between
"""
    world = play(tasks, head, hosts=("a", "b"))
    assert [what for host, what in world.log if host == "a"] == ["change", "told", "between"]
    assert [what for host, what in world.log if host == "b"] == ["change", "between", "told"]


def test_conditions_of_a_result_see_how_often_it_was_tried():
    tries = []

    def answer(host, step):
        tries.append(host)
        return {"rc": 0 if len(tries) > 1 else 1}

    task = "{name: again, command: x, register: r, until: r.rc == 0, retries: 3, delay: 0"
    world = play(f"  - {task}, changed_when: r.attempts > 1, failed_when: r.rc != 0}}\n", hosts=("a",),
                 answer=answer)  # fmt: skip
    assert world.told("a") == ["again: changed"]


def test_throttle_keeps_the_order_of_the_hosts():
    from rm.playbook.run.conduct import Part

    tasks = "  - {command: x, when: inventory_hostname != 'c'}\n  - {command: y, throttle: 1}\n"
    world = World(f"- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}")
    part = Part(world.plays[0], list("abc"), world.states, world.shelf, world.options)
    order = []
    while ready := list(part.ready()):
        for host, batch in reversed(ready):
            order.append(host)
            part.record(host, [{"id": step.id, "changed": True} for step in batch.steps])
    assert part.done
    assert order == ["b", "a", "a", "b", "c"]


def test_throttle_lets_few_hosts_at_a_time():
    world = World("- hosts: all\n  gather_facts: false\n  tasks:\n  - {command: x, throttle: 1}\n")
    from rm.playbook.run.conduct import Part

    part = Part(world.plays[0], list("abc"), world.states, world.shelf, world.options)
    for name in "abc":
        ((host, batch),) = part.ready()
        assert host == name
        part.record(name, [{"id": batch.steps[0].id, "changed": True}])
    assert list(part.ready()) == []
    assert part.done


def test_start_at_a_task_and_secrets_never_travel_for_debug():
    tasks = "  - {name: one, command: a}\n  - {name: two, command: b}\n  - {name: three, command: c}\n"
    assert [w for _, w in play(tasks, start_at="tw*", hosts=("a",)).log] == ["b", "c"]
    assert play("  - {debug: {msg: x}}\n  - {set_fact: {y: 1}}\n", hosts=("a",)).log == []


def test_a_failure_before_a_task_that_waits_for_all_goes_to_its_rescue_first():
    tasks = """\
  - block:
    - {name: breaks, command: "false"}
    rescue:
    - {name: saved, command: saving}
  - {command: once, run_once: true}
"""
    world = play(tasks, answer=lambda host, step: {"failed": step.args["argv"] == ["false"]})
    assert [what for _, what in world.log][3:] == ["saving"] * 3 + ["once"]


@pytest.mark.parametrize("word", ["nobody", "{{ 'no' }}body"])
def test_the_run_ends_for_all_where_a_changed_task_notifies_nobody(word):
    tasks = f"""\
  - {{command: calm, changed_when: false, notify: "{word}"}}
  - block:
    - {{name: speaks, command: "do", notify: [real, "{word}"], when: {ONE}, ignore_errors: true}}
    - {{command: never}}
    rescue:
    - {{command: never}}
    always:
    - {{command: never}}
  handlers:
  - {{name: real, command: never}}
"""
    world = play(tasks, head="  force_handlers: true\n")
    done = sorted(said for said in world.log if said[1] != "never")
    assert done == [("a", "calm"), ("b", "calm"), ("b", "do"), ("c", "calm")]
    if word == "nobody":  # which the text says: nobody runs ahead
        assert len(world.log) == 4
        assert all(state.failed for state in world.states.values())
    assert world.results["b"][-1].message.startswith("It changed something and notifies 'nobody'")
    assert world.states["b"].failed
    assert ("b", "never") not in world.log


def test_a_notification_that_nobody_hears_changes_nothing_where_the_setting_allows_it():
    tasks = "  - {command: x, notify: nobody}\n  - command: after\n"
    world = World("- hosts: all\n  gather_facts: false\n  tasks:\n" + tasks, hosts=("a",))
    world.plays = tuple(replace(one, error_on_missing_handler=False) for one in world.plays)
    assert world.run().told() == ["command: changed", "command: changed"]


def test_an_item_that_cannot_be_compiled_has_failed_and_the_others_are_done():
    tasks = """\
  - {command: "echo {{ item.x }}", loop: [{x: 1}, {}, {x: 3}], register: r, ignore_errors: true}
  - debug: {msg: "{{ r.results | map(attribute='failed') | list }} {{ r.msg }}"}
"""
    world = play(tasks, hosts=("a",))
    assert world.log == [("a", "echo 1"), ("a", "echo 3")]
    assert world.told()[-1] == "debug: [False, True, False] One or more items failed"


def test_the_first_hosts_are_at_work_while_steps_are_compiled_for_the_others():
    from rm.playbook.run.conduct import Part

    task = "template: {src: '{{ inventory_hostname }}', dest: /x}"
    files = {f"templates/{name}": name for name in "abc"}
    world = World(f"- hosts: all\n  gather_facts: false\n  tasks:\n  - {task}\n", files=files)
    read, shelf_read = [], world.shelf.read
    world.shelf.read = lambda path, decrypt=True: read.append(path[-1]) or shelf_read(path, decrypt)
    begun = []
    for name, _ in Part(world.plays[0], list("abc"), world.states, world.shelf, world.options).ready():
        begun.append((name, "".join(dict.fromkeys(read))))
    assert begun == [("a", "a"), ("b", "ab"), ("c", "abc")]
