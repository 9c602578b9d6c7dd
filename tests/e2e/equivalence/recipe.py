"""The head of a corpus playbook: lines that begin with `#:` are YAML that says how to run it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

NAMES = ("one", "two", "three", "four")


@dataclass(frozen=True, slots=True)
class Differs:
    """One difference that is meant. `where` is the place as the comparison names it."""

    where: str
    ansible: Any
    rm: Any
    why: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a playbook is run under both.

    `hosts` are called one, two, three, four. `dead` of them have no sshd. Both tools get the `arguments`.
    `differs` are all differences that are meant, exactly. `check` maps a task's name to what rm's check mode
    says of it where that is not what the first run does (a task whose condition looks at a command's output).
    `random` are paths whose content no two hosts share. `collection` is one that the playbook needs.
    """

    path: Path
    hosts: int = 1
    dead: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    differs: tuple[Differs, ...] = ()
    check: dict[str, str] = field(default_factory=dict)
    random: tuple[str, ...] = ()
    collection: str = ""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: self.hosts]

    @property
    def beside(self) -> Path:
        """The inventory of its own, where it has one: a directory with the playbook's name."""
        return self.path.parent / "inventories" / self.name


def read(path: Path) -> Recipe:
    """Raises TypeError for a word that no recipe has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#:"))) or {}
    head["differs"] = tuple(Differs(**one) for one in head.get("differs", ()))
    for word in ("dead", "arguments", "random"):
        head[word] = tuple(str(one) for one in head.get(word, ()))
    return Recipe(path=path, **head)


def corpus() -> list[Recipe]:
    return [read(path) for path in sorted((Path(__file__).parent / "corpus").glob("*.yml"))]
