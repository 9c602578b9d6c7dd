"""The quick reader of rm.toml says what `tomllib` says, or nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.client.plain_toml import plain_table

TEXT = r"""
[daemon]|[[daemon]]|[a]|[a.b]|[[a]]|[[a.b]]|[daemon.x]|[a-1_]|[a b]|[]|[a|socket = "/run/rm.sock"
url="ssh://h" # far|b = 1|b = 1_000|b = 01|b = -0|b = 1__0|b = 1.5|b = 1.|b = .5|b = 1e5|b = 1E5
b = 8.5e-10|b = 1e|b = 1e+5|b = 1_e5|b = true|b = True|b = {}|b = {c = 1}|b = []|b = [1, 2,]|b = [1 2]
b = ["a,b", "c]d"] # e|b = [[1], [2]]|b = [1,|]|b = 1979-05-27|b = ""|b = 'x'|b = "\n"|b = "é"
b = inf|b = 0x1F|b =|= 1|a.b = 1|"b" = 1|# comment|daemon = 1|b = 1 2|x = 1 # y|+1|b = +1|b = -1.25
b = 1_0.2_5|b = "a" "b"|b = "a""|x = [ ]|x = [ , ]|b = ["", ""]
"""
LINES = (
    *(line for row in TEXT.strip().splitlines() for line in row.split("|")),
    "\t x = 1\r", "x = 1\rb = 2", 'b = "a\tb"', "# a\x01", "# a\tb\xe9", "x\0 = 1", "b = \u0661", 'b = """',
)  # fmt: skip


def as_tomllib_reads(text: str) -> dict[str, object] | None:
    """None: it is no TOML, or `daemon` is no table."""
    try:
        found = tomllib.loads(text).get("daemon", {})
    except tomllib.TOMLDecodeError:
        return None
    return found if isinstance(found, dict) else None


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=8), max_size=8), st.sampled_from(("\n", "\r\n")))
def test_what_it_reads_is_what_tomllib_reads(lines: list[str], end: str) -> None:
    text = end.join(lines)
    found = plain_table(text, "daemon")
    if found is not None:
        read = as_tomllib_reads(text)
        assert read is not None
        # keys of tables below it are not asked for
        assert found == {key: value for key, value in read.items() if f"[daemon.{key}]" not in text}


@pytest.mark.parametrize("line", LINES)
def test_each_kind_of_line(line: str) -> None:
    for text in (line, f"[daemon]\n{line}", f'[daemon]\nsocket = "s"\n{line}\nlast = 1'):
        found = plain_table(text, "daemon")
        assert found is None or as_tomllib_reads(text) is not None


def test_the_file_that_comes_with_rm_is_plain() -> None:
    text = (Path(__file__).parents[2] / "rm.toml").read_text()
    assert plain_table(text, "daemon") == tomllib.loads(text)["daemon"]
