"""The lines of a run's process: what they say of each task, and that no secret is in them."""

from __future__ import annotations

import io
import json
import subprocess
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.api.playbooks import TellProgress
from rm.bootstrap.playbooks import RMX
from rm.cli.playbook.telling import progress_of
from rm.cli.playbook.work import (
    DIFF_MOST,
    ITEMS_MOST,
    MESSAGE_MOST,
    NAME_MOST,
    Said,
    outcome_of,
    variables_of,
)
from rm.core.playbook_runs import RunState
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Progress, Report
from rm.playbook.template.template import Layer, Scope, condition, evaluate
from rm.typed import convert
from rm.web.routes.playbooks import _lines

SECRET = "hunter2 of the mirror"


def result(**fields: Any) -> TaskResult:
    return replace(TaskResult("h1", "Play", "Task", "command", "ok"), **fields)


def lines(*events: Progress, secrets: set[str] | None = None, end: Report | None = None) -> list[Any]:
    out = io.StringIO()
    said = Said(out)
    said.secrets = secrets or set()
    for event in events:
        said.tell(event)
    if end is not None:
        said.report(end)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_no_secret_in_any_form_of_it() -> None:
    hidden = f"{SECRET} {b64encode(SECRET.encode()).decode()}"
    told = lines(
        Progress("play", f"play {hidden}", hosts=("h1",)),
        Progress("start", f"task {hidden}", hosts=("h1",)),
        Progress("note", hidden),
        Progress("task", result=result(
            task=hidden, message=hidden, diffs=(f"+{hidden}\n",), items=((hidden, "ok", hidden),),
            result={"stdout": hidden, "other": hidden},
        )),
        secrets={SECRET},
    )  # fmt: skip
    text = json.dumps(told)
    assert "hunter2" not in text
    assert b64encode(SECRET.encode()).decode() not in text
    assert told[3]["outcome"]["items"] == [["******** ********", "ok", "******** ********"]]


def test_a_secret_that_is_a_word_of_the_lines_breaks_none() -> None:
    told = lines(
        Progress("task", result=result(status="failed", message="it failed on h1")),
        secrets={"failed", "task", "kind", "outcome"},
        end=Report("p", False),
    )
    assert told[0]["kind"] == "task"
    assert told[0]["outcome"]["status"] == "failed"
    assert told[0]["outcome"]["message"] == "it ******** on h1"
    assert told[1] == {"kind": "end", "state": "ok", "message": "", "recap": {}, "not_reached": []}


def test_what_is_long_is_cut_and_only_standard_output_is_kept_of_a_result() -> None:
    found = outcome_of(
        result(
            message="m" * (MESSAGE_MOST + 5), diffs=("d" * DIFF_MOST, "more"),
            items=tuple(("i", "ok", "") for _ in range(ITEMS_MOST + 5)),
            result={"stdout": "said", "stderr": "other", "rc": 0}, took_us=7,
        ),
        3, 99,
    )  # fmt: skip
    assert found.message.endswith("… and 5 more characters")
    assert (len(found.diffs), len(found.items)) == (1, ITEMS_MOST)
    assert (found.output, found.number, found.took_us) == ("said", 3, 7)
    assert outcome_of(result(result={"stdout": [1]}), 1, 99).took_us == 99
    assert outcome_of(result(result={"stdout": [1]}), 1, 99).output == ""


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"status": "failed", "rescued": True}, "rescued"),
        ({"status": "failed", "ignored": True}, "ignored"),
        ({"status": "unreachable"}, "unreachable"),
    ],
)
def test_statuses(fields: dict[str, Any], status: str) -> None:
    assert outcome_of(result(**fields), 1, 0).status == status


@pytest.mark.parametrize("text", ["{{ 6 * 7 }}", "#jinja2: variable_start_string: '[%'\n[% 6 * 7 }}"])
def test_an_answer_is_no_template_and_a_default_may_be_one(text: str) -> None:
    """Also where the daemon let one pass."""
    orders = {"extra": {"given": [{"deep": text}], "usual": text}, "defaults": ["usual"]}
    scope = Scope([Layer(variables_of(orders), True)])
    assert evaluate("{{ given[0].deep }}", scope) == text
    assert str(evaluate("{{ usual }}", scope)) == "42"


def test_an_answer_is_never_evaluated_as_a_condition() -> None:
    """`assert: {that: "{{ given }}"}` evaluates conditions that a variable holds."""
    (given,) = variables_of({"extra": {"given": "6 == 6"}, "defaults": []}).values()
    assert condition("6 == 6", Scope([]))
    with pytest.raises(TemplateProblem, match="must not be evaluated"):
        condition(given, Scope([]))


def test_names_and_notes_are_cut_after_their_secrets_were_taken_out() -> None:
    """A task's name may be a template of a host's text."""
    long = "n" * (NAME_MOST - 3) + SECRET + "n" * (9 << 20)
    told = lines(
        Progress("play", long), Progress("start", long, hosts=("h1",)), Progress("note", long),
        Progress("task", result=result(task="n" * (9 << 20))), secrets={SECRET},
        end=Report("p", False),
    )  # fmt: skip
    assert len(json.dumps(told)) < 5_000
    assert "hun" not in json.dumps(told)
    assert told[3]["outcome"]["task"].startswith("nnn")


def test_text_that_is_none_is_said_all_the_same() -> None:
    told = lines(Progress("note", "bad \udcff byte"))
    assert told == [{"kind": "note", "text": "bad ? byte"}]


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (Report("p", False, {"h1": [result()]}), RunState.OK),
        (Report("p", False, {"h1": [result(status="failed")]}), RunState.FAILED),
        (Report("p", False, {"h1": [result(status="unreachable")]}), RunState.UNREACHABLE),
        (Report("p", False, {"h1": [result()]}, ("h2",), True), RunState.INTERRUPTED),
    ],
)
def test_how_runs_end(report: Report, state: RunState) -> None:
    (told,) = lines(end=report)
    assert told["state"] == state
    assert told["not_reached"] == list(report.not_reached)


def test_nothing_is_imported_from_where_the_daemon_was_started(tmp_path: Path) -> None:
    (tmp_path / "rm").mkdir()
    (tmp_path / "rm" / "__init__.py").write_text("print('of somebody else')\n")
    command = [*RMX[:-1], "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "of somebody else" in done.stdout) == (0, False), done.stderr


def test_lines_become_the_progress_that_the_daemon_takes() -> None:
    told = lines(
        Progress("play", "Play", hosts=("h1", "h2")),
        Progress("start", "Copy", hosts=("h1",)),
        Progress("start", "Copy", hosts=("h2",)),
        Progress("note", "n" * 900),
        Progress(
            "task",
            result=result(message="m" * 20_000, diffs=("d" * 90_000,), items=((SECRET, "ok", ""),) * 300),
        ),
        secrets={SECRET},
        end=Report("p", False),
    )
    read = convert(progress_of(told), TellProgress)
    assert [(one.host, one.task) for one in read.began] == [("h2", "Copy")]
    assert len(read.notes[0]) <= 600
    (one,) = read.outcomes
    assert one.items[0] == ("********", "ok", "")
    assert read.end is not None
    assert read.end.state == "ok"
    assert [line["kind"] for line in _lines(read)] == ["note", "task", "start", "end"]
    assert progress_of([]) == {"began": [], "outcomes": [], "notes": [], "end": None}


def test_of_a_host_that_has_done_one_task_and_begun_the_next_both_are_told() -> None:
    told = lines(
        Progress("start", "First", hosts=("h1",)),
        Progress("task", result=result(task="First")),
        Progress("start", "Second", hosts=("h1",)),
    )
    read = convert(progress_of(told), TellProgress)
    assert [(one.host, one.task) for one in read.began] == [("h1", "Second")]
    assert [line["kind"] for line in _lines(read)] == ["task", "start"]
