"""docs/slurm-commands.md says of each option and format what the programs do."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rm.cli.slurm.hosts import sinfo_columns
from rm.cli.slurm.program import PROGRAMS
from rm.cli.slurm.queue import sprio, squeue_columns
from rm.cli.slurm.words import Options

DOCUMENT = (Path(__file__).parents[2] / "docs" / "slurm-commands.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", DOCUMENT, re.M)
AS_SBATCH = ("sbatch", "srun", "salloc")  # whose options are in docs/slurm.md
WITH_OPTIONS = [name for name in PROGRAMS if name not in AS_SBATCH]


def options_of(name: str) -> Options:
    found: Options = import_module(f"rm.cli.slurm.{PROGRAMS[name]}").OPTIONS
    return found


def names(spellings: tuple[str, ...]) -> list[str]:
    return [spelling.rstrip("=?").partition("/")[0] for spelling in spellings]


def test_there_is_a_row_for_each_program() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(WITH_OPTIONS)
    for name in PROGRAMS:
        assert f"`{name}`" in DOCUMENT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_row_has_each_option(row: tuple[str, str, str, str]) -> None:
    options = options_of(row[0])
    for said, known in zip(row[1:], options[:3], strict=True):
        assert re.findall(r"`--([\w-]+)`", said) == names(known)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_no_option_and_no_letter_is_there_twice(name: str) -> None:
    spellings = [spelling for group in options_of(name)[:3] for spelling in group]
    found = names(tuple(spellings))
    letters = [letter for spelling in spellings for letter in spelling.rstrip("=?").partition("/")[2]]
    assert len(set(found)) == len(found)
    assert len(set(letters)) == len(letters)
    assert set(options_of(name).variables.values()) <= set(found)


@pytest.mark.parametrize(
    ("mark", "columns"),
    [("letters", squeue_columns), ("letters of sinfo", sinfo_columns), ("letters of sprio", sprio)],
)
def test_the_letters_of_formats_are_said(mark: str, columns: ModuleType) -> None:
    said = re.search(rf"<!-- {mark} --> `(.*?)`", DOCUMENT)
    assert said is not None
    assert said[1] == " ".join(f"%{letter}" for letter in columns.COLUMNS)
