"""The hosts of a run and the ways to them: who may say where a host is, and what a lost way leaves."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.channel import StepsChannel
from rm.adapters.playbook.hosts import Ways
from rm.adapters.playbook.local import LocalSteps
from rm.adapters.playbook.program import PART_BYTES, OutcomeUnknown, in_parts
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.run import Report, run_playbook
from rm.core.model.host import Host
from rm.errors import Unreachable, UsageError
from rm.playbook.model.steps import Batch, TaskResult
from tests.steps_request import step

HOSTS = (Host("one", "z", "10.0.0.1"), Host("two", "z", "10.0.0.2"))
MOVED = {"add_host": {"host_name": "two", "host_vars": {"ansible_host": "10.0.0.66"}, "groups": ["odd"]}}
JOINED = {"add_group": "odd", "parent_groups": ["all"]}


def adopted(module: str, result: dict[str, Any]) -> Roster:
    roster = Roster(HOSTS, {}, {}, "")
    roster.adopt(TaskResult("one", "play", "task", module, "changed", result=result))
    return roster


@pytest.mark.parametrize("module", ["add_host", "ansible.builtin.add_host"])
def test_a_task_can_say_where_a_host_is(module: str) -> None:
    roster = adopted(module, {"results": [MOVED]})
    assert roster.connection_of("two")["ansible_host"] == "10.0.0.66"
    assert roster.groups["odd"] == ("two",)
    assert adopted("group_by", JOINED).groups["odd"] == ("one",)


@pytest.mark.parametrize("result", [MOVED, {"results": [MOVED]}, JOINED], ids=["host", "loop", "group"])
@pytest.mark.parametrize("module", ["command", "lab.net.add_host", "lab.net.group_by"])
def test_a_hosts_answer_cannot(module: str, result: dict[str, Any]) -> None:
    roster = adopted(module, result)
    assert roster.connection_of("two")["ansible_host"] == "10.0.0.2"
    assert "odd" not in roster.groups


EVIL = "{{ lookup('pipe', 'echo evil') }}"


def test_what_a_task_says_of_a_host_is_no_template(tmp_path: Path) -> None:
    moved = {"host_name": "new", "host_vars": {"ansible_host": EVIL, "said": EVIL}, "groups": [EVIL]}
    roster = adopted("add_host", {"add_host": moved})
    assert roster.connection_of("new")["ansible_host"] == EVIL
    playbook = tmp_path / "site.yml"
    playbook.write_text(f"""\
- hosts: localhost
  gather_facts: false
  tasks:
  - command: cat {tmp_path}/said
    register: out
  - add_host: {{name: new, groups: later, ansible_connection: local, said: "{{{{ out.stdout }}}}"}}
- hosts: later
  gather_facts: false
  tasks:
  - group_by: {{key: "{{{{ said }}}}"}}
  - debug: {{msg: "{{{{ said }}}} {{{{ group_names | last }}}} {{{{ hostvars.new.said }}}}"}}
""")
    (tmp_path / "said").write_text(EVIL)
    report = run_playbook(playbook, [], SshSettings(tmp_path / "known_hosts"))
    assert report.ok
    assert report.results["new"][-1].message == f"{EVIL} {EVIL.replace(' ', '-')} {EVIL}"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("serial: '{{ nosuch }}'", "'nosuch' is undefined"),
        ("serial: two", "not a number or a percentage"),
        ("max_fail_percentage: '{{ nosuch }}'", "'nosuch' is undefined"),
    ],
)
def test_a_later_play_that_is_wrong_is_told_before_the_first_begins(
    tmp_path: Path, word: str, said: str
) -> None:
    play = "- hosts: localhost\n  gather_facts: false\n"
    first = f"  tasks:\n  - file: {{path: {tmp_path}/touched, state: touch}}\n"
    (tmp_path / "site.yml").write_text(f"{play}{first}{play}  {word}\n  tasks:\n  - ping:\n")
    with pytest.raises(UsageError, match=said):
        run_playbook(tmp_path / "site.yml", [], SshSettings(tmp_path / "known_hosts"))
    assert not (tmp_path / "touched").exists()


def ways(variables: dict[str, Any]) -> Ways:
    hosts = {host.name: host for host in HOSTS}
    return Ways(
        hosts, SshSettings(Path("known_hosts")), None, lambda name: variables, lambda name, way: Passwords()
    )


def test_the_variables_say_where_to_connect() -> None:
    given = {"ansible_host": "10.0.0.9", "ansible_port": "2222", "ansible_user": "ada"}
    assert ways(given).host("one") == Host("one", "z", "10.0.0.9", 2222, "ada")
    for port in ("abc", 0, 70_000):
        with pytest.raises(UsageError, match="ansible_port of host 'one'"):
            ways({"ansible_port": port}).host("one")


def send(way: Ways, module: str, **args: Any) -> dict[str, Any]:
    request = {"steps": [step(1, module, **args)], "check": False, "diff": False, "planned": {}}
    result: dict[str, Any] = way.send("one", Batch((), False), request)["results"][0]
    return result


def test_steps_on_this_machine_end_with_a_sentence_when_they_are_closed_or_killed() -> None:
    ping = {"steps": [step(1, "ping")], "check": False, "diff": False, "planned": {}}
    closed = LocalSteps("here", sys.executable, False)
    closed.close()
    closed.close()
    with pytest.raises(Unreachable, match="here, on this machine, ended"):
        closed.steps(ping)
    half = "import sys\nf = sys.stdin.buffer\nf.read(int(f.readline()))\nf.readline()\nprint('{', end='')"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rm.adapters.playbook.local.LOADER", half)
        killed = LocalSteps("here", sys.executable, False)
    try:
        with pytest.raises(Unreachable, match="here, on this machine, ended"):
            killed.steps(ping)
    finally:
        killed.close()


PATIENCE_S = 30.0  # for what would otherwise never end


def limited(size_bytes: int) -> dict[str, Any]:
    """A request of some length, whose step has a time limit."""
    steps = [{**step(1, "ping", data="x" * size_bytes), "timeout": 0.1}]
    return {"steps": steps, "check": False, "diff": False, "planned": {}}


def raised_by(
    steps: StepsChannel | LocalSteps, request: dict[str, Any], part_bytes: int = PART_BYTES
) -> list[BaseException]:
    """What asking raises, if it ends at all; contents longer than `part_bytes` travel in parts."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            in_parts(request, steps.steps, part_bytes=part_bytes)
        except BaseException as problem:
            raised.append(problem)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return raised


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StepsChannel, socket.socket]]:
    """The channel to a host, and the host's end of it."""
    here, there = socket.socketpair()
    monkeypatch.setattr("rm.adapters.playbook.channel.ssh.connect", lambda *_: Mock())
    monkeypatch.setattr("rm.adapters.playbook.channel.ssh.open_channel", lambda *_: here)
    with here, there:
        steps = StepsChannel(HOSTS[0], SshSettings(Path("none")), False)
        with steps.lines:
            yield steps, there


def test_a_host_that_takes_no_more_of_a_request_is_given_up_after_the_time_limits(
    talk: tuple[StepsChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.adapters.playbook.program.GRACE_S", 0.2)
    (problem,) = raised_by(talk[0], limited(4 << 20))
    assert isinstance(problem, OutcomeUnknown)
    assert problem.what.startswith("Host one did not end steps within their time limits, nor 0.2 s later")


def test_a_login_script_may_print_before_the_first_answer_and_nothing_between_two(
    talk: tuple[StepsChannel, socket.socket],
) -> None:
    steps, there = talk
    answer = b'{"ok": true, "result": {"results": [], "planned": {}}}\n'
    there.sendall(b'WELCOME\n[1]\n{"maintenance": "on Sunday"}\n' + answer + b"Mind the gap\n")
    assert steps.steps(limited(1)) == {"results": [], "planned": {}}
    (problem,) = raised_by(steps, limited(1))
    assert isinstance(problem, Unreachable)
    assert problem.what == "Host one returns something other than step results: 'Mind the gap'."


@pytest.mark.parametrize("size_bytes", [1, 4 << 20], ids=["reading", "writing"])
@pytest.mark.parametrize("killable", [True, False])
def test_a_stopped_process_of_this_machine_is_given_up_after_the_time_limits(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int, killable: bool
) -> None:
    monkeypatch.setattr("rm.adapters.playbook.program.GRACE_S", 0.2)
    local = LocalSteps("here", sys.executable, False)
    process: Any = local.process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            if not killable:  # as sudo's
                patch.setattr(process, "kill", Mock(side_effect=PermissionError))
                patch.setattr("rm.adapters.playbook.local.KILLED_S", 0.2)
            (problem,) = raised_by(local, limited(size_bytes))
            local.close()
        assert isinstance(problem, OutcomeUnknown)
        assert problem.what.startswith("Host here did not end steps within their time limits")
        assert process.poll() == (-signal.SIGKILL if killable else None)
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                stream.close()
        process.wait()


def test_a_process_stopped_while_a_long_content_travels_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.adapters.playbook.program.GRACE_S", 0.2)
    monkeypatch.setattr("rm.adapters.playbook.program.PART_S", 0.1)
    local = LocalSteps("here", sys.executable, False)
    process: Any = local.process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        # the task itself has no time limit
        copy = step(1, "copy", dest="/dev/null/never", content=os.urandom(1_000).hex())
        request = {"steps": [copy], "check": False, "diff": False, "planned": {}}
        (problem,) = raised_by(local, request, part_bytes=100)
        assert isinstance(problem, OutcomeUnknown)
        assert problem.what.startswith("Host here did not end steps within their time limits")
    finally:
        process.kill()
        local.close()


def test_a_connection_is_closed_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, channel = Mock(), Mock()
    inside: list[str] = []
    most: list[int] = []
    both = threading.Event()

    def close() -> None:
        inside.append("")
        most.append(len(inside))
        if len(inside) > 1:
            both.set()
        both.wait(0.1)  # so long another thread may come in, if any can
        inside.pop()

    connection.close = close
    monkeypatch.setattr("rm.adapters.playbook.channel.ssh.connect", lambda *_: connection)
    monkeypatch.setattr("rm.adapters.playbook.channel.ssh.open_channel", lambda *_: channel)
    steps = StepsChannel(HOSTS[0], SshSettings(Path("none")), False)
    threads = [threading.Thread(target=steps.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1]


def test_a_host_that_moves_in_the_middle_of_a_play_is_asked_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def channel(host: Host, *_: Any) -> Mock:
        made.append(f"{host.login}@{host.address}:{host.port}")
        return Mock(steps=Mock(return_value={"results": [{"id": 1, "where": made[-1]}], "planned": {}}))

    monkeypatch.setattr("rm.adapters.playbook.channel.StepsChannel", channel)
    given: dict[str, Any] = {}
    way = ways(given)
    said = [send(way, "ping")["where"]]
    for name, value in (("ansible_host", "10.0.0.66"), ("ansible_port", 2222), ("ansible_user", "ada")):
        given[name] = value
        said += [send(way, "ping")["where"] for _ in range(2)]
    places = ["root@10.0.0.1:22", "root@10.0.0.66:22", "root@10.0.0.66:2222", "ada@10.0.0.66:2222"]
    assert said == [places[0], *(place for place in places[1:] for _ in range(2))]
    assert made == places


def test_a_lost_way_is_forgotten_and_an_ended_run_opens_none() -> None:
    way = ways({"ansible_connection": "local"})
    try:
        assert send(way, "ping")["ping"] == "pong"
        with pytest.raises(Unreachable):
            send(way, "shell", _raw="kill -9 $PPID")
        assert send(way, "ping")["ping"] == "pong"
    finally:
        way.close()
    with pytest.raises(Unreachable, match="ended"):
        send(way, "ping")


PLAY = "- hosts: {}\n  gather_facts: false\n  vars: {{goal: {}}}\n  tasks: [{{{}}}]\n"
NEAR_AND_FAR = [Host(name, "z", name) for name in ("near", "far")]


def report_of(site: Path, **given: Any) -> Report:
    """Of a run with the hosts of NEAR_AND_FAR, which are this machine."""
    inventory = {host.name: {"ansible_connection": "local"} for host in NEAR_AND_FAR}
    settings = SshSettings(known_hosts=site.parent / "none")
    return run_playbook(site, NEAR_AND_FAR, settings, inventory=inventory, **given)


def ran(report: Report) -> list[tuple[str, str]]:
    return [(host, one.module) for host, found in report.results.items() for one in found]


def test_hosts_by_a_template_are_known_when_the_play_begins(tmp_path: Path) -> None:
    """What is set while the run goes on counts."""
    site = tmp_path / "site.yml"
    first = PLAY.format("near", "x", "set_fact: {goals: [far, near]}")
    site.write_text(first + PLAY.format('"{{ hostvars.near.goals | first }}"', "x", "debug: {msg: x}"))
    assert ran(report_of(site)) == [("near", "set_fact"), ("far", "debug")]


@pytest.mark.parametrize("later", ["{}", "{first: far}", "{first: localhost}", "{first: [near, far]}"])
def test_a_play_keeps_the_hosts_with_which_it_begins_part_by_part(tmp_path: Path, later: str) -> None:
    """`hosts` is a template that gives something else, or nothing, once the first part is over."""
    site = tmp_path / "site.yml"
    site.write_text(f"""\
- hosts: near
  gather_facts: false
  tasks: [{{set_fact: {{goals: {{first: [far, near]}}}}}}]
- hosts: "{{{{ hostvars.near.goals.first }}}}"
  gather_facts: false
  serial: 1
  order: reverse_inventory
  tasks:
  - debug: {{msg: "{{{{ [ansible_play_hosts_all, ansible_play_hosts, ansible_play_batch] }}}}"}}
  - set_fact: {{goals: {later}}}
""")
    report = report_of(site)
    assert report.ok
    said = {host: next(one.message for one in found if one.module == "debug")
            for host, found in report.results.items()}  # fmt: skip
    assert said == {
        "near": "[['far', 'near'], ['far', 'near'], ['near']]",
        "far": "[['far', 'near'], ['far', 'near'], ['far']]",
    }


@pytest.mark.parametrize(
    ("task", "hosts", "goal"),
    [
        ("set_fact: {home: localhost}", "{{ hostvars.near.home }}", ""),
        ("set_fact: {home: localhost}", "{{ goal }}", "{{ hostvars.near.home }}"),
        ("set_fact: {home: localhost}", "{{ goal[0] }}", "{{ [vars['host' ~ 'vars'].near.home] }}"),
        ("set_fact: {home: localhost}", "{{ goal }}", "{{ lookup('vars', 'hostvars').near.home }}"),
        ("set_fact: {home: localhost}", "{{ goal | default('far') }}", "{{ hostvars.near.home }}"),
        ("add_host: {name: localhost.x, groups: made}", "{{ goal }}", "{{ groups.made[0][:9] }}"),
        ("group_by: {key: localhost}", "{{ groups | last }}", ""),
    ],
    ids=["plain", "variable", "vars", "lookup", "default", "host", "group"],
)  # fmt: skip
def test_what_hosts_say_names_the_control_machine_in_no_way(
    tmp_path: Path, task: str, hosts: str, goal: str
) -> None:
    site = tmp_path / "site.yml"
    touched = f"file: {{path: {tmp_path}/touched, state: touch}}"
    site.write_text(PLAY.format("near", "x", task) + PLAY.format(f'"{hosts}"', f'"{goal}"', touched))
    with pytest.raises(UsageError, match="names the control machine"):
        report_of(site)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("hosts", "goal", "given"),
    [
        ("{{ target | default('localhost') }}", "", {}),
        ("{{ target | default('far') }}", "", {"target": "localhost"}),
        ("{{ target }}", "", {"target": "{{ goal }}", "goal": "localhost"}),
        ("{{ goal }}", "localhost", {}),
        ("{{ groups.nosuch | default(['localhost']) }}", "", {}),
    ],
    ids=["default", "extra", "extra template", "variable", "no group"],
)
def test_a_template_of_the_playbook_or_the_command_line_names_the_control_machine(
    tmp_path: Path, hosts: str, goal: str, given: dict[str, Any]
) -> None:
    site = tmp_path / "site.yml"
    first = PLAY.format("near", "x", "set_fact: {home: far}")
    site.write_text(first + PLAY.format(f'"{hosts}"', f'"{goal}"', "debug: {msg: x}"))
    assert ran(report_of(site, variables=given)) == [("near", "set_fact"), ("localhost", "debug")]
