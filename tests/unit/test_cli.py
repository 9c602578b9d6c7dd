"""The command line against the real HTTP API: output, exit codes, and sentences instead of tracebacks."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.cli.heartbeat import Heartbeat
from rm.cli.main import JOB_VERBS, VERBS, run
from rm.core.model.asked.array import Array
from tests.command_line import Rmx
from tests.fake_service import CARD, Daemon
from tests.fakes import PATIENCE_S


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["submit", "--wibble"], 2, "Unknown option --wibble (a flag)."),
        (["submit", "--network=x", "train.sh"], 2, "the job would do something else"),
        (["submit", "-n", "101", "train.sh"], 3, "The cluster has 2 hosts. Ask for less."),
        (["submit", "."], 2, "Is a directory"),
        (["sumbit"], 2, "Did you mean `rmx submit`?"),
        (["show", "99"], 4, "There is no job 99."),
        (["show", "x"], 2, "'x' is not a job id."),
        (["cancel"], 2, "No job is named."),
        (["cancel", "1,2.0"], 2, "'2.0' is a step, and this command cancels jobs. `scancel 2.0` ends a step"),
        (["cancel", "1", "--signal=NOPE"], 2, "There is no signal 'NOPE'."),
        (["queue", "--state=RUNING"], 2, "Did you mean 'RUNNING'?"),
        (["logs", "99"], 4, "There is no job 99."),
        (["resume", "h1"], 2, "'h1' is not a job id. Of a host: rmx host resume h1"),
        (["hold", "1,h1"], 2, "Of a host: rmx host drain h1"),
        (["release", "1x"], 2, "A job id is the number"),
        (["show", "h1"], 2, "Of a host: rmx host show h1"),
        (["host", "hold", "h1"], 2, "There is no command 'host hold'. Here it is: rmx host drain"),
        (["host", "release", "h1"], 2, "Here it is: rmx host resume"),
        (["host", "list"], 2, "Here it is: rmx hosts"),
        (["host", "resmue", "h1"], 2, "Did you mean `rmx host resume`?"),
        (["host", "wibble"], 2, "`rmx host --help` lists the commands."),
        (["host", "drain", "h9"], 4, "There is no host h9."),
        (["host", "drain", "-m", "disk", "h9"], 2, "No such option '-m'. Options: --host, --reason, --json;"),
        (
            ["qos", "add", "fast", "--usage-factor", "nan"],
            2,
            "'nan' is no finite number. Write a number from 0",
        ),
        (["host", "accept-key", "h1", "--fingerprint=SHA256:zzz"], 6, "another key"),
        (["--config", "/nonexistent", "config", "show"], 8, "cannot be read"),
    ],
)
def test_mistakes_are_sentences_with_documented_codes(
    daemon: Daemon, rmx: Rmx, words: list[str], code: int, sentence: str
) -> None:
    result = rmx(*words)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err
    documented = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert f"| {code} |" in documented


def test_no_daemon_is_told_with_how_to_start_one(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RM_DAEMON__SOCKET", raising=False)
    result = rmx("--socket", str(tmp_path / "none.sock"), "queue")
    assert result.code == 7
    assert "No daemon listens on" in result.err
    assert "rmx daemon" in result.err
    (tmp_path / "rm.toml").write_text(f"[daemon]\nsocket = '{tmp_path}/from-file.sock'\n")
    assert "from-file.sock" in rmx("--config", str(tmp_path / "rm.toml"), "queue").err
    (tmp_path / "rm.toml").write_text("[daemon\n")
    assert rmx("--config", str(tmp_path / "rm.toml"), "queue").code == 8


def test_a_defect_is_told_without_a_traceback(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.cli.jobs.queue.table", lambda *_, **__: 1 / 0)
    monkeypatch.delenv("RM_DEBUG", raising=False)
    result = rmx("queue")
    assert result.code == 70
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err


def test_queue_keeps_long_names_and_tames_hostile_ones(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "-J", "a-name-longer-than-eight-characters", "--wrap=true")
    rmx("submit", "-J", "red\x1b[31m", "--hold", "--wrap=true")
    daemon.service.run(1)
    listed = rmx("queue").out
    assert listed.splitlines()[0].split() == [
        "JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "GPUS", "TASKS", "HOSTS(REASON)",
    ]  # fmt: skip
    assert "a-name-longer-than-eight-characters" in listed
    assert "\x1b" not in listed
    assert [job["id"] for job in rmx("queue", "--json").json["jobs"]] == [1, 2]
    rmx("queue", "--me", "--state=PD", "--job-name=x", "--limit=3", "--all")
    _, states, user, name, limit, everything = daemon.service.log[-1]
    assert (states, bool(user), name, limit, everything) == ({"PENDING"}, True, "x", 4, True)


def test_no_name_in_json_steers_a_terminal(daemon: Daemon, rmx: Rmx) -> None:
    name = "a\u202egnp.exe\u2028\u009b31mré\x7f\U000e0041日"  # \u009b is an escape sequence's beginning, too
    rmx("submit", "-J", name, "--hold", "--wrap=true")
    for words in (("queue",), ("show", "1")):
        said = rmx(*words, "--json")
        assert said.out.removesuffix("\n").isprintable()
        assert "é" in said.out
        assert "日" in said.out
        shown = said.json["job"] if words[0] == "show" else said.json["jobs"][0]
        assert shown["spec"]["name"] == name


def test_of_very_many_cancelled_jobs_their_number_is_said(daemon: Daemon, rmx: Rmx) -> None:
    for _ in range(101):
        rmx("submit", "train.sh")
    assert rmx("cancel", "--job-name=train").out == "101 jobs are CANCELLED\n"


def test_of_a_named_array_only_elements_in_the_named_state_are_cancelled(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--array=0-5", "train.sh")
    daemon.service.put(1, array=Array(waiting="2-3", held="3", running="1", dropped="4-5"))
    rmx("submit", "train.sh")
    daemon.service.put(2, array_job=1, array_task=1)
    daemon.service.run(2)
    said = rmx("cancel", "1", "--state=PENDING")
    assert said.out.startswith("Job 1_[2-3] is "), said
    assert [what[1] for what in daemon.service.log if what[0] == "cancel"] == [1]
    assert not daemon.service.table[2].state.final
    assert rmx("cancel", "1", "--state=RUNNING").out == "Job 2 is CANCELLED\n"


def test_jobs_are_changed_one_by_one(daemon: Daemon, rmx: Rmx) -> None:
    for _ in range(3):
        rmx("submit", "train.sh")
    assert rmx("hold", "1").out == "Job 1 is held\n"
    assert daemon.service.table[1].held
    assert rmx("release", "--job=1").code == 0
    assert not daemon.service.table[1].held
    assert rmx("cancel", "1", "--signal=USR1").out == "Job 1 got signal 10\n"
    several = rmx("cancel", "2", "99", "3")
    assert (several.code, several.out) == (4, "Job 2 is CANCELLED\nJob 3 is CANCELLED\n")
    assert rmx("cancel", "2").code == 6
    assert [job["id"] for job in rmx("cancel", "--job-name=train", "--json").json["jobs"]] == [1]
    assert rmx("requeue", "1").out == "Job 1 is put back into the queue\n"


def test_hosts_and_their_administration(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    assert rmx("hosts").out.splitlines()[1].split() == [
        "h1",
        "z1",
        "UP",
        "6/8",
        "32/32",
        "GiB",
        "1/2",
        "1Gbps",
        "eth0",
        "1",
    ]
    shown = rmx("host", "show", "h1").out
    assert "Address:   root@h1.test:22" in shown
    assert "eth0       10.0.0.1  1Gbps  9000     1  mlx5_0       1" in shown
    assert rmx("host", "show", "nowhere").code == 4
    assert [host["name"] for host in rmx("hosts", "--zone=z2", "--json").json["hosts"]] == ["h2"]
    assert [host["name"] for host in rmx("hosts", "h[2,1]", "--json").json["hosts"]] == ["h2", "h1"]
    assert rmx("hosts", "h1", "--zone=z2").err.startswith("rmx: There is no host 'h1' in zone z2.")
    added = rmx(
        "host", "add", "h3", "--cpus=4", "--mem=8G", "--gpus=h100:2", "--bandwidth=10Gbps", "--partition=p"
    )
    assert added.code == 0
    host = daemon.service.inventory["h3"]
    assert (host.cpus, host.mem_bytes, len(host.gpus), host.nic_bps, host.partitions) == (
        4,
        2**33,
        2,
        10**10,
        ("p",),
    )
    assert rmx("host", "drain", "--host=h3", "--reason=cable").code == 0
    assert "cable" in rmx("hosts").out
    assert rmx("host", "resume", "h3").code == 0
    assert rmx("host", "add", "h4").out == "Host h4 is added.\n"
    assert rmx("host", "add", "h4").out == "Host h4 is already known, and updated.\n"
    before = daemon.service.inventory["h3"]
    rmx("host", "add", "h3", "--zone=z9", "--address=10.0.0.3", "--port=23", "--login=ops", "--feature=fast")
    rmx("host", "add", "h3", "--partition=q", "--partition=r")  # of what is not named nothing is changed
    changed = {"zone": "z9", "address": "10.0.0.3", "port": 23, "login": "ops", "features": ("fast",)}
    assert daemon.service.inventory["h3"] == replace(before, partitions=("q", "r"), **changed)
    both = rmx("host", "drain", "h[3-4]", "nowhere", "--reason=rack")
    assert both.code == 4
    assert both.out == "Host h3 takes no new jobs.\nHost h4 takes no new jobs.\n"
    assert "nowhere" in both.err
    assert rmx("host", "resume", "h3", "--host=h4").code == 0
    taken = rmx("host", "adopt", "h[3-4]", "nowhere", "--stop-jobs")
    assert (taken.code, taken.out.count("belongs to this cluster now.")) == (4, 2)
    assert [host["name"] for host in rmx("host", "adopt", "h3,h4", "--json").json["hosts"]] == ["h3", "h4"]
    assert rmx("host", "remove", "h3,h4").code == 0
    assert "No host is named" in rmx("host", "drain").err
    assert "presented: ssh-ed25519 SHA256:abc\npinned:    none" in rmx("host", "show-key", "h1").out
    assert rmx("host", "accept-key", "h1", "--fingerprint=SHA256:abc").code == 0
    (tmp_path / "hosts.ini").write_text("[gpu]\ng[1:2] ansible_host=10.0.0.1 rm_zone=east rm_cpus=2\n")
    assert rmx("host", "import", "hosts.ini").out == "2 hosts are added.\n"
    assert rmx("host", "import", "hosts.ini").out == "2 hosts are already known, and updated.\n"
    assert daemon.service.inventory["g2"].zone == "east"


def test_interfaces_as_fast_as_the_jobs_one_are_counted_as_rails(daemon: Daemon, rmx: Rmx) -> None:
    host = daemon.service.inventory["h1"]
    others = (replace(CARD, name="eth1"), replace(CARD, name="slow", speed_bps=CARD.speed_bps - 1))
    for nics, shown in (((CARD,), "eth0"), ((CARD, *others), "eth0 +1")):
        daemon.service.inventory["h1"] = replace(host, interface="eth0", nic_bps=CARD.speed_bps, nics=nics)
        (line,) = [line for line in rmx("hosts").out.splitlines() if line.startswith("h1")]
        assert re.search(rf" {re.escape(shown)}  ", line + "  ")
    assert re.search(r"^eth1 .* mlx5_0 ", rmx("host", "show", "h1").out, re.M)


def test_one_inventory_for_jobs_and_playbooks(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "[web]\ng1 rm_zone=east color='[\"red\", 1]' ansible_become_password=hunter2\n"
        "[rack]\n[rack:children]\nweb\n[rack:vars]\nrow=7\n"
    )
    told = rmx("host", "import", "hosts.ini")
    assert "ansible_become_password stay out of the database" in told.err
    assert "hunter2" not in str(daemon.service.inventory)
    rmx("host", "add", "g2", "--address=10.0.0.2", "--group=web")
    before = dict(daemon.service.inventory)
    for form in ("yaml", "ini"):
        assert "2 hosts" not in rmx("host", "export", f"--format={form}").out
        assert rmx("host", "export", f"--format={form}", "-o", f"again.{form}").code == 0
        assert (tmp_path / f"again.{form}").stat().st_mode & 0o077 == 0
        daemon.service.inventory.clear()
        assert rmx("host", "import", f"again.{form}").code == 0
        again = daemon.service.inventory
        assert [again[name] for name in ("g1", "g2")] == [before[name] for name in ("g1", "g2")]
        assert (again["h1"].zone, again["h1"].gpus) == (before["h1"].zone, before["h1"].gpus)
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    assert rmx("host", "export", "-o", "pipe").code == 0
    assert b"g1" in os.read(end, 1 << 16)
    os.close(end)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/web.yml").write_text("row: 1\ncolumn: 2\n")
    (tmp_path / "play.yml").write_text(
        "- hosts: rack:web\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "  - debug: {msg: '{{ rm_zone }} {{ color | default(0) }} {{ row }} {{ column }}'}\n"
    )
    ran = rmx("playbook", "run", "play.yml", "--json")
    results = json.loads(ran.out)["results"]
    assert {name: one[0]["message"] for name, one in results.items()} == {
        "g1": "east ['red', 1] 7 2",
        "g2": "default 0 1 2",
    }


def test_a_bare_word_is_a_playbook_that_comes_with_rm_whatever_lies_here(
    daemon: Daemon, rmx: Rmx, tmp_path: Path
) -> None:
    planted = (
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
        f"  - file: {{path: {tmp_path}/pwned, state: touch}}\n"
    )
    for name in ("drain", "drain.yml", "site"):
        (tmp_path / name).write_text(planted)
    told = rmx("playbook", "run", "drain", "--list-tasks")
    assert "Drain, and wait for the jobs" in told.out
    assert "the file drain here is ignored (./drain names it)" in told.err
    assert "the file drain.yml here is ignored" in told.err
    for named in ("./drain", "drain.yml", str(tmp_path / "site")):
        assert "Drain" not in rmx("playbook", "run", named, "--list-tasks").out
    refused = rmx("playbook", "run", "site")
    assert refused.code == 2
    assert "For the file here write ./site." in refused.err
    assert not (tmp_path / "pwned").exists()


def test_a_playbook_is_read_without_hosts(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    play = "- hosts: all\n  tasks:\n  - import_tasks: '{{ n }}.yml'\n"
    (tmp_path / "site.yml").write_text(play)
    (tmp_path / "one.yml").write_text("- file: {path: /nowhere/x, state: touch}\n")
    (tmp_path / "two.yml").write_text("- zork: {}\n")
    asked = ("playbook", "run", "./site.yml", "--syntax-check")
    told = rmx(*asked, "-e", "n=one", "-i", "/nowhere")
    assert (told.code, told.out) == (0, "\nplaybook: ./site.yml\n")
    for given, said in ((("-e", "n=two"), "two.yml:1: unknown module 'zork'"), ((), "'n' is undefined")):
        told = rmx(*asked, *given)
        assert told.code == 2
        assert said in told.err
        assert told.out == ""
    assert "rm sends a host many tasks at once" in rmx("playbook", "run", "./site.yml", "--step").err


@pytest.mark.parametrize("more", [[], ["--check"]])
@pytest.mark.parametrize("to", ["connection: local", "delegate_to: localhost"])
def test_no_playbook_restarts_the_machine_that_runs_it(
    daemon: Daemon, rmx: Rmx, tmp_path: Path, to: str, more: list[str]
) -> None:
    done = tmp_path / "done"
    given = f"reboot_command: touch {done}, boot_time_command: date +%N, test_command: 'true'"
    task = f"  - {to}\n    reboot: {{{given}}}\n"
    (tmp_path / "site.yml").write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n{task}")
    told = rmx("playbook", "run", "./site.yml", "-i", "gpu01,", "--no-record", *more)
    assert told.code == 2
    assert "reboot: Running reboot with local connection would reboot the control node." in told.err
    assert not done.exists()


@pytest.mark.parametrize(
    ("command", "asked", "said"),
    [
        (["network", "--measure"], "measure", "the pairs of hosts are measured"),
        (["cancel", "--job-name=train"], "cancel_all", "the jobs are cancelled"),
    ],
)
def test_a_request_that_takes_long_is_not_silent(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch, command: list[str], asked: str, said: str
) -> None:
    monkeypatch.setattr("rm.cli.heartbeat.EVERY_S", 0.0)
    monkeypatch.setattr("rm.cli.heartbeat.LOOK_S", 0.001)
    rmx("submit", "train.sh")
    spoken = threading.Event()
    beat, answer = Heartbeat.beat, getattr(daemon.service, asked)

    def beaten(self: Heartbeat) -> None:
        beat(self)
        spoken.set()

    async def slow(*given: Any) -> Any:
        assert await asyncio.to_thread(spoken.wait, PATIENCE_S)
        return await answer(*given)

    monkeypatch.setattr(Heartbeat, "beat", beaten)
    monkeypatch.setattr(daemon.service, asked, slow)
    assert said in rmx(*command).err


def test_network_links_and_status(daemon: Daemon, rmx: Rmx) -> None:
    assert rmx("links").out.splitlines()[1].split() == [
        "h1",
        "100Mbps",
        "1,2",
        "100",
        "200ms",
        "2:14/72",
        "12.5ms",
    ]
    measured = rmx("network", "--measure", "--pairs")
    assert "left out: h3, UNKNOWN: its agent has not answered yet" in measured.err
    assert measured.out.splitlines()[1].split() == [
        "h1",
        "h2",
        "0.5%",
        "350us",
        "94Mbps",
        "1m1s",
        "-",
    ]
    assert ("measure", None) in daemon.service.log
    told = rmx("status").out
    assert "jobs      PENDING 2" in told
    assert "agents    another version than this rm's on h[2-3]: run `rmx playbook run agents`\n" in told
    for verb in ("links", "network", "status"):
        assert rmx(verb, "--json").json["version"] == 1


def test_config_show_tells_the_origin(rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rm.toml").write_text("[jobs]\ngrace_s = 5\n")
    monkeypatch.setenv("RM_JOBS__RECENT_S", "7")
    text = rmx("--config", str(tmp_path / "rm.toml"), "config", "show", "--origin").out
    assert f"# {tmp_path}/rm.toml:2" in text
    assert "# RM_JOBS__RECENT_S" in text
    assert rmx("config", "show", "--json").json["config"]["jobs.recent_s"] == 7


def test_all_that_is_wrong_with_the_configuration_is_said_at_once(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rm.toml"
    file.write_text(
        "[policies]\nqueue = 'fivo'\n[alerts]\ndrain_on = ['fire']\n[monitor]\ntimezone = 'Mars/Olympus'\n"
        "[web]\nproxy_header = 'X-User'\n[hosts]\ninventory = '/nowhere.yml'\n"
        "[jobs]\nmail = 'pager'\n[daemon]\ndatabase = 'mysql://db/rm'\n"
    )
    told = rmx("--config", str(file), "config", "check")
    assert (told.code, told.out) == (8, "")
    words = (
        "Did you mean 'fifo'?", "there is no 'fire'", "Mars/Olympus", "proxy_addresses", "/nowhere.yml",
        "is 'pager': there is no", "neither a SQLite file nor PostgreSQL (mysql)",
    )  # fmt: skip
    assert len(told.err.splitlines()) == len(words)
    assert all(word in told.err for word in words)
    monkeypatch.setenv("RM_DAEMON__DATABASE", "postgresql://rm@db:port/rm")
    assert "The database's URL cannot be read" in rmx("--config", str(file), "config", "check").err
    monkeypatch.delenv("RM_DAEMON__DATABASE")
    assert len(rmx("--config", str(file), "config", "check", "--json").json["complaints"]) == len(words)
    shown = rmx("--config", str(file), "config", "show")
    assert shown.code == 0
    assert shown.err == told.err
    places = ("policies.queue", 2), ("alerts.drain_on", 4), ("monitor.timezone", 6), ("hosts.inventory", 10)
    assert all(f"{key} ({file}:{line})" in told.err for key, line in places)
    file.write_text("[[monitor.mesh]]\nname = 'm'\nschedule = '99 * * * *'\n")
    assert "99 * * * *" in rmx("--config", str(file), "config", "check").err
    shipped = Path(__file__).parents[2] / "rm.toml"
    assert rmx("--config", str(shipped), "config", "check") == (
        0,
        "Nothing is wrong with the configuration.\n",
        "",
    )


def test_every_verb_can_be_helped(rmx: Rmx) -> None:
    assert all(verb in rmx("--help").out for verb in VERBS)
    for verb in (*JOB_VERBS, "host", "daemon", "config", "shell-init"):
        result = rmx(verb, "--help")
        assert (result.code, "Usage: rmx" in result.out) == (0, True)


def test_a_reader_that_goes_away_is_no_error(daemon: Daemon) -> None:
    daemon.service.output["out"] = b"x" * 10_000_000
    run(["submit", "train.sh"])
    program = "import sys; from rm.cli.start import main; sys.exit(main())"
    script = f'"{sys.executable}" -c "{program}" logs 1 | head -c 5'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert (done.stdout, done.stderr) == ("xxxxx", "")


def test_the_expected_starts_of_waiting_jobs(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--wrap=true", "--job-name=a")
    rmx("submit", "--wrap=true", "--job-name=b", "--hold")
    lines = rmx("queue", "--start").out.splitlines()
    assert lines[0].split() == [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "EARLIEST",
        "LIKELY",
        "LATEST",
        "EXPECTED",
        "ON",
        "REASON",
    ]
    told = [word[:11] for word in lines[1].split() if word[0] in "2h"]
    assert told == ["2030-03-17T", "2031-10-17T", "2032-06-04T", "2033-05-18T", "h1"]
    assert lines[2].split().count("N/A") == 4
    assert [one["job"] for one in rmx("queue", "--start", "--json").json["starts"]] == [1]
    assert "Expected to start at 2033-05-18" in rmx("why", "1").out
    held = rmx("why", "2").out
    assert "Expected to start" not in held
    assert "No start can be foreseen: it is held." in held
    said = rmx("submit", "--test-only", "--cpus-per-task=9", "--wrap=true")
    assert "Expected to start at 2033-05-18" in said.out
    for option, why in (("--hold", "it is held."), ("--dependency=afterany:1", "it waits for other jobs.")):
        said = rmx("submit", "--test-only", "--cpus-per-task=9", "--wrap=true", option)
        assert f"No start can be foreseen: {why}" in said.out
    assert "columns and an order of its own" in rmx("queue", "--start", "--long").err


def test_what_is_wrong_with_a_table_of_several_is_said_with_its_own_line(rmx: Rmx, tmp_path: Path) -> None:
    file = tmp_path / "rm.toml"
    file.write_text(
        "[[monitor.mesh]]\nname = 'a'\nschedule = 'every 60s'\n\n"
        "[[monitor.mesh]]\nname = 'b'\nschedule = '99 * * * *'\n\n"
        "[[monitor.mesh]]\nname = 'c'\nschedule = 'every 60s'\ntsets = ['mtu']\n\n"
        "[[monitor.mesh]]\nname = 'a'\nschedule = 'every 60s'\n"
        "[[monitor.maintenance]]\nwhen = 'sundy 3:00-4:00'\n"
    )
    told = rmx("--config", str(file), "config", "check").err.splitlines()
    starts = (
        f"rmx: [[monitor.mesh]] 'b' ({file}:7), schedule: ",
        f"rmx: [[monitor.mesh]] 'c' ({file}:12) has no key 'tsets'.",
        f"rmx: [[monitor.mesh]] 'a' ({file}:14) is there twice.",
        f"rmx: [[monitor.maintenance]] ({file}:18), when: ",
    )
    assert len(told) == len(starts)
    assert all(line.startswith(start) for line, start in zip(told, starts, strict=True))
