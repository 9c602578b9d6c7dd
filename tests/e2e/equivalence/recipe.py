"""The head of a corpus playbook: lines that begin with `#:` are YAML that says how to run it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

BOTH = ("first", "second")
NAMES = ("one", "two", "three", "four")


@dataclass(frozen=True, slots=True)
class Differs:
    """One difference that is meant. `where` is the place as the comparison names it; "both: …" is one of both
    runs."""

    where: str
    ansible: Any
    rm: Any
    why: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a playbook is run under both.

    `hosts` are called one, two, three, four. `dead` of them have no sshd. Both tools get the `arguments`,
    in which `{here}` is the run's directory and `{known_hosts}` the file with the hosts' keys.
    `differs` are all differences that are meant, exactly. `check` maps a task's name to what rm's check mode
    says of it (null: nothing) where that is not what the first run does: what depends on a command's output.
    `config` is the text of an ansible.cfg for both. `random` are paths whose content no two hosts share,
    `moments` tasks whose output tells the time or a process, `unordered` loops whose items Ansible takes
    as the directory has them. `collection` is one that the playbook needs. `of_machine`: what it registers
    tells of the machine, so that Ansible is always asked (see `recorded.py`). `facts_of_machine`: only the
    facts that it gathers do, and no record keeps them (`corpus/facts.yml` compares facts). `reads` are the
    files and folders that a playbook outside of the corpus reads: without them its runs are not recorded.
    """

    path: Path
    hosts: int = 1
    dead: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    differs: tuple[Differs, ...] = ()
    check: dict[str, str | None] = field(default_factory=dict)
    config: str = ""
    random: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    collection: str = ""
    of_machine: bool = False
    facts_of_machine: bool = False
    reads: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: self.hosts]

    @property
    def possible(self) -> bool:
        """Is the collection there that it needs?"""
        below = Path("ansible_collections", *self.collection.split("."))
        return not self.collection or any(Path(path, below).is_dir() for path in sys.path)

    @property
    def beside(self) -> Path:
        """The inventory of its own, where it has one: a directory with the playbook's name."""
        return self.path.parent / "inventories" / self.name


def read(path: Path) -> Recipe:
    """Raises TypeError for a word that no recipe has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#:"))) or {}
    head["differs"] = tuple(Differs(**part) for one in head.get("differs", ()) for part in _runs(one))
    for word in ("dead", "arguments", "random", "moments", "unordered"):
        head[word] = tuple(str(one) for one in head.get(word, ()))
    return Recipe(path=path, **head)


def _runs(difference: dict[str, Any]) -> list[dict[str, Any]]:
    """A difference of `both` runs is one of the first and one of the second."""
    which, colon, rest = difference["where"].partition(": ")
    wanted = BOTH if which == "both" else (which,)
    return [{**difference, "where": f"{one}{colon}{rest}"} for one in wanted]


@cache
def corpus() -> tuple[Recipe, ...]:
    """All of them: each file of tests takes its part."""
    return tuple(read(path) for path in sorted((Path(__file__).parent / "corpus").glob("*.yml")))
