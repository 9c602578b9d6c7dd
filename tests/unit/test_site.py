"""The documentation site is built from the documents as they are, and says what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rm.cli.main import VERBS
from scripts import man
from scripts.site import LINK, ROOT, build

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_the_site_builds_without_a_broken_link_and_has_every_page(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stdout
    made = tmp_path / "site" / "html"
    for page in PAGES:
        name = page.relative_to(ROOT).with_suffix(".html")
        assert (made / name).exists() or (made / name).with_name("index.html").exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_list_of_all_documents_has_each(page: Path) -> None:
    if page.parent.name == "papers":
        page = page.with_name("README.md")
    listed = {
        (ROOT / "docs" / target).resolve() for target in LINK.findall((ROOT / "docs/index.md").read_text())
    }
    assert page in listed or page.name == "index.md"


def sentences() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    return [found for line in re.findall(r"^\*\*.*\*\*$", text, re.MULTILINE)
            for found in re.findall(r"\*\*(.+?)\*\*", line)]  # fmt: skip


def source() -> str:
    """All strings of the program as they read, their parts joined and each {…} a …"""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "rm").rglob("*.py")))
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    return re.sub(r"\{[^{}]*\}", "…", joined)


def test_the_sentences_that_troubleshooting_explains_are_the_programs() -> None:
    said = source()
    assert len(sentences()) > 10
    for sentence in sentences():
        for part in re.split("…", sentence):
            assert len(part) < 8 or part in said, f"no error says {part!r}"


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    man.write(tmp_path, "2026-01-31")
    made = {path.name for path in tmp_path.iterdir()}
    assert {f"rmx-{verb}.1" for verb in VERBS} | {"rmx.1", "rmx-host-drain.1"} <= made
    submit = (tmp_path / "rmx-submit.1").read_text()
    assert "Submit SCRIPT with its arguments as a batch job." in submit
    assert "--gpus-per-task" in submit.replace("\\", "")
