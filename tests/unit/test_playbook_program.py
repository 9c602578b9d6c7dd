"""The executor as one payload: it runs without any file on the host, and long contents arrive in parts."""

import base64
import importlib
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.program import LOADER, Conversation, digest, files_for, in_parts, places, sources
from rm.errors import Unreachable
from tests.fakes import PATIENCE_S
from tests.steps_request import rm_steps, step

OLDEST = "python3.8"  # that the executor has to run on; tried where it is installed
RUNS = (
    shutil.which(OLDEST) and subprocess.run([OLDEST, "-V"], capture_output=True, check=False).returncode == 0
)
rm_steps_blob = importlib.import_module("rm_steps_blob")
PYTHONS = [sys.executable, *([OLDEST] if RUNS else [])]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where parts are kept: here, where nobody else keeps any."""
    folder = tmp_path / "kept"

    def private_folder(what: str) -> str:
        (folder / what).mkdir(parents=True, exist_ok=True)
        return str(folder / what)

    monkeypatch.setattr(rm_steps_blob, "private_folder", private_folder)
    return folder / "parts"


def ask(python: str, *requests: dict[str, Any], cwd: Path) -> list[dict[str, Any]]:
    talk = Conversation()
    sent = talk.opening() + b"".join(talk.asking({"id": i, **r}) for i, r in enumerate(requests))
    done = subprocess.run(
        [python, "-S", "-E", "-c", LOADER],
        input=sent,
        capture_output=True,
        check=True,
        cwd=cwd,
    )
    return [json.loads(line)["result"] for line in done.stdout.splitlines()]


AGENT = Path(__file__).parents[2] / "agents" / "rm_agent.py"


@pytest.mark.parametrize(
    ("version", "program"),
    [
        ((3, 6, 15), LOADER),
        ((3, 7, 16), LOADER),
        ((3, 7, 16), f"import runpy;runpy.run_path({str(AGENT)!r}, run_name='__main__')"),
    ],
)
def test_a_python_that_is_too_old_is_said_to_be(version: tuple[int, ...], program: str) -> None:
    command = [sys.executable, "-S", "-E", "-c", f"import sys;sys.version_info={version}\n{program}"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"its Python is 3.{version[1]}, and rm needs 3.8 or newer: name one in ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("python", PYTHONS)
def test_every_operation_is_sent_when_it_is_needed(python: str, tmp_path: Path) -> None:
    assert set(sources()) >= {"rm_steps", "rm_steps_base", "rm_probe", "rm_kernel", *rm_steps.PLACES}
    assert places() == rm_steps.OPERATIONS
    every = [
        {"id": i, "task": i, "op": name, "args": {}, "ignore_errors": True, "check": True}
        for i, name in enumerate(rm_steps.OPERATIONS)
    ]
    (answer,) = ask(python, {"steps": every}, cwd=tmp_path)
    assert len(answer["results"]) == len(every)
    for one in answer["results"]:  # without arguments most fail, but each is there
        assert "does not know" not in str(one.get("msg"))
        assert not any(word in str(one.get("msg")) for word in ("No module", "ImportError", "NameError"))


def test_files_are_sent_before_the_first_request_that_needs_them_and_once(tmp_path: Path) -> None:
    talk = Conversation()
    opening, ping = talk.opening(), {"steps": [step(1, "ping")]}
    assert len(opening) * 5 < len(zlib.compress(json.dumps(sources()).encode()))
    assert "rm_steps_mysql" not in files_for(frozenset(("ping", "copy", "setup")))
    asked = [
        talk.asking(request).count(b"\n") for request in (ping, ping, {"steps": [step(1, "user", name="x")]})
    ]
    assert asked == [2, 1, 2]
    (first, second) = ask(sys.executable, ping, {"steps": [step(2, "stat", path="/")]}, cwd=tmp_path)
    assert [first["results"][0]["failed"], second["results"][0]["failed"]] == [False, False]
    (unknown,) = ask(
        sys.executable, {"steps": [{"id": 1, "task": 1, "op": "nothing", "args": {}}]}, cwd=tmp_path
    )
    assert "does not know 'nothing'" in unknown["results"][0]["msg"]


def test_a_file_of_an_odd_size_travels_in_parts(parts: Path, tmp_path: Path) -> None:
    content = "ä€" * 7 + base64.b64encode(os.urandom(4321)).decode() + "ä"
    steps = [step(i, "copy", dest=f"{tmp_path}/{i}", content=content + str(i)) for i in range(3)]
    steps += [step(9, "copy", dest=f"{tmp_path}/small{i}", content="x" * i) for i in range(30)]
    sizes, sent = [], []

    def send(request: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(request)
        sizes.append(len(text))
        sent.append(request["steps"][0]["op"])
        answer: dict[str, Any] = rm_steps.steps_operation(json.loads(text))
        return answer

    answer = in_parts({"steps": steps, "check": False, "diff": False, "planned": {}}, send, 3000, 1000)
    assert [r["changed"] for r in answer["results"]] == [True] * 33
    assert [(tmp_path / str(i)).read_text() for i in range(3)] == [content + str(i) for i in range(3)]
    assert max(sizes) < 3500
    assert sent.count("blob") > 15
    assert not parts.exists()


def test_a_long_content_that_is_wanted_twice_arrives_twice(parts: Path, tmp_path: Path) -> None:
    content, source = base64.b64encode(os.urandom(3000)).decode(), tmp_path / "source"
    source.mkdir()
    for name in ("one", "two"):
        (source / name).write_text(content)
    steps = [step(i, "copy", task=1, dest=f"{tmp_path}/{i}", content=content) for i in range(2)]
    steps.append(step(2, "copy", src=f"{source}/", dest=f"{tmp_path}/both/"))
    request = {"steps": steps, "check": False, "diff": False, "planned": {}}
    answer = in_parts(request, rm_steps.steps_operation, 100_000, 1000)
    assert [one.get("msg") for one in answer["results"] if one["failed"]] == []
    for path in ("0", "1", "both/one", "both/two"):
        assert (tmp_path / path).read_text() == content
    assert not parts.exists()


def test_the_end_of_a_task_holds_across_parts(tmp_path: Path) -> None:
    steps = [step(1, "command", task=1, _raw="false"), step(2, "command", task=1, _raw="true")]
    steps.append(step(3, "copy", task=2, dest=f"{tmp_path}/never", content="x"))
    request = {"steps": steps, "check": False, "diff": False, "planned": {}}
    answer = in_parts(request, rm_steps.steps_operation, 300)
    assert [(r["id"], r["failed"]) for r in answer["results"]] == [(1, True), (2, False)]
    assert not (tmp_path / "never").exists()


def test_a_reply_that_grows_long_is_cut_and_the_rest_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_steps, "REPLY_BYTES", 2000)
    steps = [step(i, "command", _raw=f"printf %{100 * i}s") for i in range(1, 12)]
    counts = []

    def send(request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = rm_steps.steps_operation(json.loads(json.dumps(request)))
        counts.append(len(answer["results"]))
        return answer

    answer = in_parts({"steps": steps, "check": False, "diff": False, "planned": {}}, send)
    assert [(r["id"], len(r["stdout"])) for r in answer["results"]] == [(i, 100 * i) for i in range(1, 12)]
    assert len(counts) > 3
    with pytest.raises(Unreachable):
        in_parts({"steps": steps, "planned": {}}, lambda request: {"results": [], "planned": {}, "cut": True})


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"results": []}, {"results": [1], "planned": {}}, {"results": [{}], "planned": {}}],
)
def test_an_answer_of_another_shape_is_none(answer: Any) -> None:
    with pytest.raises(Unreachable, match="something other than step results"):
        in_parts({"steps": [step(1, "ping")], "planned": {}}, lambda request: answer)


@pytest.mark.parametrize("lie", [{}, {"size": "many"}, {"size": None}, {"size": [7]}, {"size": 0}])
def test_a_host_that_lies_of_the_parts_of_a_file_fails_its_own_steps(lie: Any) -> None:
    content = base64.b64encode(os.urandom(3000)).decode()
    request = {"steps": [step(1, "copy", dest="/x", content=content)], "check": False, "planned": {}}
    with pytest.raises(Unreachable, match="A long file cannot be sent"):
        in_parts(request, lambda request: {"results": [{"id": 0, **lie}], "planned": {}}, 100_000, 1000)


def test_the_step_under_way_is_finished_and_none_begun_when_nobody_listens(tmp_path: Path) -> None:
    steps = [
        step(
            1, "command", _raw=f"sh -c 'echo > {tmp_path}/begun; cat {tmp_path}/go; echo > {tmp_path}/done'"
        ),
        step(2, "copy", dest=f"{tmp_path}/never", content="x"),
    ]
    os.mkfifo(tmp_path / "go")
    talk = Conversation()
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", LOADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(talk.opening() + talk.asking({"steps": steps}))
    process.stdin.flush()
    with open(tmp_path / "go", "w"):  # opened when the step reads it
        process.stdin.close()
        process.stdout.close()
    process.wait(PATIENCE_S)
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "never").exists()


def test_an_agent_names_its_executor_by_the_same_digest() -> None:
    assert rm_steps.features()["steps"] == digest()


def test_a_damaged_part_is_told_and_nothing_is_written(parts: Path, tmp_path: Path) -> None:
    one = {**step(1, "copy", dest=f"{tmp_path}/f", content="x"), "parts": True}
    for name in ("blob:" + "0" * 64, "blob:../../etc/passwd"):
        one["args"]["content"] = name
        result = rm_steps.steps_operation({"steps": [json.loads(json.dumps(one))]})["results"][0]
        assert result["failed"]
        assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("python", PYTHONS)
def test_nothing_is_imported_from_the_directory_that_it_starts_in(python: str, tmp_path: Path) -> None:
    for name in ("json", "zlib", "importlib", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')\n")
    (answer,) = ask(python, {"steps": [step(0, "ping")]}, cwd=tmp_path)
    assert answer["results"][0]["ping"] == "pong"


def test_little_is_loaded_before_the_first_request() -> None:
    """Each host of each playbook pays for it."""
    argv = [sys.executable, "-S", "-E", "-X", "importtime", "-c", LOADER]
    done = subprocess.run(argv, input=Conversation().opening(), capture_output=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "rm_steps" in loaded
    assert loaded.isdisjoint({"pathlib", "tempfile", "typing", "urllib.parse"})
