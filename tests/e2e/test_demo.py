"""`rmx demo` as a newcomer runs it, shortened: its figures come from jobs that really shared links."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rm.errors import RmError
from rm.lab.requirements import check
from tests.cluster import until

pytestmark = pytest.mark.lab
TRIES = 2  # beside the demo's own two, on a machine that is so busy that the figures blur
CROSSING_MS = 170  # less than jobs of Ada-SRSF's scene take to compute, and to send at the rate of a link
MODES = ("alone", "unmanaged", "shaped", "rotated", "ordered", "managed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root: shaping is part of what is tested")
    try:
        check()
    except RmError as error:
        pytest.skip(str(error))
    return tmp_path


def demo(home: Path, *words: str) -> subprocess.Popen[str]:
    program = "import sys; from rm.cli.start import main; sys.exit(main())"
    env = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, "demo", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal does: Ctrl-C reaches its children, too
    )


def left(home: Path) -> list[str]:
    """What still speaks of the demo's directory: files in it, processes, mounts."""
    base = home / "state" / "rm"
    found = [str(path) for path in base.glob("demo-*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it ended meanwhile
            continue
        if f"{base}/" in words and state != "Z":
            found.append(words)
    return found + [line for line in Path("/proc/mounts").read_text().splitlines() if str(base) in line]


def blurred(told: dict[str, Any]) -> str:
    """Which of the figures a busy machine has spoilt, if it has."""
    if not told["avoided_hosts"]:  # the other hosts of its zone looked worse: the pair is in another zone
        return f"where the pair was placed: {told['jobs'][0]['hosts']}"
    high, low = told["jobs"]
    if not 0 < low["shift_ms"] < low["alone_ms"]["mean"] * 1.1:
        return f"the shift: {low}"
    for link in told["links"]:
        used = link["utilisation"]
        if None in used.values():
            return f"a link that was not watched over a whole run: {link}"
        # both jobs on the very same two links, which carry more of them together than of either alone
        if not max(used["alone_high"], used["alone_low"]) < used["unmanaged"] <= 1.05 or link["score"] != 100:
            return f"the links: {link}"
        if used["managed"] > 1.05:
            return f"the links: {link}"
    unmanaged, managed = (
        sum(job[f"{mode}_ms"]["mean"] for job in (high, low)) for mode in ("unmanaged", "managed")
    )
    return "" if managed <= 1.05 * unmanaged else f"the gain: {unmanaged}, {managed}"


@pytest.mark.timeout(2000)
def test_the_pair_shares_links_and_gains(home: Path) -> None:
    figures, picture = home / "figures.json", home / "links.png"
    for _ in range(TRIES):
        process = demo(home, "--quick", f"--json={figures}", f"--picture={picture}")
        out, err = process.communicate(timeout=900)
        until(lambda: not left(home), "nothing is left")
        if process.returncode and "busy" in err:  # it says so itself, which is all that it can do
            continue
        assert process.returncode == 0, err
        told = json.loads(figures.read_text())
        if not (wrong := blurred(told)):
            break
    assert process.returncode == 0, err
    assert not wrong, wrong
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert told["version"] == 1
    assert (told["queue_packets"], told["congestion_control"], told["repeats"]) == (30, "cubic", 1)

    high, low = told["jobs"]
    assert (high["name"], high["priority"], low["name"], low["priority"]) == ("high", "high", "low", "low")
    for job in (high, low):
        for mode in MODES:
            times = job[f"{mode}_ms"]
            assert 100 < times["mean"] <= times["p99"]
            assert times["p90"] <= times["p99"]
        assert isinstance(job["pauses"], int)
    assert high["shift_ms"] == 0
    assert set(high["hosts"]) == set(low["hosts"]) == {link["name"] for link in told["links"]}
    assert {link["capacity_mbps"] for link in told["links"]} == {100}

    (bad,) = told["avoided_hosts"]
    assert bad["name"] not in high["hosts"]
    assert "loss" in bad["reason"]
    apart = told["kept_apart"]
    assert apart["score_together"] < 100
    assert set(apart["hosts"]["heavy-1"]).isdisjoint(apart["hosts"]["heavy-2"])
    assert "$ rm submit --file=" in err
    for shown in ("unmanaged", "shaping only", "rotation only", "all of rm", "Kept apart", "was not chosen"):
        assert shown in out


@pytest.mark.parametrize(
    ("reached", "number"),
    [("starting 5 hosts", signal.SIGTERM), ("placed on", signal.SIGINT)],
    ids=["lab-sigterm", "jobs-ctrl-c"],
)
def test_interrupted_it_leaves_nothing(home: Path, reached: str, number: signal.Signals) -> None:
    process = demo(home, "--quick")
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if reached in line:
            os.killpg(process.pid, number)
            break
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130, seen + rest
    assert "Interrupted." in rest
    assert "Traceback" not in rest
    until(lambda: not left(home), "nothing is left")


def test_a_place_that_cannot_be_written_is_told_before_anything_is_done(home: Path) -> None:
    process = demo(home, "--quick", f"--picture={home}/links.txt")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "cannot be written as links.txt" in err
    assert not (home / "state").exists()


def test_a_paper_s_idea_is_shown_live_and_simulated(home: Path) -> None:
    """LWF-1 needs no network for jobs that first fit lets cross it, and share a link. Their places are live;
    how much shorter the jobs become is simulated."""
    process = demo(home, "--paper=ada-srsf", "--json=-")
    out, err = process.communicate(timeout=800)
    until(lambda: not left(home), "nothing is left")
    assert process.returncode == 0, err
    told = json.loads(out)
    rows = {(row["way"], row["job"]): row for row in told["rows"]}
    assert told["paper"] == "ada-srsf"
    assert [rows["first fit", job]["hosts"] for job in ("one", "two")] == ["z1h[1-2]", "z1h[2-3]"]
    assert [rows["LWF-1, AdaDUAL", job]["hosts"] for job in ("one", "two")] == ["z1h2", "z1h3"]
    for job in ("one", "two"):
        crossing, alone_on_host = rows["first fit", job], rows["LWF-1, AdaDUAL", job]
        assert crossing["simulated_ms"] > crossing["alone_ms"]
        assert alone_on_host["simulated_ms"] < 0.8 * crossing["simulated_ms"]
        # a busy machine makes each live time longer, by another share each: their order shows nothing, but
        # none is quicker than the link
        assert crossing["live_ms"] > CROSSING_MS


def test_a_demo_of_no_paper_is_refused_before_anything_is_made(home: Path) -> None:
    process = demo(home, "--paper=slurm")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert err == (
        "rmx: There is no demo of a paper 'slurm'. "
        "There are: metronome, cassini, foresight, ada-srsf, zone-first.\n"
    )
