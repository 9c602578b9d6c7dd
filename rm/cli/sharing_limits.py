"""Limits on the command line: `--limit user.gpus=8`, `--limit job.minutes=2-00:00`, `--limit gpus=none`; and
which options were named beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rm.errors import UsageError
from rm.units import MINUTE_US, number_of, parse_time_limit_us

NONE = "none"
MINUTES = "minutes"

limit_option = click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", help="A limit; NAME=none takes it away."
)


def changes_of(words: Sequence[str]) -> dict[str, int | None]:
    """What is wanted; None: the limit goes.

    Raises:
        UsageError: one that says no number.
    """
    found: dict[str, int | None] = {}
    for word in (one for text in words for one in text.split(",") if one):
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--limit is '{word:.80}'.", "Write NAME=NUMBER, such as user.gpus=8.")
        found[name.strip()] = None if value.strip() == NONE else _number(name.strip(), value.strip())
    return found


def named_options(options: Mapping[str, Any], *lists: str) -> dict[str, Any]:
    """Those that were named; the text of `lists` as the names in it."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() & lists:
        given[name] = [one for one in given[name].replace(" ", "").split(",") if one]
    return given


def given_of(words: Sequence[str]) -> dict[str, int]:
    """For something new, which has no limit to lose."""
    return {name: value for name, value in changes_of(words).items() if value is not None}


def words_of(limits: Mapping[str, int]) -> str:
    """`gpus=8,user.running=4`"""
    return ",".join(f"{name}={value}" for name, value in sorted(limits.items()))


def _number(name: str, text: str) -> int:
    number = number_of(text)
    if number is not None:
        return number
    if name.rpartition(".")[2] == MINUTES:
        limit_us = parse_time_limit_us(text)
        if limit_us is not None:
            return -(-limit_us // MINUTE_US)
    raise UsageError(
        f"--limit {name} is '{text:.80}'.", f"Write a whole number, or {name}=none to take the limit away."
    )
