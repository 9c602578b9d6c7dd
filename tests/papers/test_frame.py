"""The frame of the papers: seeds, statistics, ranges, output, plots, the command."""

import json
import re
import statistics
from pathlib import Path

import pytest

from rm.cli.main import run as rmx
from rm.cli.sim import paper as sim_paper
from rm.errors import ConfigError, NotFound
from rm.sim.papers.frame import expected, find, show
from rm.sim.papers.frame.draw import draw
from rm.sim.papers.frame.parameters import PATH, _sections, parameters
from rm.sim.papers.frame.run import run
from rm.sim.statistics import mean_std

TINY = "tests.papers.tiny"
ROWS = """
[[row]]
figure = "Fig. 1"
case = "old"
metric = "time"
unit = "s"
published = 20
place = "Sec. 1"
low = 19
high = 21
why = "5 %"

[[row]]
figure = "Fig. 1"
case = "new"
metric = "time"
unit = "s"
place = "Sec. 1"
low = 1
high = 2
why = "half as long | or so"

[[row]]
figure = "Fig. 2"
case = "new over old"
metric = "gain"
unit = "%"
published = 50
place = "abstract"
low = 45
high = 55
why = "5 points"
"""


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(ROWS)
    return path


def test_rows_hold_statistics_over_seeds_and_say_what_is_within(rows):
    result = run(TINY, expected=rows)
    old, new, gain = result.rows
    values = result.values["Fig. 1", "old", "time"]
    assert len(values) == old.seeds == 4
    assert old.mean == pytest.approx(statistics.mean(values))
    assert old.std == pytest.approx(statistics.stdev(values))
    assert (old.published, new.published) == (20, None)
    assert (old.within, new.within, gain.within) == (19 <= old.mean <= 21, False, 45 <= gain.mean <= 55)
    after = result.values["Fig. 1", "new", "time"]
    paired = [100 * (1 - b / a) for a, b in zip(values, after, strict=True)]
    assert result.values["Fig. 2", "new over old", "gain"] == pytest.approx(paired)


def test_the_headline_counts_printed_numbers_claims_and_plain_figures_apart(rows):
    result = run(TINY, expected=rows)
    printed = sum(bool(row.within) for row in result.rows if row.published)
    said = f"{printed} of 2 printed numbers are within their ranges"
    assert show.verdict(result) == f"{said}; of 1 claims without a number 0 hold."
    rows.write_text(ROWS.replace("low = 1\nhigh = 2\n", ""))
    result = run(TINY, expected=rows)
    assert show.verdict(result) == f"{said}; 1 rows are plain figures."
    plain = result.rows[1]
    assert (plain.low, plain.high, plain.within) == (None, None, None)
    assert show.cells(plain)[-2:] == ("–", "")
    assert "| – |  | Sec. 1; half as long" in show.markdown(result, expected.read(rows))
    rows.write_text(ROWS.replace("low = 19\nhigh = 21\n", ""))
    assert "of 1 printed numbers are" in show.verdict(run(TINY, expected=rows)), "a further reading"


def test_result_does_not_depend_on_the_number_of_processes(rows):
    steps = []
    alone = run(TINY, seeds=3, expected=rows)
    together = run(TINY, seeds=3, processes=2, done=lambda: steps.append(1), expected=rows)
    assert alone == together
    assert len(steps) == 6


def test_more_seeds_begin_with_the_same_ones(rows):
    few, many = run(TINY, seeds=2, expected=rows), run(TINY, seeds=5, expected=rows)
    assert all(many.values[key][:2] == values for key, values in few.values.items())


def test_one_seed_has_no_spread():
    assert mean_std([3.0]) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('case = "old"', 'case = "older"', "Nothing was measured for the expected row Fig. 1 / older"),
        ('metric = "gain"\n', "", "Row 3 of tiny.toml lacks metric"),
        ("high = 21", "high = 1", "low 19 is above high 1"),
        ("high = 21", "high = inf", "high is inf, not a finite number"),
        ("high = 21", "high = 21\ntolerance = 3", "unknown keys: tolerance"),
        ("high = 2\n", "", "Row 2 of tiny.toml has half a range"),
        ('case = "new"', 'case = "old"', "Row 2 of tiny.toml repeats Fig. 1, old, time"),
        ('why = "5 %"', 'why = ""', "why is '', not text"),
        ("[[row]]", "[row", "is not TOML"),
    ],
)
def test_expected_rows_that_are_wrong_say_so(rows, old, new, words):
    rows.write_text(ROWS.replace(old, new))
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        run(TINY, seeds=1, expected=rows)


def test_sample_without_an_expected_row_is_refused(rows):
    rows.write_text(ROWS[: ROWS.rindex("[[row]]")])
    with pytest.raises(ConfigError, match=r"no expected row for Fig\. 2 / new over old / gain"):
        run(TINY, seeds=1, expected=rows)


def test_json_has_exactly_the_keys(rows):
    told = show.as_json("tiny", run(TINY, expected=rows))
    assert list(told) == ["paper", "rows"]
    keys = ["figure", "case", "metric", "unit", "published", "mean", "std", "seeds", "low", "high", "within"]
    assert all(list(row) == keys for row in told["rows"])
    assert json.loads(json.dumps(told)) == told


def test_page_gets_its_table_and_keeps_the_rest(rows, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"Before\n{show.BEGIN}\nstale\n{show.END}\nAfter\n")
    result = run(TINY, expected=rows)
    for _ in range(2):  # writing it again changes nothing
        show.put_into(page, show.markdown(result, expected.read(rows)))
        text = page.read_text()
        assert text.startswith("Before\n")
        assert text.endswith("After\n")
        assert "stale" not in text
        assert text.count("**Fig. 1**") == 1
        assert "half as long \\| or so" in text
        assert "| **no** |" in text
    page.write_text("nothing here")
    with pytest.raises(ConfigError, match="lacks the lines"):
        show.put_into(page, "table")


def test_plots_are_the_same_bytes_each_time(rows, tmp_path):
    result = run(TINY, seeds=1, expected=rows)
    for suffix in (".svg", ".png"):
        files = [tmp_path / f"{n}{suffix}" for n in "ab"]
        for file in files:
            draw(find.load(TINY).plot, result, file)
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].stat().st_size > 1000


def test_every_value_of_the_parameters_has_a_source(tmp_path):
    assert _sections(PATH)
    with pytest.raises(ConfigError, match="no section"):
        parameters("nothing")
    bad = tmp_path / "parameters.toml"
    bad.write_text("[a]\nb = { value = 1 }\n")
    with pytest.raises(ConfigError, match=r"\[a\] b of parameters.toml is not"):
        _sections(bad)


@pytest.mark.parametrize("name", find.names())
def test_every_paper_is_complete(name):
    paper = find.load(find.module_of(name))
    assert paper.seeds >= 10
    assert expected.read(expected.DIRECTORY / f"{name}.toml")
    assert (sim_paper.ROOT / f"docs/papers/{name}.md").read_text().count(show.END) == 1
    assert (sim_paper.ROOT / f"docs/images/papers/{name}.svg").exists()


def test_unknown_paper_is_a_sentence():
    with pytest.raises(NotFound, match="There is no paper 'zone-fist'"):
        find.module_of("zone-fist")


@pytest.fixture
def only_tiny(monkeypatch, rows):
    monkeypatch.setattr(find, "names", lambda: ("tiny",))
    monkeypatch.setattr(find, "PACKAGE", "tests.papers")
    monkeypatch.setattr("rm.sim.papers.frame.run.DIRECTORY", rows.parent)
    monkeypatch.setattr(expected, "DIRECTORY", rows.parent)


@pytest.mark.usefixtures("only_tiny")
def test_command_prints_a_table_or_json_and_draws(capsys, tmp_path):
    assert rmx(["sim", "paper"]) == 0
    assert "A tiny paper" in capsys.readouterr().out
    assert rmx(["sim", "paper", "tiny", "--seeds", "2", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == show.COLUMNS[0].split() + " ".join(show.COLUMNS[1:]).split()
    assert "tiny: 2 of 2 printed numbers are within their ranges; of 1 claims" in out
    assert re.fullmatch(r"rmx: tiny: \d+ pieces\n", err)  # at once; no progress bar but on a terminal
    plot = tmp_path / "sub" / "tiny.svg"
    assert rmx(["sim", "paper", "--name=tiny", "--json", "--plot", str(plot), "--jobs", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["paper"], len(told["rows"]), told["rows"][0]["seeds"]) == ("tiny", 3, 4)
    assert plot.exists()


@pytest.mark.usefixtures("only_tiny")
def test_command_updates_page_and_picture(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sim_paper, "ROOT", tmp_path)
    page = tmp_path / "docs/papers/tiny.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"# Tiny\n{show.BEGIN}\n{show.END}\n")
    assert rmx(["sim", "paper", "--all", "--update-docs", "--jobs", "1"]) == 0
    assert "**Fig. 2**" in page.read_text()
    assert (tmp_path / "docs/images/papers/tiny.svg").exists()


@pytest.mark.usefixtures("only_tiny")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tiney"], 4, "Did you mean 'tiny'?"),
        (["tiny", "--plot", "x.gif", "--jobs", "1"], 2, "cannot be written as 'x.gif'"),
        (["--all", "--json"], 2, "--all goes with"),
        (["tiny", "--seeds", "0"], 2, "--seeds"),
        (["tiny", "--name=tiny"], 2, "Name one paper"),
    ],
)
def test_command_refuses_in_sentences(capsys, words, code, said):
    assert rmx(["sim", "paper", *words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", find.names())
def test_the_page_has_the_rows_of_the_file_and_its_headline_counts_them(name):
    """A page is written by a run; a range that was changed since then shows here."""
    page = Path(__file__).parents[2] / f"docs/papers/{name}.md"
    table = page.read_text().partition(show.BEGIN)[2].partition(show.END)[0].strip().splitlines()
    figure, told = "", []
    for line in table:
        figure = line.strip("*") if line.startswith("**") else figure
        if line.startswith("| ") and not line.startswith("| case |"):
            told.append((figure, *(cell.strip() for cell in line.replace("\\|", "¦").split("|")[1:-1])))
    rows = expected.read(expected.DIRECTORY / f"{name}.toml")
    assert [(f, case, metric) for f, case, metric, *_ in told] == list(rows)
    assert all((cells[5] == "–") == (one.low is None) for cells, one in zip(told, rows.values(), strict=True))
    printed = [cells[6] == "yes" for cells in told if cells[3] != "–" and cells[5] != "–"]
    assert table[0].startswith(f"{sum(printed)} of {len(printed)} printed numbers are within their ranges")
