"""What has a name stands in the document about it: policies, metrics, conditions, modules, events."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import rm.playbook.modules
from rm.core.alerts.alert import CONDITIONS, GRADED
from rm.core.jobs import events, host_events, network_events
from rm.core.jobs.handlers.array_requests import HANDLERS
from rm.core.jobs.handlers.cluster_events import CLUSTER_EVENTS
from rm.core.jobs.handlers.transitions import TRANSITIONS
from rm.core.registry import names
from rm.web.metric_families import Told, families

ROOT = Path(__file__).parents[2]


def words(file: str) -> set[str]:
    """The words between back-quotes."""
    return {
        w
        for span in re.findall(r"`([^`\n]+)`", (ROOT / file).read_text())
        for w in re.findall(r"[\w.-]+", span)
    }


@pytest.mark.parametrize("kind", ["queue", "placement", "comm"])
def test_each_policy_is_described(kind: str) -> None:
    assert set(names(kind)) <= words("docs/placement.md") | words("docs/interleaving.md")


def test_each_metric_is_described() -> None:
    ending = {"counter": "_total", "info": "_info"}
    found = {family.name + ending.get(family.type, "") for family in families(Told())}
    assert found - words("docs/monitoring.md") == set()


def test_each_condition_of_alerts_is_described() -> None:
    assert set(CONDITIONS) - words("docs/alerts.md") == set()


def test_each_condition_of_alerts_is_found_by_something() -> None:
    """Those that a cell shows are judged by one function; of each other one a finding names it."""
    findings = "".join(
        path.read_text() for path in (ROOT / "rm/core/alerts").glob("*.py") if path.name != "alert.py"
    )
    others = set(CONDITIONS) - set(GRADED)
    assert {name for name in others if f'"{name}"' not in findings} == set()


def test_each_module_is_described() -> None:
    found = {one.name for one in pkgutil.iter_modules(rm.playbook.modules.__path__)}
    assert {name.rstrip("_") for name in found if not name.startswith("_")} - words(
        "docs/playbooks.md"
    ) == set()


def test_each_program_for_hosts_is_described() -> None:
    programs = {
        path.name for path in ROOT.glob("agents/*.py") if '__name__ == "__main__"' in path.read_text()
    }
    described = {word for document in ROOT.glob("docs/*.md") for word in words(str(document))}
    assert programs - described == set()


def test_each_event_has_an_effect() -> None:
    kinds = {
        kind
        for file in (events, host_events, network_events)
        for _, kind in inspect.getmembers(file, inspect.isclass)
        if kind.__module__ == file.__name__
    }
    assert kinds == set(events.Event.__args__), "`Event` at the end of the file names them all"
    assert kinds == set(CLUSTER_EVENTS) | {kind for _, kind in TRANSITIONS} | set(HANDLERS)


def test_no_sentence_has_words_that_contributing_rules_out() -> None:
    words = re.compile(r"\b(?:that of|so many|foretell\w*)\b(?!\")")
    kinds = ("*.py", "*.md", "*.html", "*.yml", "*.toml")
    files = [
        p
        for top in ("rm", "agents", "docs", "playbooks", "examples")
        for k in kinds
        for p in (ROOT / top).rglob(k)
    ]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*files, *ROOT.glob("*.md")]
        for line in path.read_text().splitlines()
        if words.search(line)
    ]
    assert not found, "\n".join(found)
