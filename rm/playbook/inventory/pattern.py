"""Ansible's host patterns: `all`, names, groups, globs, `~regex`, `a,b`, `a:&b`, `a:!b`, `web[0:2]`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

from rm.compiled_later import compiled_later
from rm.errors import UsageError
from rm.hints import did_you_mean


def select(
    pattern: str,
    names: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    where: str = "",
    growing: bool = False,
) -> tuple[str, ...]:
    """The hosts that a pattern means, word by word and for each in inventory order, as Ansible has them;
    raises UsageError for a word that means nothing.

    `where` begins the complaint, such as "site.yml:3: ". With `growing` such a word may come to mean
    something, and means nobody now.
    """
    chosen: dict[str, None] = {}
    kept: set[str] | None = None
    dropped: set[str] = set()
    words = [word.strip() for word in re.split(r",|:(?![^\[]*\])", pattern) if word.strip()]
    if words and all(word[0] in "!&" for word in words):
        chosen = dict.fromkeys(names)
    for word in words:
        try:
            found = _meaning(word.lstrip("!&"), names, groups, where, growing)
        except RecursionError:  # also of re
            raise UsageError(f"{where}the host pattern '{word:.100}' is nested too deeply.") from None
        if word[0] == "!":
            dropped |= found
        elif word[0] == "&":
            kept = found if kept is None else kept & found
        else:
            chosen |= dict.fromkeys(name for name in names if name in found)
    return tuple(n for n in chosen if (kept is None or n in kept) and n not in dropped)


_SUBSCRIPT = compiled_later(r"(.+)\[(?:(-?\d+)|(\d*)[:-](\d*))\]\Z")


def _meaning(
    word: str, names: Sequence[str], groups: Mapping[str, Sequence[str]], where: str, growing: bool
) -> set[str]:
    picked = _SUBSCRIPT.match(word) if not word.startswith("~") and word not in names else None
    if picked is not None:
        found = _meaning(picked[1], names, groups, where, growing)
        members = groups.get(picked[1], tuple(names))
        ordered = [name for name in members if name in found]
        if picked[2] is not None:
            index = int(picked[2])
            return set(ordered[index : index + 1 or None])
        last = int(picked[4]) + 1 if picked[4] else None  # the end belongs to it
        return set(ordered[int(picked[3] or 0) : last])
    if word in ("all", "*"):
        return set(names)
    known = [*names, *(group for group in groups if group != "all")]
    if word.startswith("~"):
        try:
            hits = [name for name in known if re.match(word[1:], name)]
        except (re.error, OverflowError) as problem:
            raise UsageError(
                f"{where}the host pattern '{word}' is not a regular expression: {problem}."
            ) from None
    else:
        hits = [name for name in known if fnmatch.fnmatchcase(name, word)]
    if not hits and word != "ungrouped" and not growing:
        raise UsageError(
            f"{where}no host and no group is called '{word}'.", did_you_mean(word, known) if known else ""
        )
    return {host for hit in hits for host in groups.get(hit, (hit,))} & set(names)
