"""The text of --constraint and --prefer: which features the hosts of a job must have, and how many of them.

Source: sbatch(1) of Slurm 22.05, --constraint. `&` and `|` on one level need parentheses, since Slurm reads
them from left to right, and every programming language otherwise. `!` is of later versions. Counts are
`a*2` alone, or several in brackets, `[a*2&b*4]`, beside which stands what all hosts must have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from rm.errors import UsageError

ALTERNATIVES_MAX = 64  # that brackets may make of one text
TEXT_MAX = 4_096  # characters
DEPTH_MAX = 32
HOSTS_MAX = 99_999  # of one kind
KINDS_MAX = 16  # that are counted: to find hosts for them takes time for each

_TOKEN = re.compile(r"\s*([A-Za-z0-9_][\w.:+=-]*|[&|!()\[\]*])")
_NAME = re.compile(r"[A-Za-z0-9_]")
_NUMBER = re.compile(r"[1-9][0-9]{0,4}\Z")
_HINT = (
    "Write features with &, |, ! and parentheses: a100&!(slow|old); [rack1|rack2]: all hosts of one kind; "
    "[rack1*2&rack2*4]: these numbers of each."
)


class Expression(NamedTuple):
    """`kind`: "name" with `name`, or one of & | ! [ * with `parts`; of brackets one part holds on all hosts,
    and under * on `hosts` of them."""

    kind: str
    name: str = ""
    parts: tuple[Expression, ...] = ()
    hosts: int = 0

    def holds(self, features: Collection[str]) -> bool:
        """Has a host with these features what is asked for?"""
        if self.kind == "name":
            return self.name in features
        if self.kind == "*":
            return True  # of others than those counted nothing is asked
        if self.kind == "!":
            return not self.parts[0].holds(features)
        each = (part.holds(features) for part in self.parts)
        return all(each) if self.kind == "&" else any(each)

    def names(self) -> Iterator[str]:
        if self.kind == "name":
            yield self.name
        for part in self.parts:
            yield from part.names()

    def __str__(self) -> str:
        if self.kind == "name":
            return self.name
        if self.kind == "!":
            return f"!{self.parts[0]._inner()}"
        if self.kind == "*":
            return f"{self.parts[0]._inner()}*{self.hosts}"
        if self.kind == "[":
            return f"[{'|'.join(map(str, self.parts))}]"
        return self.kind.join(part._inner() for part in self.parts)

    def _inner(self) -> str:
        return f"({self})" if self.kind in ("&", "|") else str(self)


@lru_cache(maxsize=4_096)
def parse(text: str) -> Expression | None:
    """None for an empty text.

    Raises:
        UsageError: it is no such text; a single sentence says what is wrong.
    """
    if not text.strip():
        return None
    if len(text) > TEXT_MAX:
        raise UsageError(f"A list of features has {len(text)} characters, and may have {TEXT_MAX}.")
    reader = _Reader(text)
    found = reader.whole()
    if _combinations(found) > ALTERNATIVES_MAX:
        raise UsageError(f"'{text[:80]}' leaves the choice of more than {ALTERNATIVES_MAX} kinds of hosts.")
    if any(_counts(part) for part in _of_all(found)) or not _apart(_counted(found)):
        raise reader.wrong(
            "numbers of hosts stand alone, as a*2, or in brackets, as [a*2&b*4], where each feature has one"
        )
    if len(_counted(found)) > KINDS_MAX:
        raise UsageError(f"'{text[:80]}' counts more than {KINDS_MAX} kinds of hosts.", "Count fewer kinds.")
    return found


@lru_cache(maxsize=4_096)
def alternatives(text: str) -> tuple[str, ...]:
    """What all hosts must have, without brackets, once for each choice of their parts, in order; one text
    without any, and an empty one where only some hosts are counted."""
    found = parse(text)
    if found is None:
        return ()
    of_all = _of_all(found)
    if not of_all:
        return ("",)
    rest = of_all[0] if len(of_all) == 1 else Expression("&", parts=of_all)
    return tuple(dict.fromkeys(map(str, _spread(rest))))


@lru_cache(maxsize=4_096)
def kinds(text: str) -> tuple[tuple[str, int], ...]:
    """What some of the hosts must have, and how many at least; no host counts for two of them."""
    found = parse(text)
    return () if found is None else tuple((str(one.parts[0]), one.hosts) for one in _counted(found))


def uncounted(text: str) -> Expression | None:
    """As `parse`, of a text that may count no hosts.

    Raises:
        UsageError: it does, or is no such text.
    """
    if kinds(text):
        raise UsageError(
            f"'{text[:80]}' counts hosts with *, which only --constraint of a job does.", "Leave * out."
        )
    return parse(text)


@lru_cache(maxsize=16_384)
def matches(text: str, features: frozenset[str]) -> bool:
    """Has a host with these features what the text asks for? Every host has what an empty one asks for.
    Known for each text and set of features: hosts are alike, and each pass asks for all of them."""
    found = parse(text)
    return found is None or found.holds(features)


def _counted(found: Expression) -> tuple[Expression, ...]:
    """The parts with counts, where they may stand."""
    together = found.parts if found.kind == "&" else (found,)
    groups = [parts for parts in map(_in_brackets, together) if parts]
    return groups[0] if len(groups) == 1 else (found,) if found.kind == "*" else ()


def _of_all(found: Expression) -> tuple[Expression, ...]:
    """The parts that hold on all hosts."""
    if not _counted(found):
        return (found,)
    together = found.parts if found.kind == "&" else ()
    return tuple(part for part in together if not _in_brackets(part))


def _in_brackets(part: Expression) -> tuple[Expression, ...]:
    """The counted parts of `[a*2&b*4]`; none of anything else."""
    if part.kind != "[" or len(part.parts) != 1:
        return ()
    (inner,) = part.parts
    parts = inner.parts if inner.kind == "&" else (inner,)
    return parts if all(one.kind == "*" for one in parts) else ()


def _counts(one: Expression) -> bool:
    return one.kind == "*" or any(map(_counts, one.parts))


def _chooses(one: Expression) -> bool:
    return one.kind == "[" or any(map(_chooses, one.parts))


def _apart(counted: tuple[Expression, ...]) -> bool:
    """Has none of what is counted numbers or brackets of its own?"""
    return not any(_counts(part) or _chooses(part) for one in counted for part in one.parts)


def _combinations(one: Expression) -> int:
    inner = [_combinations(part) for part in one.parts]
    if one.kind == "[":
        return sum(inner)
    count = 1
    for number in inner:
        count *= number
    return count


def _spread(one: Expression) -> Iterator[Expression]:
    if one.kind == "[":
        for part in one.parts:
            yield from _spread(part)
        return
    for parts in product(*(tuple(_spread(part)) for part in one.parts)):
        yield one._replace(parts=parts)


class _Reader:
    """Recursive descent: whole = terms joined by one kind of operator."""

    def __init__(self, text: str) -> None:
        self.text, self.depth = text, 0
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.wrong(f"'{text[at:].strip()[:1]}' has no meaning there")
            self.tokens.append(match[1])
            at = match.end()

    def wrong(self, why: str) -> UsageError:
        return UsageError(f"'{self.text[:80]}' is no list of features: {why}.", _HINT)

    def whole(self) -> Expression:
        found = self.joined()
        if self.tokens:
            raise self.wrong(f"'{self.tokens[0]}' is one too many")
        return found

    def joined(self) -> Expression:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.wrong("its parentheses are too deep")
        parts, operator = [self.term()], ""
        while self.tokens and self.tokens[0] in ("&", "|"):
            if operator and self.tokens[0] != operator:
                raise self.wrong("& and | beside each other need parentheses")
            operator = self.tokens.pop(0)
            parts.append(self.term())
        self.depth -= 1
        return Expression(operator, parts=tuple(parts)) if operator else parts[0]

    def term(self) -> Expression:
        if not self.tokens:
            raise self.wrong("a feature is missing at its end")
        token = self.tokens.pop(0)
        if token == "!":
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self.wrong("it has too many !")
            found = Expression("!", parts=(self.term(),))
            self.depth -= 1
        elif token == "(":
            found = self.joined()
            self.closed(")")
        elif token == "[":
            inner = self.joined()
            found = Expression("[", parts=inner.parts if inner.kind == "|" else (inner,))
            self.closed("]")
        elif _NAME.match(token):
            found = Expression("name", token)
        else:
            raise self.wrong(f"'{token}' has no meaning there")
        if self.tokens and self.tokens[0] == "*":
            self.tokens.pop(0)
            found = Expression("*", parts=(found,), hosts=self.number())
        return found

    def number(self) -> int:
        token = self.tokens.pop(0) if self.tokens else ""
        if not _NUMBER.match(token):
            raise self.wrong(f"behind * stands a number of hosts, from 1 to {HOSTS_MAX}")
        return int(token)

    def closed(self, bracket: str) -> None:
        if not self.tokens or self.tokens.pop(0) != bracket:
            raise self.wrong(f"a '{bracket}' is missing")
