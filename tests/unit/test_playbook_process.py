"""The process of a run: its orders, its lines, and its end, with small programs in its place."""

from __future__ import annotations

import sys
from datetime import date

from rm.daemon.playbooks.process import AHEAD_MOST, Process
from tests.cluster import until
from tests.fakes import PATIENCE_S

ECHO = "import sys; print(sys.stdin.readline(), end='', flush=True); sys.stdin.read()"
FLOOD = 'import sys; sys.stdin.readline(); [print(\'{"kind": "note"}\', flush=True) for _ in range(500)]'


def test_the_orders_go_in_and_it_ends_with_its_standard_input() -> None:
    """The default of a survey may be a date, which is none of JSON's types."""
    process = Process((sys.executable, "-c", ECHO), {"extra": {"since": date(2026, 1, 2)}})
    assert process.lines.get(timeout=PATIENCE_S) == {"extra": {"since": "2026-01-02"}}
    assert process.wait(0) is None
    process.stop()
    assert process.lines.get(timeout=PATIENCE_S) is None
    assert process.wait(PATIENCE_S) == 0


def test_a_flood_of_lines_waits_in_the_process_and_none_is_lost() -> None:
    process = Process((sys.executable, "-c", FLOOD), {})
    until(process.lines.full, "no more lines are taken")
    assert process.lines.qsize() == AHEAD_MOST
    found = [process.lines.get(timeout=PATIENCE_S) for _ in range(501)]
    assert found == [{"kind": "note"}] * 500 + [None]
    assert process.wait(PATIENCE_S) == 0


def test_orders_to_a_process_that_has_ended_are_no_error() -> None:
    process = Process((sys.executable, "-c", "raise SystemExit(3)"), {"extra": {"a": "x" * 1_000_000}})
    assert process.lines.get(timeout=PATIENCE_S) is None
    assert process.wait(PATIENCE_S) == 3
