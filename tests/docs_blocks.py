"""The blocks of code in the project's documents, each with what it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from rm.cli.main import rmx

ROOT = Path(__file__).parents[1]
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# indented blocks that are no commands, by the beginning of their first line
OTHERWISE = {
    "#SBATCH": "script",
    "(Priority)": "output",
    "[[monitor.archive]]": "toml",
    "[[monitor.mesh]]": "toml",
    "[gpus:vars]": "ini",
    "[policies]": "toml",
    "[science]": "accounts",
    "[root]": "accounts",
    "[web]": "toml",
    "all:": "inventory",
    "excess": "formula",
    "job     mean": "output",
    "loss ": "output",
    "max(": "formula",
    "period": "traffic",
    "[playbooks]": "toml",
    "release:": "survey",
}
ASSIGNED = re.compile(r"\w+=\S*")  # before a command, or alone
FORM = re.compile(r"\[OPTIONS\]|\[--")  # no command, but the form of one
KEYWORDS = ("do", "done")
COMMENT = re.compile(r"(^|\s+)#\s.*")
QUOTED = re.compile(r"'[^']*'")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
# a list, a pipe, a loop
BREAKS = re.compile(r"&&|\|\|?|;|^(?:until|while) |(?<=;) *do ")
HIDDEN = {ord(sign): 0xE000 + ord(sign) for sign in "|&;()"}  # in quotes, where they break nothing
SHOWN = {hidden: sign for sign, hidden in HIDDEN.items()}


class Block(NamedTuple):
    document: str
    line: int
    kind: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """What a reader types, a command with its continued lines a string."""
        if self.kind == "console":
            text = "\n".join(line[2:] for line in self.text.splitlines() if line.startswith("$ "))
        else:
            text = self.text if self.kind == "shell" else ""
        return [
            COMMENT.sub("", line) for line in text.replace("\\\n", " ").splitlines() if not FORM.search(line)
        ]

    @property
    def programs(self) -> Iterator[list[str]]:
        """The words of each program that the commands start, without redirections."""
        for command in self.commands:
            whole = QUOTED.sub(lambda found: found[0].translate(HIDDEN), command)
            inner = SUBSTITUTION.findall(whole)
            for part in (*inner, *BREAKS.split(SUBSTITUTION.sub("SUBSTITUTED", whole))):
                words = [word.translate(SHOWN) for word in words_of(part)]
                while words and ASSIGNED.fullmatch(words[0]):
                    words.pop(0)
                if words and words[0] not in KEYWORDS:
                    yield words


def all_blocks() -> list[Block]:
    return [block for path in DOCS for block in blocks_of(path)]


def blocks_of(path: Path) -> Iterator[Block]:
    from markdown_it import MarkdownIt  # which only the worker that reads blocks is to load

    document = str(path.relative_to(ROOT))
    # what is within a paragraph costs most
    for token in MarkdownIt().disable(["inline", "text_join"]).parse(path.read_text()):
        if token.type not in ("fence", "code_block"):
            continue
        assert token.map is not None
        first = token.content.lstrip()
        kinds = [kind for beginning, kind in OTHERWISE.items() if first.startswith(beginning)]
        kind = token.info.strip() or "text" if token.type == "fence" else (kinds or ["shell"])[0]
        yield Block(document, token.map[0] + 1, kind, token.content)


def words_of(line: str) -> list[str]:
    """The words up to a redirection or an ampersand; a quote that the cut has opened is closed."""
    for quote in ("", "'", '"'):
        try:
            words = shlex.split(line.strip().rstrip(")") + quote, comments=True)
        except ValueError:
            continue
        ends = [i for i, word in enumerate(words) if re.match(r"[0-9]?[<>]|&$", word)]
        return words[: ends[0]] if ends else words
    raise AssertionError(f"no shell would take: {line}")


def found_by_click(words: Sequence[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The command of the words after `rmx`, the context of its group (its own if it is a group), and the
    words that remain."""
    command: click.Command = rmx
    context = click.Context(rmx, info_name="rmx", **rmx.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command = found
        if isinstance(found, click.Group):
            context = click.Context(found, info_name=name, parent=context, **found.context_settings)
    return command, context, rest
