"""A command of Slurm's in this process: its exit code and what it printed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from rm.cli.slurm import program
from tests.command_line import Result

Slurm = Callable[..., Result]


def caller(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setattr("rm.cli.output._program", "rmx")  # as it was, after the test

    def call(name: str, *words: str) -> Result:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", [name, *words])
        code = program.main(name)
        return Result(code, *capfd.readouterr())

    return call
