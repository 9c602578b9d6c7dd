"""A command line in this process: its exit code and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rm.cli.main import run

# what commands that scripts call in loops do without: each takes a part of their time
HEAVY = {
    "click", "msgspec", "dataclasses", "http.client", "urllib.parse", "pathlib", "ssl", "typing", "re",
    "json", "collections", "functools", "contextlib", "enum", "tomllib", "importlib", "shlex", "datetime",
}  # fmt: skip


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        value = json.loads(self.out)
        assert value["version"] == 1
        return value


Rmx = Callable[..., Result]


def caller(capfd: pytest.CaptureFixture[str]) -> Rmx:
    def call(*words: str) -> Result:
        capfd.readouterr()
        code = run(words)
        return Result(code, *capfd.readouterr())

    return call
