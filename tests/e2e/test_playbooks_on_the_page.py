"""Playbooks that the daemon runs on real hosts: survey, report, secrets, an end in the middle, cron."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rm.errors import Forbidden, NotFound, UsageError
from tests.cluster import Cluster, until

pytestmark = pytest.mark.lab

SECRET, SEALED = "hunter2-of-the-page", "sesame-in-a-variable"
SITE = f"""# Says hello
- name: Greet
  hosts: all
  gather_facts: false
  vars:
    sealed: {SEALED}
  vars_prompt:
    - name: password
      prompt: The password
    - name: place
      prompt: Where
      private: false
      default: /tmp/of-the-page
  tasks:
    - name: A file
      copy:
        dest: "{{{{ place }}}}"
        content: "hello {{{{ name }}}}\\n"
    - name: Show {{{{ name }}}}
      command: echo {{{{ password }}}} to {{{{ name }}}}
    - name: Hidden
      command: echo {{{{ sealed }}}}
      no_log: true
    - name: Only where it fails
      command: "false"
      when: inventory_hostname == fails_on
"""
SURVEY = """name: {description: Whom to greet, choices: [world, moon], default: world}
fails_on: {description: The host that fails, default: nobody}
"""
SLOW = """- hosts: all
  gather_facts: false
  vars_prompt:
    - {name: password, default: nothing}
  tasks:
    - name: Begin
      command: touch /tmp/begun
    - name: Wait
      command: sleep 600
    - name: Never
      command: touch /tmp/never
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("playbooks")
    for name, text in (("site.yml", SITE), ("site.survey.yml", SURVEY), ("slow.yml", SLOW)):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def playing(make_cluster: Any, folder: Path) -> Cluster:
    settings = {"playbooks": {"directory": str(folder), "shipped": ["drain"]}}
    return make_cluster(settings, zones=1, hosts=2)


def over(cluster: Cluster, run: int) -> Any:
    def ended() -> Any:
        told = cluster.client.get("playbook-runs", run)["run"]
        return told if told["ended_us"] else None

    return until(ended, f"run {run} is over")


def start(cluster: Cluster, name: str, **body: Any) -> int:
    return int(cluster.client.post("playbooks", name, "start", body=body)["run"]["id"])


def outcomes(cluster: Cluster, run: int, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.client.get("playbook-runs", run, "outcomes", **query)["outcomes"]
    return found


def test_a_run_with_its_survey_and_a_report_without_secrets(playing: Cluster) -> None:
    listed = playing.client.get("playbooks")["playbooks"]
    assert listed == [
        {"name": "drain", "about": listed[0]["about"]},
        {"name": "site", "about": "Says hello"},
        {"name": "slow", "about": ""},
    ]
    asked = playing.client.get("playbooks", "site")["questions"]
    assert [(one["name"], one["private"], one["default"]) for one in asked] == [
        ("password", True, None), ("place", False, "/tmp/of-the-page"), ("name", False, "world"),
        ("fails_on", False, "nobody"),
    ]  # fmt: skip
    hosts = [host.name for host in playing.lab.hosts]
    answers = {"password": SECRET, "name": "moon", "fails_on": hosts[1]}
    run = start(playing, "site", answers=answers)
    told = over(playing, run)
    assert (told["state"], told["by"], told["private"]) == ("failed", "root", ["password"])
    assert told["answers"] == {"name": "moon", "fails_on": hosts[1]}
    assert told["recap"][hosts[0]] | {"ok": 3, "changed": 3, "skipped": 1} == told["recap"][hosts[0]]
    assert told["recap"][hosts[1]]["failed"] == 1
    found = outcomes(playing, run, host=hosts[0])
    assert [(one["task"], one["status"]) for one in found] == [
        ("A file", "changed"), ("Show moon", "changed"), ("Hidden", "changed"),
        ("Only where it fails", "skipped"),
    ]  # fmt: skip
    assert "+hello moon" in found[0]["diffs"][0]
    assert found[1]["output"] == "******** to moon"
    assert found[2]["output"] == ""
    assert all(0 < one["took_us"] < 60_000_000 for one in found[:3])
    bad = outcomes(playing, run, status="failed,unreachable")
    assert [(one["host"], one["task"]) for one in bad] == [(hosts[1], "Only where it fails")]
    for name in hosts:
        assert playing.read(name, "/tmp/of-the-page") == "hello moon\n"
    report = playing.rmx("playbook", "report", run)
    assert "+hello moon" in report
    assert "(private)" in report
    listed_runs = playing.rmx("playbook", "runs")
    assert "site" in listed_runs
    for text in (report, listed_runs, json.dumps(told), json.dumps(outcomes(playing, run))):
        assert SECRET not in text
        assert SEALED not in text
    state = sqlite3.connect(playing.directory / "state" / "rm.sqlite3")
    whole = "\n".join(state.iterdump())
    assert SECRET not in whole
    assert SEALED not in whole
    acts = [one for one in playing.client.get("audit")["acts"] if one["verb"] == "start_playbook"]
    assert (acts[-1]["user"], acts[-1]["target"], acts[-1]["outcome"]) == ("root", "playbook site", "done")


def test_what_is_refused_before_a_host_is_touched(playing: Cluster, folder: Path) -> None:
    for name in ("other", "..%2Fsite", "site.yml", "%2Fetc%2Fpasswd", "site.survey"):
        with pytest.raises((NotFound, UsageError)):
            playing.client.get("playbooks", name)
    for body, said in (
        ({"answers": {"password": "abc"}}, "4 characters"),
        ({"answers": {"password": "{{ lookup('pipe', 'id') }}"}}, "template"),
        ({"answers": {"password": SECRET, "place": "#jinja2: trim_blocks: true\nx"}}, "template"),
        ({"answers": {"password": SECRET, "ansible_host": "x"}}, "nobody asks for"),
        ({"answers": {"password": SECRET, "name": "mars"}}, "one of its choices: world, moon"),
        ({"answers": {}}, "needs an answer"),
        ({"answers": {"password": SECRET}, "limit": "@/etc/shadow"}, "no pattern"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            start(playing, "site", **body)
        assert SECRET not in str(caught.value)
    (folder / "loose.yml").write_text("- hosts: all\n")
    (folder / "loose.yml").chmod(0o666)
    (folder / "away.yml").symlink_to("/etc/hostname")
    try:
        with pytest.raises(Forbidden, match="may write"):
            playing.client.get("playbooks", "loose")
        with pytest.raises(NotFound):
            playing.client.get("playbooks", "away")
    finally:
        (folder / "loose.yml").unlink()
        (folder / "away.yml").unlink()


def begun(cluster: Cluster, run: int) -> dict[str, Any]:
    def at_it() -> Any:
        told = cluster.client.get("playbook-runs", run)
        doing = {name: one["task"] for name, one in told["doing"].items()}
        return told if set(doing.values()) == {"Wait"} or "Begin" in str(doing) else None

    until(at_it, "the hosts are at it")
    host = cluster.lab.hosts[0].name
    until(lambda: cluster.alive(host, "sleep 600"), "the host sleeps")
    told: dict[str, Any] = cluster.client.get("playbook-runs", run)
    return told


def test_a_run_is_stopped_and_another_waits_for_it(playing: Cluster) -> None:
    first, second = start(playing, "slow", answers={"password": SECRET}), start(playing, "slow")
    told = begun(playing, first)
    assert told["run"]["state"] == "running"
    assert playing.client.get("playbook-runs", second)["run"]["state"] == "waiting"
    (worker,) = workers(playing)
    for of_it in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{worker}/{of_it}").read_bytes()
    playing.client.post("playbook-runs", second, "stop")
    assert over(playing, second)["message"] == "root stopped it before it began."
    playing.client.post("playbook-runs", first, "stop")
    told = over(playing, first)
    assert told["state"] == "interrupted"
    assert told["message"].startswith("root stopped it.")
    assert {one["task"] for one in outcomes(playing, first)} <= {"Begin"}


def words_of(path: Path) -> bytes:
    """A process's command line; none where it has ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def workers(cluster: Cluster) -> list[int]:
    """The processes of its runs: those of other tests' clusters are not among them."""
    mine = str(cluster.directory).encode()
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"playbook\0work" in (words := words_of(path)) and mine in words
    ]


def test_a_run_takes_a_host_out_of_the_queue(playing: Cluster) -> None:
    host = playing.lab.hosts[0].name
    answers = json.dumps({"rm_burn_in": False, "rm_reason": "new disk"})
    words = ("playbook", "start", "drain", "--limit", host, "-e", "rm_return=no", "--answers", "-", "--json")
    told = over(playing, json.loads(playing.rmx(*words, input=answers))["run"])
    assert told["state"] == "ok", told["message"]
    assert "new disk" in playing.host_state(host, "DRAINED")["reason"]
    assert playing.host_state(playing.lab.hosts[1].name, "UP")
    playing.rmx("host", "resume", host)
    playing.host_state(host, "UP")


def test_a_killed_daemon_leaves_an_interrupted_run_with_a_sentence(playing: Cluster) -> None:
    run = start(playing, "slow")
    begun(playing, run)
    assert workers(playing)
    playing.kill()
    until(lambda: not workers(playing), "the process of the run has ended with its daemon")
    playing.start()
    told = over(playing, run)
    assert told["state"] == "interrupted"
    assert "The daemon ended while the playbook ran" in told["message"]
    for host in playing.lab.hosts:
        assert playing.lab.exec(host.name, ["test", "-e", "/tmp/never"]).returncode != 0


def test_a_schedule_begins_runs_and_keeps_no_private_answers(playing: Cluster) -> None:
    client = playing.client
    with pytest.raises(UsageError, match="private answers password"):
        client.post(
            "playbook-schedules",
            body={"playbook": "site", "cron": "* * * * *", "answers": {"password": SECRET}},
        )
    with pytest.raises(UsageError, match="cron"):
        client.post("playbook-schedules", body={"playbook": "slow", "cron": "every day"})
    made = client.post("playbook-schedules", body={"playbook": "slow", "cron": "* * * * *", "check": True})[
        "schedule"
    ]
    assert made["next_us"]

    def ran() -> Any:
        one = client.get("playbook-schedules")["schedules"][0]
        return one if one["last_run"] else None

    told = until(ran, "the schedule began a run", 90)
    run = over(playing, told["last_run"])
    assert (run["schedule"], run["by"], run["options"]["check"]) == (made["id"], "root", True)
    client.delete("playbook-schedules", made["id"])
    assert client.get("playbook-schedules")["schedules"] == []
    acts = [one for one in client.get("audit")["acts"] if one["via"] == "schedule"]
    assert acts[-1]["target"] == "playbook slow"


SHELL = """- name: Of a shell
  hosts: all
  gather_facts: false
  tasks:
    - name: A file
      copy: {dest: /tmp/of-the-shell, content: "hello {{ name }}\\n"}
    - name: Show
      command: echo {{ ansible_become_password }} to {{ name }}
      changed_when: false
    - name: Only where it fails
      command: "false"
      when: inventory_hostname == fails_on
"""


def test_a_run_in_a_shell_is_recorded_with_its_report_and_without_secrets(
    playing: Cluster, tmp_path: Path
) -> None:
    file, hosts = tmp_path / "shell.yml", [host.name for host in playing.lab.hosts]
    file.write_text(SHELL)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(f"ansible_become_password: {SEALED}\n")
    argv = ("playbook", "run", file, "-e", "name=moon", "-e", f"fails_on={hosts[1]}", "--diff")
    before = len(playing.client.get("playbook-runs")["runs"])
    assert playing.run(*argv).returncode == 2
    runs = playing.client.get("playbook-runs")["runs"]
    assert len(runs) == before + 1
    run = runs[0]["id"]
    told = over(playing, run)
    assert (told["playbook"], told["by"], told["state"], told["told"]) == (str(file), "root", "failed", True)
    assert (told["private"], told["answers"]) == (["fails_on", "name"], {})
    assert (told["recap"][hosts[0]]["changed"], told["recap"][hosts[1]]["failed"]) == (1, 1)
    found = outcomes(playing, run, host=hosts[0])
    assert [(one["task"], one["status"]) for one in found] == [
        ("A file", "changed"), ("Show", "ok"), ("Only where it fails", "skipped"),
    ]  # fmt: skip
    assert "+hello moon" in found[0]["diffs"][0]
    assert found[1]["output"] == "******** to moon"
    assert SEALED not in json.dumps(outcomes(playing, run))
    assert f"{file}, failed, by root" in playing.rmx("playbook", "report", run)
    assert playing.run(*argv, "--no-record").returncode == 2
    assert playing.client.get("playbook-runs")["runs"][0]["id"] == run
    acts = [one["verb"] for one in playing.client.get("audit")["acts"]]
    assert "tell_playbook" in acts
    assert "tell_progress" not in acts
