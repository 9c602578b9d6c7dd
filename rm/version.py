"""rm's version, of the newest tag of git: the one place that knows it, for what runs and for what is built.

A checkout says `1.2.0+g1a2b3c4d5e` after the tag v1.2.0, and on it as well: its files may change at any time.
An archive of a commit, and what is built from one, says `1.2.0` if the commit has the tag.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

DISTRIBUTION = "rmx"
BEFORE_TAGS = "0.1.0"  # where no tag is found: before the first one, and in a clone without tags
ARCHIVED = ".git_archival.txt"  # `git archive` fills it in, as .gitattributes asks
TAGS = "v[0-9]*"
DESCRIBED = re.compile(r"v([0-9][0-9a-z.]*?)(?:-(alpha|beta|a|b|rc)[.-]?([0-9]*))?(-[0-9]+-g[0-9a-f]+)?")
LONG = re.compile(r"(?:(v.+)-([0-9]+)-g)?([0-9a-f]{40})")
PRE = {"alpha": "a", "beta": "b"}  # as the versions of Python's packages write them
COMMIT_DIGITS = 10


def named(described: str, commit: str, changeable: bool) -> str:
    """The version of a commit. `described`: what `git describe --tags --match 'v[0-9]*'` says, "" where it
    finds no tag; `commit`: its SHA, "" if unknown; `changeable`: its files may differ from what it holds."""
    found = DESCRIBED.fullmatch(described)
    number = found[1] if found else BEFORE_TAGS
    if found and found[2]:
        number += PRE.get(found[2], found[2]) + (found[3] or "0")
    exact = found is not None and not found[4] and not changeable
    return number if exact or not commit else f"{number}+g{commit[:COMMIT_DIGITS]}"


def version_of(root: Path, changeable: bool = True) -> str:
    """The version of the rm whose package lies in `root`: a checkout, an unpacked archive or sdist, or the
    directory that a wheel was installed into. Of a checkout that is not `changeable`: its commit's."""
    if (root / ".git").exists():
        return named(*_described(root), changeable)
    from importlib import metadata  # here: a checkout needs none

    if (root / "PKG-INFO").is_file():  # an sdist
        return metadata.PathDistribution(root).version
    if (root / ARCHIVED).is_file():
        lines = (root / ARCHIVED).read_text(encoding="utf-8").splitlines()
        said = dict(line.split(": ", 1) for line in lines if ": " in line and "$Format" not in line)
        return named(said.get("describe", ""), said.get("commit", ""), False)
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # copied without what says where it is from
        return BEFORE_TAGS


def _described(root: Path) -> tuple[str, str]:
    """(what `git describe` says without `--long`, the commit's SHA), by one call of git."""
    said = _git(root, "describe", "--tags", "--match", TAGS, "--long", "--always", "--abbrev=40")
    if (found := LONG.fullmatch(said)) is None:
        return "", ""
    tag, after, commit = found.groups()
    return ("" if tag is None else tag if after == "0" else f"{tag}-{after}-g{commit}"), commit


def _git(root: Path, *words: str) -> str:
    """git's answer, "" if there is none. A user who runs rm from this checkout trusts it, with any owner."""
    try:
        done = subprocess.run(
            ["git", "-c", f"safe.directory={root}", "-C", str(root), *words],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        )  # fmt: skip
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
