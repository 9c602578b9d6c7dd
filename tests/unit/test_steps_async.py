"""`timeout`, `async` with `poll: 0`, and `async_status`: on this machine, through the public runner."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.run import run_playbook
from rm.core.model.host import Host
from rm.errors import UsageError
from tests.cluster import until

HEAD = "- hosts: all\n  gather_facts: false\n  tasks:\n"


@pytest.fixture
def play(tmp_path):
    def run(tasks, **options):
        (tmp_path / "site.yml").write_text(HEAD + tasks)
        here = Host("here", "z", "here", variables=(("ansible_connection", "local"),))
        report = run_playbook(
            tmp_path / "site.yml", [here], SshSettings(known_hosts=tmp_path / "none"), **options
        )
        return [(one.task, one.status, one.message) for one in report.results["here"]], report

    return run


def running(word: str) -> list[Path]:
    """The processes with this word in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in file.read_bytes().split(b"\0"):
                found.append(file)
    return found


def test_a_step_that_takes_too_long_is_broken_off(play, tmp_path):
    told, report = play(
        f"""
    - name: long
      command: sh -c 'while :; do sleep 1; done' {tmp_path}/long
      timeout: 3
      ignore_errors: true
      register: long
    - assert: {{that: "long.timedout.period == 3"}}
    - name: short
      command: "true"
      timeout: "{{{{ 300 }}}}"
"""
    )
    assert told[0] == ("long", "failed", "Timed out after 3 second(s).")
    assert [status for _, status, _ in told[1:]] == ["ok", "changed"]
    assert report.ok
    until(lambda: not running(f"{tmp_path}/long"), "its process is gone, however far it came")


def test_a_step_in_the_background_is_asked_for_later(play, tmp_path):
    os.mkfifo(tmp_path / "go")
    told, report = play(
        f"""
    - name: begin
      command: cat {tmp_path}/go
      async: 60
      poll: 0
      register: job
    - name: look
      async_status: {{jid: "{{{{ job.ansible_job_id }}}}"}}
      register: look
    - assert: {{that: [job.started, job is changed, not job.finished, not look.finished]}}
    - name: let it go
      shell: echo hello > {tmp_path}/go
    - name: wait
      async_status: {{jid: "{{{{ job.ansible_job_id }}}}"}}
      register: done
      until: done.finished
      retries: 600
      delay: 0.1
    - assert: {{that: [done.stdout == 'hello', done.rc == 0, done is changed]}}
    - name: forget
      async_status: {{jid: "{{{{ job.ansible_job_id }}}}", mode: cleanup}}
    - name: gone
      async_status: {{jid: "{{{{ job.ansible_job_id }}}}"}}
      ignore_errors: true
"""
    )
    assert report.ok, report.failures()
    assert told[-1][1:] == ("failed", "could not find job")
    assert [status for task, status, _ in told if task in ("begin", "look", "wait")] == [
        "changed",
        "ok",
        "changed",
    ]


def test_the_background_has_a_limit_and_failures_arrive(play):
    told, _ = play(
        """
    - {command: sleep 300, async: 1, poll: 0, register: slow}
    - {command: "false", async: 60, poll: 0, register: bad}
    - async_status: {jid: "{{ item }}"}
      loop: ["{{ slow.ansible_job_id }}", "{{ bad.ansible_job_id }}"]
      register: asked
      until: asked.finished
      retries: 600
      delay: 0.1
      ignore_errors: true
    - debug: {msg: "{{ asked.results | map(attribute='msg') }}"}
"""
    )
    assert "Timed out after 1 second(s)." in told[-1][2]
    assert "non-zero return code" in told[-1][2]


def test_check_mode_starts_nothing(play, tmp_path):
    told, _ = play(f"    - {{command: touch {tmp_path}/x, async: 60, poll: 0}}\n", check=True)
    assert told[0][2].startswith("might run")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "task",
    ["{debug: {msg: x}, async: 9, poll: 0}", "{pause: {seconds: 1}, timeout: 9}", "{ping: , timeout: soon}"],
)
def test_what_cannot_be_is_said_before_anything_runs(play, task):
    with pytest.raises(UsageError, match=r"site\.yml:4: '(async|timeout)'"):
        play(f"    - {task}\n")


def test_no_number_that_a_host_says_ends_the_run(play):
    """Numbers without end, or none, ended the run of all hosts with a defect."""
    tasks = []
    for number in ("1e999", "nan", "1e300", "9" * 5000):
        for word in ("timeout", "async", "throttle", "retries", "delay"):
            more = "\n      until: false\n      retries: 1" if word == "delay" else ""
            more = "\n      until: false\n      delay: 0" if word == "retries" else more
            tasks.append(
                f"    - command: 'true'\n      {word}: '{{{{ out.stdout }}}}'{more}\n"
                f"      ignore_errors: true\n      vars: {{out: {{stdout: '{number}'}}}}\n"
            )
    told, _ = play("".join(tasks))
    assert {status for _, status, _ in told} == {"failed"}
    assert all("number" in message for _, _, message in told), told
