"""A command line in this process: its exit code and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rm.cli.main import run


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
