"""The executor on a real directory: idempotent, checked before done, atomic, and honest about failures."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.steps_request import one, run, step

PROGRAM = Path(__file__).parents[2] / "agents/rm_steps.py"


@pytest.fixture
def work(tmp_path):
    """Steps that reach a state, on a directory of the test's own."""
    (tmp_path / "old").write_text("keep\nvalue=1\n")
    return [
        step(1, "file", path=f"{tmp_path}/a/b", state="directory", mode="0750"),
        step(2, "copy", dest=f"{tmp_path}/a/b/file", content="one\ntwo\n", mode="0640"),
        step(3, "lineinfile", path=f"{tmp_path}/old", regexp="^value=", line="value=2"),
        step(4, "file", path=f"{tmp_path}/a/link", src=f"{tmp_path}/a/b", state="link"),
        step(5, "file", path=f"{tmp_path}/a/b/gone", state="absent"),
        step(6, "shell", _raw=f"echo hi > {tmp_path}/made", creates=f"{tmp_path}/made"),
    ]


def picture(top):
    return {
        str(p.relative_to(top)): (oct(p.lstat().st_mode), p.read_bytes() if p.is_file() else b"")
        for p in sorted(top.rglob("*"))
    }


def test_second_run_changes_nothing(work, tmp_path):
    first = run(*work)["results"]
    assert [r["changed"] for r in first] == [True, True, True, True, False, True], first
    after = picture(tmp_path)
    assert after["a/b/file"] == ("0o100640", b"one\ntwo\n")
    assert after["old"][1] == b"keep\nvalue=2\n"
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o750
    again = run(*work)["results"]
    assert [r["changed"] for r in again] == [False] * 6
    assert picture(tmp_path) == after


def test_check_mode_changes_nothing_and_foretells_the_run(work, tmp_path):
    before = picture(tmp_path)
    half = run(*work[:2], check=True)
    rest = run(*work[2:], check=True, planned=half["planned"])["results"]
    assert picture(tmp_path) == before
    foretold = half["results"] + rest
    assert foretold[5]["might_run"]
    real = run(*work)["results"]
    assert [r["changed"] for r in foretold] == [r["changed"] for r in real]
    assert [r.get("diff") for r in foretold[:5]] == [r.get("diff") for r in real[:5]]
    assert "-value=1\n+value=2\n" in foretold[2]["diff"][0]


def test_a_failed_verification_leaves_the_old_file_and_nothing_aside(tmp_path):
    target = tmp_path / "conf"
    target.write_text("good\n")
    args = step(1, "copy", dest=str(target), content="bad\n", validate="grep -q good %s")
    result = run(args)["results"][0]
    assert result["failed"]
    assert "validate" in result["msg"]
    assert os.listdir(tmp_path) == ["conf"]
    assert target.read_text() == "good\n"


def test_what_a_killed_run_left_aside_is_cleared_and_never_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / ".conf.rm-new").symlink_to(victim)
    run(step(1, "copy", dest=f"{tmp_path}/conf", content="new\n"))
    assert victim.read_text() == "untouched"
    assert sorted(os.listdir(tmp_path)) == ["conf", "victim"]


def test_killed_at_any_moment_the_file_is_old_or_new_and_the_next_run_finishes(tmp_path):
    target = tmp_path / "conf"
    for call in ("open", "fsync", "rename"):
        target.write_text("old\n")
        request = {"op": "steps", "steps": [step(1, "copy", dest=str(target), content="new\n" * 5000)]}
        die = f"import os; os.{call} = lambda *a, **k: os._exit(9)"
        program = f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import rm_steps, json; {die}; "
        program += f"rm_steps.steps_operation(json.loads({json.dumps(request)!r}))"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
        assert target.read_text() == "old\n", call
        assert run(request["steps"][0])["results"][0]["changed"]
        assert target.read_text() == "new\n" * 5000
        assert os.listdir(tmp_path) == ["conf"]


def test_failure_ends_the_task_s_other_items_not_the_next_task(tmp_path):
    results = run(
        step(1, "command", task=1, _raw="false"),
        step(2, "command", task=1, _raw="echo second"),
        step(3, "command", task=2, _raw="echo never"),
    )["results"]
    assert [(r["id"], r["failed"]) for r in results] == [(1, True), (2, False)]
    ignoring = {**step(1, "command", _raw="false"), "ignore_errors": True}
    assert len(run(ignoring, step(2, "command", _raw="true"))["results"]) == 2


def test_commands_do_not_pass_through_a_shell_and_tell_how_they_ended(tmp_path):
    word = "a; touch /nonexistent $(id) 'q'"
    result = run(step(1, "command", argv=["printf", "%s", word]))["results"][0]
    assert (result["stdout"], result["rc"]) == (word, 0)
    result = run(step(1, "shell", _raw="echo out; echo err >&2; exit 3"))["results"][0]
    assert (result["stdout"], result["stderr"], result["rc"], result["failed"]) == ("out", "err", 3, True)
    result = run(step(1, "command", _raw="no-such-program-here"))["results"][0]
    assert result["failed"]
    assert "no-such-program-here" in result["msg"]
    environment = {**step(1, "shell", _raw="echo $WHO"), "environment": {"WHO": "me"}}
    assert run(environment)["results"][0]["stdout"] == "me"
    assert "WHO" not in os.environ


def test_a_daemon_left_behind_by_a_command_does_not_hold_the_run(tmp_path):
    result = run(step(1, "shell", _raw="sleep 20 & echo $!"))["results"][0]
    os.kill(int(result["stdout"]), 9)
    assert result["rc"] == 0


@pytest.mark.parametrize(
    ("args", "before", "after"),
    [
        ({"line": "x"}, "a\n", "a\nx\n"),
        ({"line": "x"}, "a", "a\nx\n"),
        ({"line": "x", "insertbefore": "BOF"}, "a\n", "x\na\n"),
        ({"line": "x", "insertafter": "^a"}, "a\na\nb\n", "a\na\nx\nb\n"),
        ({"line": "x", "insertafter": "^a", "firstmatch": True}, "a\na\nb\n", "a\nx\na\nb\n"),
        ({"line": "x", "insertbefore": "^b"}, "a\nb\n", "a\nx\nb\n"),
        ({"line": r"\1=2", "regexp": "^(k)=.*", "backrefs": True}, "k=1\n", "k=2\n"),
        ({"line": r"\1=2", "regexp": "^(z)=.*", "backrefs": True}, "k=1\n", "k=1\n"),
        ({"line": "k=2", "regexp": "^k="}, "k=1\nk=1\n", "k=1\nk=2\n"),
        ({"regexp": "^k", "state": "absent"}, "k1\nb\nk2\n", "b\n"),
        ({"line": "b", "state": "absent"}, "a\nb\nbb\n", "a\nbb\n"),
        ({"search_string": "(", "line": "y"}, "a(\n", "y\n"),
    ],
)
def test_lineinfile(tmp_path, args, before, after):
    path = tmp_path / "f"
    path.write_text(before)
    one = step(1, "lineinfile", path=str(path), **args)
    assert run(one)["results"][0]["changed"] is (before != after)
    assert path.read_text() == after
    if "search_string" not in args:
        assert not run(one)["results"][0]["changed"]


@pytest.mark.parametrize(
    ("module", "args", "says"),
    [
        ("file", {"path": "relative", "state": "touch"}, "not absolute"),
        ("file", {"path": "/", "state": "absent"}, "never removed"),
        ("file", {"path": "{tmp}/none"}, "does not exist"),
        ("file", {"path": "{tmp}/f", "state": "directory"}, "not a directory"),
        ("file", {"path": "{tmp}/f", "src": "/x", "state": "link"}, "force"),
        ("copy", {"dest": "{tmp}/no/where", "content": "x"}, "does not exist"),
        ("copy", {"dest": "{tmp}/f", "content": "x", "owner": "no-such-user"}, "no user 'no-such-user'"),
        ("lineinfile", {"path": "{tmp}/none", "line": "x"}, "create"),
        ("wait_for", {"path": "{tmp}/none", "timeout": 0}, "not started"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(tmp_path, module, args, says):
    (tmp_path / "f").write_text("old")
    args = {k: v.format(tmp=tmp_path) if isinstance(v, str) else v for k, v in args.items()}
    result = run(step(1, module, **args))["results"][0]
    assert result["failed"]
    assert says in result["msg"]
    assert (tmp_path / "f").read_text() == "old"


def test_stat_and_facts(tmp_path):
    (tmp_path / "f").write_text("x")
    found = run(step(1, "stat", path=f"{tmp_path}/f"), step(2, "stat", path=f"{tmp_path}/none"))["results"]
    assert (found[0]["stat"]["isreg"], found[0]["stat"]["size"]) == (True, 1)
    assert found[0]["stat"]["checksum"] == "11f6ad8ec52a2984abaafd7c3b516503785c2072"
    assert found[1]["stat"] == {"exists": False}
    raw = run(step(1, "setup"))["results"][0]["raw_facts"]
    assert raw["hostname"] == os.uname().nodename


def test_the_program_by_itself_speaks_json_lines():
    request = {"id": 7, "op": "steps", "steps": [step(1, "ping", data="x")]}
    lines = f"{json.dumps(request)}\nnonsense\n" + json.dumps({"id": 8, "op": "dance"}) + "\n"
    argv = [sys.executable, "-S", "-E", str(PROGRAM)]
    out = subprocess.run(argv, input=lines, capture_output=True, text=True, check=True).stdout
    first, second, third = map(json.loads, out.splitlines())
    assert (first["id"], first["ok"], first["result"]["results"][0]["ping"]) == (7, True, "x")
    assert (second["ok"], third["ok"], third["id"]) == (False, False, 8)


@pytest.mark.parametrize("check", [False, True])
def test_a_command_that_need_not_run_answers_as_in_ansible(tmp_path: Path, check: bool) -> None:
    (tmp_path / "there").write_text("")
    given = {"argv": ["false"], "chdir": str(tmp_path)}
    answer = one("command", check, creates="there", **given)
    did = "Would" if check else "Did"
    assert answer["msg"] == f"{did} not run command since 'there' exists"
    assert answer["stdout"] == "skipped, since there exists"
    assert [answer[key] for key in ("rc", "changed", "start", "end", "delta")] == [0, False, None, None, None]
    gone = one("command", check, removes="gone", **given)
    assert gone["msg"] == f"{did} not run command since 'gone' does not exist"
