"""known_hosts, the file of accepted host keys, as text: which lines are about a host. See sshd(8).

Paramiko's own reader compares every entry with every other, which takes minutes where a thousand hosts are
connected to, and takes a revoked key for an accepted one.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

REVOKED, AUTHORITY = "@revoked", "@cert-authority"


@dataclass(frozen=True, slots=True)
class Line:
    """One key. `number` counts from 1; `marker` is REVOKED, AUTHORITY or ""; `key` is base64."""

    number: int
    marker: str
    names: str
    kind: str
    key: str


def stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes whenever the file does; None: there is none."""
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def lines_of(text: str) -> Iterable[Line]:
    """Every key of the file; lines that are none are passed over, as sshd(8) says."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) >= 3:
            yield Line(number, marker, words[0], words[1], words[2])


def about(text: str, names: Sequence[str]) -> list[Line]:
    """The lines about a host by any of its names (`10.0.0.1`, `[10.0.0.1]:2222`)."""
    named, others = _index(text)
    found = {line.number: line for name in names for line in named.get(name.lower(), ())}
    found |= {line.number: line for line in others if any(_matches(line.names, name) for name in names)}
    return [found[number] for number in sorted(found)]


@lru_cache(maxsize=2)
def _index(text: str) -> tuple[dict[str, list[Line]], list[Line]]:
    """The file's lines by the names that are written out in them, and those with patterns or hashed names.

    Who connects to a thousand hosts looks for each of them in the same text."""
    named: dict[str, list[Line]] = {}
    others: list[Line] = []
    for line in lines_of(text):
        if set(line.names) & set("*?!|"):
            others.append(line)
        else:
            for name in line.names.lower().split(","):
                named.setdefault(name, []).append(line)
    return named, others


def with_key(lines: Sequence[str], name: str, kind: str, key: str) -> list[str]:
    """The file's lines with this key as the only one that is accepted for `name`; markers stay."""
    kept = []
    for line in lines:
        first, space, rest = line.partition(" ")
        if first.startswith(("@", "#")) or not _matches(first, name):
            kept.append(line)
        elif others := [one for one in first.split(",") if one != name and not one.startswith("|1|")]:
            if _matches(",".join(others), name):  # a pattern: this host is taken out of it
                others.append(f"!{name}")
            kept.append(f"{','.join(others)}{space}{rest}")
    return [*kept, f"{name} {kind} {key}"]


def _matches(names: str, name: str) -> bool:
    found = False
    for one in names.split(","):
        if one.startswith("!"):
            if _is(one[1:], name):
                return False
        else:
            found = found or _is(one, name)
    return found


def _is(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _hashed(pattern, name)
    if "*" in pattern or "?" in pattern:
        wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(wild, name, re.IGNORECASE) is not None
    return pattern.lower() == name.lower()


def _hashed(pattern: str, name: str) -> bool:
    try:
        salt, digest = (b64decode(part, validate=True) for part in pattern[3:].split("|"))
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
