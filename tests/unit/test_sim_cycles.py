"""A simulation collects no cycles while it goes on, so that it may make none that last."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rm.collector import uncollected
from rm.sim import experiment, scenario, world

FILE = Path(__file__).parents[2] / "examples/sim/shared-links.toml"


@pytest.mark.parametrize(
    ("placement", "comm"),
    [
        ("first-fit", "none"),
        ("zone", "srsf-n"),
        ("metronome", "metronome"),
        ("metronome", "crux"),
        ("metronome", "foresight"),
        ("cassini", "cassini"),
        ("lwf", "adadual"),
    ],
)
def test_it_makes_none(placement: str, comm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    @contextmanager
    def counted() -> Iterator[None]:
        with uncollected():
            gc.collect()
            yield
            left.append(gc.collect())

    monkeypatch.setattr(world, "uncollected", counted)
    text = FILE.read_text().replace('"first-fit"', f'"{placement}"').replace('"none"', f'"{comm}"')
    # a quarter of each job: those of half a minute still share links with those that come after them
    text = text.replace("iterations = 400", "iterations = 100").replace(
        "iterations = 600", "iterations = 150"
    )
    path = tmp_path / FILE.name
    path.write_text(text)
    experiment.run(scenario.read(path), 1, FILE.parent)
    assert left == [0]
