"""Papers by name: a paper's file name is its name, with hyphens for underscores."""

from __future__ import annotations

import importlib
import pkgutil

from rm.errors import NotFound
from rm.hints import did_you_mean
from rm.sim.papers.frame.paper import Paper

PACKAGE = "rm.sim.papers"
NO_PAPERS = {"frame"}


def names() -> tuple[str, ...]:
    """All papers, sorted."""
    found = pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)
    return tuple(
        sorted(m.name.replace("_", "-") for m in found if m.name[0] != "_" and m.name not in NO_PAPERS)
    )


def module_of(name: str) -> str:
    """The module of the paper called `name`.

    Raises:
        NotFound: there is no such paper.
    """
    wanted = name.strip().lower().replace("_", "-")
    known = names()
    if wanted not in known:
        raise NotFound(f"There is no paper '{name}'.", did_you_mean(wanted, known))
    return f"{PACKAGE}.{wanted.replace('-', '_')}"


def load(module: str) -> Paper:
    """The paper that a module declares."""
    paper = importlib.import_module(module).PAPER
    assert isinstance(paper, Paper), f"{module}.PAPER is not a Paper"
    return paper
