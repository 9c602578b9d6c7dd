"""Builds the documentation site into build/site/html, and checks every link on the way: make docs

The documents keep their places in the repository, and the links between them their forms. The site is
built from a copy of what git knows: documents, pictures, and the files that documents link to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
FRONT = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def stage(root: Path, source: Path) -> None:
    """Copy the documents, and the files that they link to, under their names in the repository."""
    documents = [*(root / name for name in FRONT), *sorted((root / "docs").rglob("*"))]
    for path in documents:
        if path.is_dir():
            continue
        _copy(path, root, source)
        if path.suffix == ".md":
            for target in LINK.findall(path.read_text()):
                linked = (path.parent / target).resolve()
                if "://" not in target and linked.is_file() and linked.is_relative_to(root):
                    _copy(linked, root, source)


def _copy(path: Path, root: Path, source: Path) -> None:
    goal = source / path.relative_to(root)
    goal.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, goal)


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The site in `folder`/html; the exit status is not 0 when a link, an anchor or a page is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    stage(root, folder / "source")
    notes = sorted((root / "docs" / "decisions").glob("*.md"))
    lines = "".join(f"          - {note.relative_to(root)}\n" for note in notes)
    (folder / "mkdocs.yml").write_text((root / "mkdocs.yml").read_text() + lines)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file",
         str(folder / "mkdocs.yml"), "--site-dir", str(folder / "html")],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # an advertisement of its successor
    )  # fmt: skip


def main() -> None:
    done = build(ROOT, ROOT / "build" / "site")
    print(done.stdout, end="")
    if done.returncode == 0:
        print("The site is in build/site/html: open build/site/html/index.html")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
