"""`rmx interleave`: JSON in, JSON or a drawing out, and sentences with the place for bad input."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rm.cli.main import run
from tests.command_line import Result

EXAMPLE = Path(__file__).parents[2] / "examples/interleave.json"
SVG = "{http://www.w3.org/2000/svg}"


Ask = Callable[..., Result]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Ask about a value, or a text, in a file."""

    def call(question: Any, *options: str) -> Result:
        file = tmp_path / "question.json"
        file.write_text(question if isinstance(question, str) else json.dumps(question))
        capsys.readouterr()
        return Result(run(["interleave", str(file), *options]), *capsys.readouterr())

    return call


def one(name: str, period: float, busy: float, rate: float = 10, **more: Any) -> dict[str, Any]:
    phases = [{"offset_ms": 0, "duration_ms": busy, "bandwidth_mbps": rate}]
    return {"name": name, "period_ms": period, "phases": phases, **more}


PAIR = {"capacity_mbps": 10, "slots": 100, "jobs": [one("a", 100, 40, priority="high"), one("b", 100, 40)]}


def test_a_job_that_cannot_keep_the_pace_of_a_faster_one_is_named(ask: Ask) -> None:
    jobs = [one("quick", 196, 86, priority="high"), one("slow", 200, 86)]
    answer = ask({"capacity_mbps": 10, "jobs": jobs})
    assert answer.code == 0
    assert "slow cannot keep the pace of the first in rank" in answer.out
    assert "Without a rotation on some link: quick, slow." in answer.out
    unlike = ask({"capacity_mbps": 10, "jobs": [one("a", 100, 40), one("b", 71.3, 30)]})
    assert "the periods do not match" in unlike.out


def test_json_answers_with_one_time_shift_for_each_job(ask: Ask) -> None:
    answer = ask(PAIR, "--json").json
    assert answer["perimeter_ms"] == 100
    assert answer["shifts_ms"] == {"a": 0, "b": 50}
    assert answer["injected_ms"] == {"a": 0, "b": 0}
    assert answer["consistent"] is True
    assert answer["loop"] is None
    assert answer["unmatched"] == []
    (link,) = answer["links"]
    assert (link["name"], link["score"], link["shifts_ms"]) == ("link", 100, {"a": 0, "b": 50})
    assert link["psi_rad"] == pytest.approx(math.pi)
    assert (link["cushion_ms"], link["bound"], link["gap"], link["proven"]) == (10, 100, 0, True)
    assert link["stage3"] == {"psi_ms": 10, "bound_ms": 10, "proven": True}
    assert (link["unrotated_score"], link["slots"], link["rotations"]) == (60, 100, {"a": 0, "b": 50})


def test_several_links_and_a_loop(ask: Ask) -> None:
    jobs = [one(name, 72, 20) for name in "abc"]
    links = [
        {"name": f"l{i}", "capacity_mbps": 10, "jobs": list(pair)}
        for i, pair in enumerate(["ab", "bc", "ac"])
    ]
    answer = ask({"jobs": jobs, "links": links}, "--json").json
    assert set(answer["loop"]) == {"a", "b", "c", "l0", "l1", "l2"}
    assert answer["consistent"] is True
    assert [link["score"] for link in answer["links"]] == [100, 100, 100]
    told = ask({"jobs": jobs, "links": links}).out
    assert "form a loop: " in told
    assert "The time-shifts suit every link." in told


def test_the_metric_of_stage_3_and_the_first_interval(ask: Ask) -> None:
    jobs = [one("long", 120, 60), one("short", 120, 10), one("other", 120, 10)]
    asked = {"capacity_mbps": 10, "slots": 120, "jobs": jobs}
    gap, middles = (ask(asked, "--json", "--metric", m).json["links"][0] for m in ("gap", "midpoint"))
    assert gap["cushion_ms"] > middles["cushion_ms"]
    assert gap["psi_rad"] < middles["psi_rad"]
    first = ask(asked, "--json", "--online").json["links"][0]
    assert first["score"] == 100
    assert first["cushion_ms"] < gap["cushion_ms"]
    assert "stage3" not in first


def test_a_budget_that_ends_early_leaves_a_bound_and_a_gap(ask: Ask) -> None:
    jobs = [one(f"j{i}", t, t / 6, 6) for i, t in enumerate((360, 180, 120, 360, 180))]
    for job in jobs:
        later = {
            "offset_ms": job["period_ms"] / 2,
            "duration_ms": job["period_ms"] / 12,
            "bandwidth_mbps": 10,
        }
        job["phases"].append(later)
    asked = {"capacity_mbps": 10, "jobs": jobs}
    hasty, thorough = (ask(asked, "--json", "--budget", n).json["links"][0] for n in ("1", "200000"))
    assert not hasty["proven"]
    assert hasty["score"] <= thorough["score"] <= hasty["bound"]
    assert hasty["gap"] == pytest.approx(hasty["bound"] - hasty["score"])
    assert thorough["proven"]
    assert thorough["gap"] == 0
    assert "no rotation scores above" in ask(asked, "--budget", "1").out
    assert "this is the best one, proven" in ask(asked).out


def test_the_drawing_fits_80_columns_and_shows_where_jobs_meet(ask: Ask) -> None:
    told = ask(PAIR).out
    assert max(map(len, told.splitlines())) <= 80
    before, after = (line for line in told.splitlines() if line.startswith("  all jobs"))
    assert "!" in before
    assert "!" not in after
    assert abs(before.count("!") - after.count("█") / 2) <= 1
    assert "score 60 of 100" in told
    assert "score 100 of 100" in told
    assert "\x1b" not in told


def test_where_blocks_cannot_be_shown_there_are_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "question.json"
    file.write_text(json.dumps(PAIR))
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    assert run(["interleave", str(file)]) == 0
    plain.seek(0)
    told = plain.read()
    assert "|####" in told
    assert "!!!!" in told


def test_long_and_strange_names_do_not_break_the_drawing(ask: Ask) -> None:
    jobs = [one("a" * 40, 100, 40), one("<b> & 'c'", 100, 40)]
    told = ask(
        {"capacity_mbps": 10, "jobs": jobs},
    ).out
    bars = [line for line in told.splitlines() if "│" in line]
    assert max(map(len, bars)) <= 80
    assert len({line.index("│") for line in bars}) == 1


def test_links_that_need_no_rotation_or_have_none_are_told_in_words(ask: Ask) -> None:
    roomy = ask({"capacity_mbps": 100, "jobs": PAIR["jobs"]}).out
    assert "Not contended" in roomy
    apart = ask({"capacity_mbps": 10, "jobs": [one("a", 1000, 500), one("b", 17, 8.5)]})
    assert "No common circle" in apart.out
    assert "Without a rotation on some link: a, b." in apart.out


def test_the_picture_shows_the_circles_before_and_after(ask: Ask, tmp_path: Path) -> None:
    picture = tmp_path / "circles.svg"
    asked = json.loads(EXAMPLE.read_text())
    asked["jobs"][0]["name"] = "<b> & 'c'"
    assert f"Wrote {picture}." in ask(asked, "--svg", str(picture)).err
    first = picture.read_text()
    root = ElementTree.fromstring(first)
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any("<b> & 'c'" in text for text in texts)
    assert sum("score" in text for text in texts) == 2
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert "more than the link carries" in titles
    ask(asked, "--svg", str(picture))
    assert picture.read_text() == first


def test_the_example_of_the_documents_is_perfect_only_when_rotated(ask: Ask) -> None:
    (link,) = ask(EXAMPLE.read_text(), "--json").json["links"]
    assert link["score"] == 100 > link["unrotated_score"]
    assert link["stage3"]["proven"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(PAIR).encode())))
    assert run(["interleave", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["links"][0]["score"] == 100


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Line 1, column 1"),
        ('{"capacity_mbps": 10,\n "jobs": [}', "Line 2, column 11"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "number too long"),
        ('{"capacity_mbps": NaN, "jobs": []}', "jobs is an empty list"),
        ('{"capacity_mbps": 1e9999999, "jobs": [{"name": "a"}]}', "jobs[0].period_ms is missing"),
        ('{"jobs": [{"name": "a", "period_ms": 1, "phases": [{"duration_ms": 2}]}]}', "jobs[0].phases[0]"),
    ],
)
def test_bad_input_is_told_with_its_place(ask: Ask, text: str, told: str) -> None:
    result = ask(text)
    assert result.code == 2
    assert result.out == ""
    assert told in result.err
    assert "Traceback" not in result.err


def test_files_that_cannot_be_read_or_written(
    ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        assert run(["interleave", str(path)]) == 2
        assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert run(["interleave", str(tmp_path / "binary")]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    refused = ask(PAIR, "--svg", str(tmp_path / "none" / "a.svg"))
    assert refused.code == 1
    assert "cannot be written" in refused.err
