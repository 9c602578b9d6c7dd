"""What hosts answer: facts that their module declares and nothing else, and never an end of the whole run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.adapters.playbook.control import Hands, carry_out
from rm.adapters.playbook.roster import Roster
from rm.core.model.host import Host
from rm.playbook.facts import gather
from rm.playbook.model.connection import is_reserved
from rm.playbook.modules import registry
from tests.examples import examples, try_each
from tests.steps_request import step
from tests.unit.playbook_world import World, play
from tests.unit.test_playbook_facts import RAW

EVIL = "-oProxyCommand=touch /tmp/pwned #"


def said(world: World, host: str = "a") -> list[str]:
    return [result.message for result in world.results[host] if result.module == "debug"]


@pytest.mark.parametrize("module", ["command: x", "authorized_key: {user: root, key: k}", "service_facts:"])
@pytest.mark.parametrize("fact", ["ansible_user", "conf_file", "rm_account", "hostvars", "services2"])
def test_facts_come_only_from_modules_that_declare_them(module: str, fact: str) -> None:
    tasks = f"""\
  - {module}
  - debug: {{msg: "{{{{ {fact} | default('unset') }}}}"}}
"""
    lie = {"ansible_facts": {fact: EVIL}}
    world = play(tasks, hosts=("a", "b"), answer=lambda host, step: lie if host == "a" else {},
                 inventory={"a": {"ansible_user": "rm", "conf_file": "normal.conf"}})  # fmt: skip
    failed = world.results["a"][0]
    assert failed.status == "failed"
    assert f"does not provide: {fact}" in failed.message
    assert EVIL not in str(world.states["a"].facts)
    assert [result.status for result in world.results["b"]] == ["changed", "ok"]  # others go on


@pytest.mark.parametrize(
    "interface", ["host", "user", "connection", "become_user", "ssh_args", "python_interpreter", "password"]
)
def test_no_interface_is_named_into_a_variable_that_says_how_to_reach_a_host(interface: str) -> None:
    lie = json.dumps([{"ifname": interface, "flags": ["UP"], "addr_info": []}])
    tasks = f"""\
  - setup:
  - debug: {{msg: "{{{{ ansible_{interface} | default('unset') }}}}"}}
  - debug: {{msg: "{{{{ ansible_facts['{interface}'].device }}}}"}}
"""
    world = play(tasks, hosts=("a",), answer=lambda host, step: {"raw_facts": {**RAW, "addresses": lie}})
    unset = "ssh" if interface == "connection" else "unset"
    assert said(world) == [unset, interface]  # it is a fact all the same, as under Ansible


@pytest.mark.parametrize("found", [True, False])
def test_what_a_host_says_of_itself_to_the_daemon_is_no_template(found: bool) -> None:
    """Neither by its own name, nor through other variables, nor for other hosts: an interface that the
    inventory declares may be one."""
    tasks = """\
  - debug: {msg: "{{ rm_interface }}"}
  - debug: {msg: "{{ mine }}"}
  - debug: {msg: "{{ hostvars['a'].rm_interface }}"}
  - debug: {msg: "{{ rm_interface }} {{ rm_cpus }}"}
    delegate_to: b
"""
    world = World("- hosts: all\n  gather_facts: false\n  tasks:\n" + tasks, hosts=("a", "b"))
    said_by = Host(
        "a", "z", "a", cpus=8, interface="{{ 6 * 7 }}", found=("interface", "cpus") if found else ()
    )
    written = {"a": {"mine": "{{ rm_interface }}"}, "b": {"mine": ""}}
    world.states = Roster([said_by, Host("b", "z", "b", cpus=8)], {}, written, "").states
    world.run()
    told = "{{ 6 * 7 }}" if found else "42"
    assert said(world) == [told, told, told, f"{told} 8"]
    assert said(world, "b")[2] == told


def test_a_fact_never_replaces_a_variable_that_was_written() -> None:
    tasks = """\
  - service_facts:
    ignore_errors: true
  - debug: {msg: "{{ services }}"}
"""
    brought = {"ansible_facts": {"services": {"cron": "on"}}}
    world = play(tasks, hosts=("a", "b"), answer=lambda host, step: brought,
                 inventory={"a": {"services": "web"}})  # fmt: skip
    assert said(world) == ["web"]
    assert "A host cannot replace a variable" in world.results["a"][0].message
    assert said(world, "b") == [str({"cron": "on"})]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\nb"])
@pytest.mark.parametrize("key", ["hostname", "fqdn"])
def test_a_name_that_a_host_gives_itself_leads_to_no_file(key: str, name: str) -> None:
    world = play("  - setup:\n", hosts=("a",), answer=lambda host, step: {"raw_facts": {**RAW, key: name}})
    assert world.results["a"][0].status == "failed"
    assert "which is not a name" in world.results["a"][0].message


def test_honest_facts_are_registered_as_ansible_names_them() -> None:
    tasks = """\
  - setup:
    register: out
  - debug: {msg: "{{ out.ansible_facts.ansible_hostname }} {{ ansible_hostname }}"}
  - getent: {database: passwd}
  - debug: {msg: "{{ getent_passwd.root }}"}
  - hostname: {name: new.example.org}
  - debug: {msg: "{{ ansible_hostname }} {{ ansible_facts.domain }}"}
"""
    answers: dict[str, dict[str, Any]] = {
        "setup": {"raw_facts": RAW},
        "getent": {"ansible_facts": {"getent_passwd": {"root": "0"}}},
        "hostname": {"ansible_facts": {"ansible_hostname": "new", "ansible_domain": "example.org"}},
    }
    world = play(tasks, hosts=("a",), answer=lambda host, step: answers[step.op])
    assert said(world) == ["gpu01 gpu01", "0", "new example.org"]


@pytest.mark.parametrize("value", [None, 5, "x", [], {"x": []}, [[1]]])
def test_facts_without_what_is_expected_fail_their_host_alone(value: Any) -> None:
    try_each(sorted(RAW), lambda missing: fails_its_host_alone(missing, value))


def fails_its_host_alone(missing: str, value: Any) -> None:
    raw = {**RAW, missing: value}
    if value is None:
        del raw[missing]

    def answer(host: str, step: Any) -> dict[str, Any]:
        return {"raw_facts": raw if host == "a" else RAW}

    world = play("  - setup:\n  - command: x\n", hosts=("a", "b"), answer=answer)
    assert world.results["b"][-1].status == "changed"
    first = world.results["a"][0]
    assert first.status in ("changed", "failed")
    assert first.status == "changed" or first.message.startswith("The host ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["changed", "failed", "skipped", "might_run", "msg", "diff", "ansible_facts", "raw_facts", "results",
     "stdout", "stderr", "rc", "included_vars", "nodes", "include", "uncompiled", "attempts", "add_host"]
)  # fmt: skip
TASKS = """\
  - setup:
    ignore_errors: true
  - service_facts:
    ignore_errors: true
  - {command: x, register: out, until: out.rc == 0, retries: 1, delay: 0, ignore_errors: true}
  - {command: y, loop: [1, 2], register: all, ignore_errors: true, changed_when: all.rc != 1}
  - {stat: {path: /x}, ignore_errors: true}
  - {command: z, delegate_to: b, delegate_facts: true, ignore_errors: true}
  - debug: {msg: reached}
"""


@settings(max_examples=examples(150))
@given(st.lists(st.dictionaries(KEYS, JSON, max_size=5), min_size=6, max_size=6))
def test_no_answer_of_a_host_ends_the_run(lies: list[dict[str, Any]]) -> None:
    told = iter(lies * 20)
    world = World("- hosts: all\n  gather_facts: false\n  tasks:\n" + TASKS, ("a", "b"),
                  answer=lambda host, step: next(told) if host == "a" else {"ansible_facts": {}})  # fmt: skip
    world.run()
    assert world.results["b"][-1].message == "reached"
    assert world.results["a"]


def hands(answer: Any, module: str, check: bool = False, **args: Any) -> dict[str, Any]:
    """A step of the control machine with a host whose every answer is `answer`."""
    one = {**step(1, module, **args), "check": check}
    request: dict[str, Any] = {"steps": [one], "check": check, "diff": False, "planned": {"paths": []}}
    host = Host("a", "z", "10.0.0.1")
    found = carry_out(Hands(host, request, lambda name, asked: {"results": answer}, lambda: None, (host,),
                            threading.Event()))  # fmt: skip
    result: dict[str, Any] = found["results"][0]
    return result


PART = {"size": 4, "checksum": "x", "data": "AAAA"}


@pytest.mark.parametrize(
    "answer",
    [[], None, [5], [{}], [{"data": 5}], [{**PART, "size": -1}], [{**PART, "size": "many"}],
     [{**PART, "size": 1.5}], [{**PART, "checksum": None}], [{**PART, "data": "?"}],
     [{**PART, "size": 1 << 62}], [{"failed": True}]],
)  # fmt: skip
def test_a_fetch_that_is_answered_wrongly_fails(tmp_path: Path, answer: Any) -> None:
    for check in (False, True):
        given: dict[str, Any] = {"src": "/etc/hosts", "dest": f"{tmp_path}/got", "_directory": str(tmp_path)}
        found = hands(answer, "fetch", check, **given)
        assert check or (found["failed"] and found["msg"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["/etc/ho\0sts", "/etc/\ud800"])
def test_a_name_that_a_host_found_and_no_file_can_have_fails_its_fetch_alone(
    tmp_path: Path, name: str
) -> None:
    """It ended the run of all hosts."""
    given: dict[str, Any] = {"src": name, "dest": f"{tmp_path}/got/", "_directory": str(tmp_path)}
    found = hands([{**PART, "size": 3}], "fetch", **given)
    assert found["failed"]
    assert "'fetch' cannot be done so" in found["msg"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("answer", [[], [5], [{}], [{"boot_id": 7}], [{"boot_id": []}]])
def test_a_restart_that_is_answered_wrongly_fails(answer: Any) -> None:
    assert "boot id" in hands(answer, "reboot")["msg"]


def test_reserved_names_are_those_of_the_runner_and_of_the_ways_to_hosts() -> None:
    reserved = [
        "ansible_user",
        "ansible_become_password",
        "rm_interface",
        "ansible_python_interpreter",
        "groups",
    ]
    assert all(map(is_reserved, reserved))
    facts = {f"ansible_{name}" for name in gather(RAW)} | {"services", "packages", "getent_passwd"}
    assert not any(map(is_reserved, facts))
    roster = Roster([Host("one", "z", "10.0.0.1")], {}, {}, "")
    written = {name for name in roster.states["one"].inventory if name.startswith(("ansible_", "rm_"))}
    assert all(map(is_reserved, written))


def test_every_declared_fact_is_a_name_that_a_host_may_give() -> None:
    declared = {name for module in registry().values() for name in getattr(module, "FACTS", ())}
    assert declared
    assert not any(map(is_reserved, declared))


@pytest.mark.parametrize(
    ("number", "said"),
    [(float("nan"), "answers with NaN"), (1 << 70, "answers with a number beyond 64 bits")],
)
def test_a_number_that_is_none_or_too_large_fails_its_task(number, said):
    world = play("  - command: x\n", answer=lambda host, step: {"x": number})
    assert all(said in world.results[host][-1].message for host in "abc")
