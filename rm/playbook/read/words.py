"""The words of arguments that are written as a text: `path=/x line="a b" mode={{ m | default('0644') }}`.

A space inside quotation marks, or inside `{{ }}`, `{% %}` and `{# #}`, does not end a word. As in Ansible
only what stands between words is dropped: quotation marks inside a word, and around the rest of a command,
stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rm.compiled_later import compiled_later

_OPENS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_ESCAPE = compiled_later(r"\\(U[0-9A-Fa-f]{8}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|N\{[^}]+\}|[\\'\"abfnrtv])")
_ASSIGNED = compiled_later(r"(.+?)(?<!\\)=(.*)\Z", re.DOTALL)


def refuse_unbalanced(text: str) -> None:
    """Raises ValueError where Ansible does, which counts quotation marks inside templates and comments, too.
    Source: `split_args` of ansible-core 2.19."""
    quote, depths = "", dict.fromkeys(_OPENS, 0)
    for token in re.split("[ \n]", text):
        if token == "\\" and not quote:
            continue
        for at, letter in enumerate(token):
            if letter in "'\"" and (at == 0 or token[at - 1] != "\\"):
                quote = letter if not quote else "" if letter == quote else quote
        for opens, closes in _OPENS.items():
            depths[opens] = max(0, depths[opens] + token.count(opens) - token.count(closes))
    if quote:
        raise ValueError(f"a quotation mark {quote} is not closed; below 'cmd' it may be so")
    if any(depths.values()):
        raise ValueError("a template is not closed")


def words_of(text: str) -> Iterator[tuple[str, str]]:
    """Each word as it is written, and the space after it. Raises ValueError where a quotation mark or a
    template is not closed."""
    at = 0
    while at < len(text) and text[at].isspace():
        at += 1
    while at < len(text):
        end = _end(text, at)
        after = end
        while after < len(text) and text[after].isspace():
            after += 1
        yield text[at:end], text[end:after]
        at = after


def _end(text: str, at: int) -> int:
    quote, closing = "", ""
    while at < len(text):
        two = text[at : at + 2]
        if closing:
            if two == closing:
                closing, at = "", at + 2
                continue
        elif two in _OPENS:
            closing, at = _OPENS[two], at + 2
            continue
        elif quote:
            if text[at] == "\\":
                at += 2
                continue
            quote = "" if text[at] == quote else quote
        elif text[at] in "'\"" and (at == 0 or text[at - 1] != "\\"):
            quote = text[at]
        elif text[at].isspace():
            return at
        at += 1
    if closing:
        raise ValueError(f"'{closing}' is missing")
    if quote:
        raise ValueError(f"a quotation mark {quote} is not closed")
    return at


def assigned(word: str) -> tuple[str, str] | None:
    """The name and the value of a word such as `name="some value"`; None where it is something else."""
    found = _ASSIGNED.match(word)
    if found is None:
        return None
    return found[1].strip(), unquoted(_unescaped(found[2].strip()))


def unquoted(text: str) -> str:
    closed = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[-2] != "\\"
    return text[1:-1] if closed else text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(
        lambda match: match[0].encode("ascii", "backslashreplace").decode("unicode_escape"), text
    )


def key_values(text: str) -> dict[str, str]:
    """`path=/x state=directory` as a mapping. Raises ValueError, also for a word that sets nothing."""
    found = {}
    refuse_unbalanced(text)
    for word, _ in words_of(text):
        pair = assigned(word)
        if pair is None:
            raise ValueError(f"'{word}' is not of the form name=value")
        found[pair[0]] = pair[1]
    return found
