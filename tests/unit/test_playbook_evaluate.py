"""Compiling and evaluating: batches, registered results, loops, handlers, conditions; no host needed."""

import base64
import itertools
import json
import zlib

import pytest

from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.program import GRACE_S, answers_within_s
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import Task
from rm.playbook.model.tags import selected
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.evaluate import HostPlay, HostState, Options


class Files:
    def __init__(self, files):
        self.files = files

    def read(self, path, decrypt=True):
        if path not in self.files:
            raise BadArgument(f"the local file {path} cannot be read")
        return self.files[path].encode()

    def glob(self, pattern):
        return sorted(p for p in self.files if p.startswith(pattern.rstrip("*")) and "*" in pattern)

    def exists(self, path):
        return path in self.files


def play(tasks, head="", files=None, inventory=None, answer=None, **options):
    """Run a play against `answer(step) -> dict`; returns (results, batches of steps, host)."""
    text = "- hosts: all\n  gather_facts: false\n" + head + "  tasks:\n" + tasks
    parsed = parse_playbook(text, "/p/p.yml").plays[0]
    host = HostState("h1", inventory or {})
    shelf = files if hasattr(files, "read") else Files(files or {})
    run = HostPlay(parsed, host, shelf, Options("/p", **options))
    batches = []
    while (batch := run.next_batch()) is not None:
        batches.append([step.wire() for step in batch.steps])
        answers, stop = [], None
        for step in batch.steps:  # as the executor does it
            if stop not in (None, step.task):
                break
            said = {"changed": True, **(answer(step) if answer else {}), "id": step.id}
            if step.op == "note":
                said = {"id": step.id, "failed": step.args.get("failed", False)}
            answers.append(said)
            if said.get("failed") and not step.ignore_errors:
                stop = step.task
        run.record(answers)
        assert len(batches) < 50
    return run.results, batches, host


def test_steps_with_time_limits_only_are_a_batch_which_can_be_waited_for_no_longer():
    tasks = "".join(f"  - command: {word}\n{limit}" for word, limit in [
        ("a", ""), ("b", "    timeout: 5\n"), ("c", "    timeout: 7\n"), ("d", ""),
    ])  # fmt: skip
    _, batches, _ = play(tasks)
    assert [[step.get("timeout") for step in batch] for batch in batches] == [[None], [5, 7], [None]]
    assert [answers_within_s({"steps": batch}) for batch in batches] == [None, 12 + GRACE_S, None]


def content(step):
    return zlib.decompress(base64.b64decode(step["args"]["content"])).decode()


def test_a_text_with_backslashes_and_a_template_keeps_the_newline_at_its_end():
    for text in ("a {{ 7 }}", r"\d {{ 7 }}", r"{{ 7 }} {{ '\d' }}", r"{{ 7 ~ '\d' }}"):
        said = text.replace("{{ 7 }}", "7").replace(r"{{ '\d' }}", r"\d").replace(r"{{ 7 ~ '\d' }}", r"7\d")
        for ends in ("", "\n", "\n\n"):
            tasks = f"  - copy: {{dest: /x, content: {json.dumps(text + ends)}}}\n"
            _, [[step]], _ = play(tasks)
            assert content(step) == said + ends


@pytest.mark.parametrize(("verbosity", "shown"), [(0, "skipped"), (1, "ok"), (2, "ok")])
def test_debug_is_shown_from_its_verbosity_on(verbosity, shown):
    tasks = "  - {debug: {msg: hi, verbosity: 1}, register: r}\n  - debug: {msg: '{{ r }}'}\n"
    results, _, _ = play(tasks, magic={"ansible_verbosity": verbosity})
    assert results[0].status == shown
    said = (
        {"msg": "hi"}
        if shown == "ok"
        else {"skipped": True, "skipped_reason": "Verbosity threshold not met."}
    )
    assert results[1].result["msg"] == {"changed": False, "failed": False, **said}


def test_independent_tasks_travel_in_one_batch():
    results, batches, _ = play("  - command: a\n  - file: {path: /x, state: touch}\n  - shell: b | c\n")
    assert [[step["op"] for step in batch] for batch in batches] == [["command", "file", "command"]]
    assert [r.status for r in results] == ["changed"] * 3


def test_a_registered_result_splits_the_batch_where_it_is_needed():
    tasks = """\
  - command: uname
    register: kernel
  - file: {path: /x, state: touch}
  - copy: {content: "{{ kernel.stdout }}", dest: /y}
  - command: never
    when: kernel.stdout == 'other'
"""
    results, batches, _ = play(tasks, answer=lambda step: {"stdout": "Linux {{ 1 }}"})
    assert [[step["op"] for step in batch] for batch in batches] == [["command", "file"], ["copy"]]
    assert content(batches[1][0]) == "Linux {{ 1 }}"  # what a host says is never a template
    assert [r.status for r in results] == ["changed", "changed", "changed", "skipped"]


def test_compiling_is_pure():
    tasks = "  - template: {src: t.j2, dest: /t}\n"
    tasks += "  - copy: {content: '{{ x }}', dest: '/{{ item }}'}\n    loop: [a, b]\n"
    head = "  vars: {x: '{{ inventory_hostname }}'}\n"
    once = play(tasks, head, {"/p/t.j2": "{% for i in range(2) %}\n{{ i }}{{ x }}\n{% endfor %}\n"})[1]
    again = play(tasks, head, {"/p/t.j2": "{% for i in range(2) %}\n{{ i }}{{ x }}\n{% endfor %}\n"})[1]
    assert once == again
    assert content(once[0][0]) == "0h1\n1h1\n"
    assert [step["args"]["dest"] for step in once[0]] == ["/t", "/a", "/b"]


def test_loop_results_are_registered_and_a_failed_item_fails_the_task_after_the_others():
    tasks = """\
  - command: "run {{ item.name }} {{ n }}"
    loop: [{name: a}, {name: b, skip: true}, {name: c}, {name: d}]
    loop_control: {label: "{{ item.name }}", index_var: n}
    when: item.skip is not defined
    register: all
    ignore_errors: true
  - debug: {msg: "{{ all.results | map(attribute='item.name') | join(' ') }} {{ all.results[2].failed }}"}
"""

    def answer(step):
        return {"failed": "c" in step.args.get("argv", ())}

    results, batches, host = play(tasks, answer=answer)
    assert [step["args"]["argv"] for step in batches[0]] == [["run", x, n] for x, n in ("a0", "c2", "d3")]
    assert (results[0].status, results[0].ignored) == ("failed", True)
    assert [item[:2] for item in results[0].items] == [
        ("a", "changed"), ("b", "skipped"), ("c", "failed"), ("d", "changed"),
    ]  # fmt: skip
    assert results[1].message == "a b c d True"
    assert not host.failed


@pytest.mark.parametrize(
    ("task", "keys"),
    [  # as in ansible-core 2.19: what is skipped does not say that it did not fail
        ("- {command: x, when: false, register: r}", "changed false_condition skip_reason skipped"),
        ("- {command: x, loop: [1, 2], when: false, register: r}", "changed msg results skipped"),
        ("- {command: x, loop: [], register: r}", "changed results skipped skipped_reason"),
        ("- {command: x, loop: [1, 2], when: item == 1, register: r}", "changed failed msg results skipped"),
    ],
)
def test_what_a_skipped_task_registers(task, keys):
    results, _, _ = play(f"  {task}\n  - debug: {{msg: \"{{{{ r.keys() | sort | join(' ') }}}}\"}}\n")
    assert results[-1].message == keys


@pytest.mark.parametrize(
    ("loop", "items"),
    [
        ("loop: '{{ range(2) }}'", "is a range"),
        ("with_items: ['{{ range(2) }}']", "is a range"),
        ("loop: '{{ range(2) | list }}'", ["0", "1"]),
        ("with_together: ['{{ range(2) }}', '{{ range(5, 7) }}']", ["[0, 5]", "[1, 6]"]),
        ("with_nested: ['{{ range(2) }}', [3]]", ["[0, 3]", "[1, 3]"]),
    ],
)
def test_a_range_is_a_list_where_ansible_takes_it_as_one(loop, items):
    results, _, _ = play(f"  - debug: {{msg: '{{{{ item }}}}'}}\n    {loop}\n")
    (result,) = results
    if isinstance(items, str):
        assert items in result.message
    else:
        assert [label for label, _, _ in result.items] == items


def test_handlers_run_once_in_their_order_and_only_when_notified():
    head = """\
  handlers:
  - name: first
    command: one
  - name: second
    listen: topic
    command: two
  - name: unused
    command: three
"""
    tasks = """\
  - file: {path: /a, state: touch}
    notify: topic
  - file: {path: /b, state: touch}
    notify: [first, topic]
  - file: {path: /c, state: directory}
    notify: unused
"""
    results, batches, _ = play(tasks, head, answer=lambda step: {"changed": step.args.get("path") != "/c"})
    assert [[s["args"].get("argv", s["args"].get("path")) for s in b] for b in batches] == [
        ["/a", "/b", "/c"], [["one"], ["two"]],
    ]  # fmt: skip
    assert [r.task for r in results if r.handler] == ["first", "second"]


def test_a_failure_stops_the_host_and_later_tasks_are_not_reported():
    results, _, host = play(
        "  - command: a\n  - command: b\n  - command: c\n",
        answer=lambda s: {"failed": s.args["argv"] == ["b"]},
    )
    assert [r.status for r in results] == ["changed", "failed"]
    assert host.failed


def test_failed_when_and_changed_when_decide():
    tasks = """\
  - command: a
    register: r
    failed_when: r.rc > 1
    changed_when: "'new' in r.stdout"
  - command: b
    failed_when: false
  - command: c
    register: r
    failed_when: [r.rc == 1, "r.stdout == ''"]
"""
    results, batches, _ = play(tasks, answer=lambda s: {"rc": 1, "stdout": "", "failed": True})
    assert [r.status for r in results] == ["ok", "changed", "failed"]
    assert [len(b) for b in batches] == [1, 2]


def test_variables_by_precedence_and_lazily():
    tasks = "  - debug: {msg: '{{ a }} {{ b }} {{ c }} {{ d }}'}\n    vars: {b: task, a: task}\n"
    head = "  vars: {a: play, b: play, c: '{{ e }}', e: lazy, d: play}\n"
    results, _, _ = play(tasks, head, inventory={"d": "inventory"}, extra={"a": "extra"})
    assert results[0].message == "extra task lazy play"


def test_set_fact_assert_fail_and_omit():
    tasks = """\
  - set_fact: {n: "{{ [1, 2] | length }}"}
  - assert: {that: [n == 2, "n is not string"]}
  - file: {path: /x, state: touch, mode: "{{ mode | default(omit) }}"}
  - fail: {msg: "stop at {{ n }}"}
    when: n == 2
"""
    results, batches, host = play(tasks)
    assert [r.status for r in results] == ["ok", "ok", "changed", "failed"]
    assert results[-1].message == "stop at 2"
    assert batches[0][0]["args"]["mode"] is None
    assert host.failed


def test_what_is_omitted_drops_out_of_lists_and_mappings():
    tasks = """\
  - set_fact:
      n: {a: "{{ omit }}", b: [1, "{{ omit }}", {c: "{{ omit }}"}], d: "{{ {'e': omit, 'f': [omit]} }}"}
  - debug: {msg: "{{ n }}"}
"""
    assert play(tasks)[0][1].message == "{'b': [1, {}], 'd': {'f': []}}"


def test_a_rescue_knows_the_failed_task_s_arguments():
    tasks = """\
  - block:
    - command: "false {{ word }}"
      args: {chdir: /tmp}
    rescue:
    - debug: {msg: "{{ ansible_failed_task.args }}"}
"""
    results, _, _ = play(tasks, "  vars: {word: w}\n", answer=lambda s: {"rc": 1, "failed": True})
    assert results[1].message == "{'chdir': '/tmp', '_raw_params': 'false w'}"


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("command: '{{ nope }}'", "'nope' is undefined"),
        ("command: ls\n    when: text", "not true or false"),
        ("template: {src: none.j2, dest: /x}", "none.j2"),
        ("command: ls\n    loop: '{{ text }}'", "needs a list"),
        ("debug: {msg: '{{ loop1 }}'}", "loop1 > loop2 > loop1"),
    ],
)
def test_what_cannot_be_compiled_fails_on_the_host_with_a_sentence(task, says):
    head = "  vars: {text: 'no', loop1: '{{ loop2 }}', loop2: '{{ loop1 }}'}\n"
    results, batches, host = play(f"  - command: first\n  - {task}\n", head)
    assert [r.status for r in results] == ["changed", "failed"]
    assert says in results[1].message
    assert host.failed
    assert len(batches[0]) == 1


def test_no_log_hides_the_result_but_keeps_it_for_later_tasks():
    tasks = "  - command: echo s3cret\n    no_log: true\n    register: s\n  - command: 'use {{ s.stdout }}'\n"
    results, batches, _ = play(tasks, answer=lambda s: {"stdout": "s3cret", "diff": ["s3cret"]})
    assert "s3cret" not in repr(results[0])
    assert batches[1][0]["args"]["argv"] == ["use", "s3cret"]


def test_tags_choose_tasks():
    tags = {"a": "x", "b": "[y, x]", "c": "[]", "d": "always", "e": "never"}
    tasks = "".join(f"  - command: {name}\n    tags: {words}\n" for name, words in tags.items())

    def ran(**options):
        return "".join(step["args"]["argv"][0] for batch in play(tasks, **options)[1] for step in batch)

    assert ran() == "abcd"
    assert ran(tags=("x",)) == "abd"
    assert ran(tags=("never",)) == "de"
    assert ran(skip_tags=("y",)) == "acd"
    assert ran(tags=("untagged",)) == "cd"


def test_tags_choose_what_ansible_chooses():
    from ansible.playbook.taggable import Taggable  # loads all of ansible-core

    words = ("x", "always", "never", "untagged")
    sets = [tuple(c) for size in range(4) for c in itertools.combinations(words, size)]
    options = ("x", "y", "all", "tagged", "never", "untagged", "always")
    asked = [tuple(c) for size in range(3) for c in itertools.combinations(options, size)]

    class Theirs(Taggable):
        _loader = None

        def __init__(self, tags):
            self.tags = list(tags)

        def _get_all_taggable_objects(self):
            return []

    for tags, only, skip in itertools.product(sets, asked, asked):
        task = Task("a", "command", {}, 1, tags=tags)
        theirs = Theirs(tags).evaluate_tags(only or ("all",), skip, {})
        assert selected(task, only, skip) is theirs, (tags, only, skip)


def test_facts_arrive_with_the_first_batch_that_needs_none():
    text = "- hosts: all\n  tasks:\n  - command: a\n  - debug: {msg: '{{ ansible_distribution }}'}\n"
    host = HostState("h1", {})
    run = HostPlay(parse_playbook(text, "p.yml").plays[0], host, Files({}), Options("/p"))
    first = run.next_batch()
    assert [step.op for step in first.steps] == ["setup", "command"]
    raw = {
        "uname": ["Linux", "h1", "6.1", "#1", "x86_64"], "hostname": "h1", "python_version": [3, 11, 2],
        "os_release": 'ID=rocky\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.3"\n',
        "cpus": 8, "cpus_usable": 4,
        "meminfo": "MemTotal:       16384 kB\n", "python_executable": "/usr/bin/python3", "user": "root",
        "uid": 0, "home": "/root",
        "addresses": '[{"ifname":"eth0","flags":["UP"],"address":"02:00:00:00:00:01","mtu":1500,'
        '"addr_info":[{"family":"inet","local":"10.0.0.2","prefixlen":24}]}]',
        "routes": '[{"dst":"default","gateway":"10.0.0.1","dev":"eth0"}]',
    }  # fmt: skip
    run.record([{"id": 0, "raw_facts": raw}, {"id": 1, "changed": True}])
    assert run.next_batch().steps == ()
    assert run.record([])[0].message == "Rocky"
    facts = host.facts
    assert (facts["os_family"], facts["distribution_major_version"], facts["pkg_mgr"]) == (
        "RedHat",
        "9",
        "dnf",
    )
    assert (facts["memtotal_mb"], facts["processor_vcpus"]) == (16, 8)
    assert facts["default_ipv4"]["address"] == "10.0.0.2"
    assert facts["default_ipv4"]["netmask"] == "255.255.255.0"
    assert run.next_batch() is None


def test_a_name_that_takes_work_is_found_only_for_who_asks():
    asked = []
    late = {"rm_version": lambda: asked.append(1) or "1.2"}
    play("  - command: a\n  - command: b\n    when: rm_agents is defined\n", late=late)
    assert not asked
    _, batches, _ = play('  - copy: {content: "{{ rm_version }}", dest: /y}\n', late=late)
    assert asked
    assert content(batches[0][0]) == "1.2"
    _, batches, _ = play(
        '  - copy: {content: "{{ v }}", dest: /y}\n    vars: {v: "{{ rm_version }}"}\n', late=late
    )
    assert content(batches[0][0]) == "1.2"


@pytest.mark.parametrize(
    "task",
    [
        "debug: {msg: '{{ {}[word].x }}'}",
        "command: ls\n    when: word",
        "command: ls\n    loop: '{{ word }}'",
        "copy: {content: x, dest: /x, mode: '{{ word }}'}",
        "command: ls\n    timeout: '{{ word }}'",
    ],
)
@pytest.mark.parametrize("no_log", ["true", "'{{ hide }}'", "'{{ nobody_knows }}'"])
def test_no_log_hides_also_why_a_task_cannot_be_compiled(task, no_log):
    results, _, host = play(f"  - {task}\n    no_log: {no_log}\n", "  vars: {word: s3cret, hide: true}\n")
    assert (results[0].status, host.failed) == ("failed", True)
    assert "s3cret" not in repr(results)


def test_a_switch_that_a_host_s_text_decides_fails_that_host_s_task():
    tasks = "  - command: first\n    register: r\n  - command: ls\n    run_once: '{{ r.stdout }}'\n"
    results, _, host = play(tasks, answer=lambda s: {"stdout": "maybe"})
    assert ([r.status for r in results], host.failed) == (["changed", "failed"], True)
    assert "not true or false" in results[1].message


ODD = "\ud800"  # half of a character: JSON has it, UTF-8 does not


@pytest.mark.parametrize(
    "task",
    [
        "copy: {content: '{{ r.stdout }}', dest: /x}",
        "include_vars: {file: '{{ r.stdout }}'}",
        "command: ls\n    with_file: ['{{ r.stdout }}']",
        "command: ls\n    with_dict: '{{ r.stdout }}'",
        "command: ls\n    with_subelements: ['{{ r.stdout }}', x]",
        "command: ls\n    with_sequence: ['{{ r.stdout }}']",
        "command: ls\n    with_url: 'http://me:a/b@127.0.0.1:1/{{ r.stdout }}'",
        "include_tasks: '{{ r.stdout }}'",
        "template: {src: '{{ r.stdout }}', dest: /x}",
    ],
)
def test_a_host_s_text_that_is_no_unicode_fails_that_task(task):
    tasks = f"  - command: first\n    register: r\n  - {task}\n"
    results, _, host = play(tasks, answer=lambda s: {"stdout": ODD}, files=LocalFiles())
    assert [r.status for r in results] == ["changed", "failed"]
    assert host.failed


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("{type: dict}", "{[]: 1}"),
        ("{type: dict}", "{" + "[" * 5000),
        ("{type: list, elements: dict}", ["{[]: 1}"]),
        ("{type: int}", 1e999),
        ("{type: bytes}", "inf"),
        ("{choices: 5}", "x"),
        ("{type: dict, options: {a: {}}, required_if: [3]}", {"a": "x"}),
    ],
)
def test_what_fits_no_specification_fails_that_host_s_task(option, value):
    given = "provided_arguments: {a: '{{ it }}'}"
    task = f"  - validate_argument_spec: {{argument_spec: {{a: {option}}}, {given}}}\n"
    results, _, host = play(task, inventory={"it": value})
    assert ([r.status for r in results], host.failed) == (["failed"], True)


@pytest.mark.parametrize(
    ("told", "took_us"), [(70, 140), (-1, 0), ("7", 0), (True, 0), (1 << 60, 0), (1 << 50, 1 << 50)]
)
def test_the_time_of_steps_is_the_tasks_and_no_variable(told, took_us):
    tasks = "    - command: make {{ item }}\n      loop: [a, b]\n      register: made\n"
    results, _, host = play(tasks, answer=lambda step: {"took_us": told})
    assert results[0].took_us == took_us
    assert "took_us" not in str(results[0].result)
    assert "took_us" not in str(host.learnt["made"])


def test_one_template_gives_all_arguments_and_no_condition() -> None:
    tasks = """
  - command: "true"
    register: r
  - file: "{{ {'path': '/x', 'state': 'touch', 'mode': '0600'} }}"
    args: {mode: "0640"}
  - assert: "{{ {'that': r.stdout} }}"
"""
    results, batches, _ = play(tasks, answer=lambda step: {"stdout": "1 == 1"})
    (made,) = (step["args"] for batch in batches for step in batch if step["op"] == "file")
    assert (made["path"], made["state"], made["mode"]) == ("/x", "touch", 0o640)
    assert "'that' of 'assert' is a condition, which is written in the task" in results[-1].message


EVALUATED = "lookup('pipe', 'id')"  # what a host would have evaluated


@pytest.mark.parametrize(
    ("task", "stdout", "says"),
    [
        ("debug: '{{ r.stdout | from_json }}'", f'{{"var": "{EVALUATED}"}}', "'var' must name a variable"),
        (
            "{debug: , args: '{{ r.stdout | from_json }}'}",
            f'{{"var": "{EVALUATED}"}}',
            "must name a variable",
        ),
        (
            "{debug: '{{ {} }}', module_defaults: {debug: {var: '{{ r.stdout }}'}}}",
            EVALUATED,
            "'var' must name a variable",
        ),
        (
            "{assert: '{{ {} }}', module_defaults: {assert: {that: '{{ r.stdout }}'}}}",
            EVALUATED,
            "gave a text, where a condition is written",
        ),
        (
            "{validate_argument_spec: {argument_spec: {y: {choices: [k]}}}, vars: {y: '{{ r.stdout }}'}}",
            "{{ " + EVALUATED + " }}",
            "got: {{ " + EVALUATED,
        ),
        (
            "{command: x, vars: {ansible_become: '{{ r.stdout }}'}}",
            "{{ " + EVALUATED + " }}",
            "'ansible_become' gave \"{{ " + EVALUATED,
        ),
    ],
)
def test_no_host_s_text_is_evaluated(task: str, stdout: str, says: str) -> None:
    tasks = f"  - {{command: 'true', register: r}}\n  - {task}\n"
    results, _, _ = play(tasks, answer=lambda step: {"stdout": stdout})
    assert results[-1].status == "failed"
    assert says in results[-1].message


@pytest.mark.parametrize(
    "task",
    [
        "debug: \"{{ {'var': 'x.y'} }}\"",
        "{debug: '{{ {} }}', args: {var: x.y}}",
        "{debug: {var: '{{ name }}'}, vars: {name: x.y}}",
    ],
)
def test_debug_shows_the_variable_that_a_template_names(task: str) -> None:
    results, _, _ = play(f"  - {task}\n", inventory={"x": {"y": 7}})
    assert results[-1].message == "x.y: 7"
