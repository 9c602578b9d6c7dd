"""Every block of code in the documents does what it shows: a shell, rmx, rm.toml or Python takes it as it
stands, and commands that need no cluster are run."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from rm.api.sharing import Accounts
from rm.bootstrap.checks import complaints
from rm.cli.account import as_toml, from_toml
from rm.cli.main import JOB_VERBS
from rm.config import load_config
from rm.core.model.job import JobState
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse as parse_inventory
from rm.playbook.model.located import load
from rm.playbook.read.questions import survey_of
from rm.submission import traffic_file
from tests import builders
from tests.command_line import caller
from tests.docs_blocks import ROOT, Block, all_blocks, found_by_click
from tests.examples import try_each
from tests.fake_service import FakeService, serving

RMX = ("rmx", "/opt/rmx/bin/rmx")
OTHERS = {
    ".", "cat", "cd", "chmod", "chown", "cp", "curl", "date", "eval", "export", "git", "install", "ln",
    "make", "mkdir", "printf", "python3", "sacct", "sattach", "sbatch", "sbcast", "scancel", "sleep",
    "source", "srun", "ssh-keygen", "sshare", "systemctl", "useradd", "/opt/rmx/bin/pip",
}  # fmt: skip
FILES = ("train.sh", "prepare.sh", "fit.sh", "mesh.json")  # that the commands of blocks read
# what a service without a scheduler answers, and of that not arrays, refusals, and the task whose log it lost
JOBS = {"submit", "queue", "show", "why", "logs", "wait", "cancel", "hold", "release", "requeue",
        "iterations", "hosts", "links", "status"}  # fmt: skip
UNANSWERED = re.compile(r"\b36\b|36_|--nodes=9|-d afterok|--task 3")
ALONE = {
    "rmx config check", "rmx playbook list", "rmx sim paper",
    "rmx sim run examples/sim/shared-links.toml --jobs",
    "rmx sim run examples/sim/shared-links.toml --plot run.svg",
    "rmx interleave examples/interleave.json --svg circles.svg",
    "rmx shell-init bash", "rmx shell-init zsh", "rmx shell-init fish", "/opt/rmx/bin/rmx --version",
}  # fmt: skip


blocks = cache(all_blocks)  # read by the worker that has this file, and not while tests are collected


def of(*kinds: str) -> list[Block]:
    return [block for block in blocks() if block.kind in kinds]


@cache
def commands() -> list[tuple[str, ...]]:
    """The document and the words of each."""
    return sorted({(block.document, *words) for block in of("shell", "console") for words in block.programs})


def ours() -> list[tuple[str, ...]]:
    return [command for command in commands() if command[1] in (*RMX, "rm")]


def each_block(check: Callable[[Block], object], *kinds: str) -> None:
    try_each(of(*kinds), check, lambda block: block.name)


def each_command(found: list[tuple[str, ...]], check: Callable[[tuple[str, ...]], object]) -> None:
    try_each(found, check, " ".join)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the blocks name."""
    for name in FILES:
        (tmp_path / name).write_text("#!/bin/sh\necho hi\n")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RM_CONFIG", str(ROOT / "rm.toml"))
    return tmp_path


def test_every_block_has_a_kind() -> None:
    kinds = {"shell", "console", "output", "text", "formula", "script", "python", "toml", "json", "ini",
             "inventory", "traffic", "accounts", "survey"}  # fmt: skip
    assert {block.name: block.kind for block in blocks() if block.kind not in kinds} == {}
    assert {block.kind for block in blocks()} == kinds


def test_a_shell_takes_it() -> None:
    def check(block: Block) -> None:
        text = block.text if block.kind == "script" else "\n".join(block.commands)
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    each_block(check, "shell", "console", "script")


def test_every_program_is_known() -> None:
    """A block of something else than commands has no kind yet."""
    assert {command for command in commands() if command[1] not in (*RMX, "rm", *OTHERS)} == set()


def test_rmx_takes_the_words(there: Path) -> None:
    def check(command: tuple[str, ...]) -> None:
        _, program, *words = command
        assert program != "rm" or words[0] in JOB_VERBS
        found, context, rest = found_by_click(words)
        if rest == ["--version"]:
            return
        assert not isinstance(found, click.Group) or found.invoke_without_command, "only a part of a command"
        with found.make_context(found.name, rest, parent=context):  # each value converted
            pass

    each_command(ours(), check)


def test_what_needs_no_cluster_runs(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def check(command: tuple[str, ...]) -> None:
        done = caller(capfd)(*command[2:])
        assert (done.code, bool(done.out)) == (0, True), done.err

    each_command([c for c in ours() if " ".join(c[1:]) in ALONE], check)


class Ready(FakeService):
    """A service that has the jobs that the documents speak of. All have ended."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(1, 44):
            self.table[number] = builders.job(number, state=JobState.COMPLETED, ntasks=2)

    async def submit(self, specs: Any, *asked: Any) -> list[int]:
        """Its jobs end at once, for those that wait."""
        numbers = await super().submit(specs, *asked)
        for number in numbers:
            self.finish(number)
        return numbers


def test_what_a_service_answers_runs(
    there: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(command: tuple[str, ...]) -> None:
        with serving(there / "rm.sock", kind=Ready) as daemon:
            monkeypatch.setenv("RM_DAEMON__SOCKET", daemon.socket)
            if command[2] == "cancel":
                daemon.service.run(next((int(word) for word in command if word.isdigit()), 42))
            done = caller(capfd)(*command[2:])
        assert done.code == 0, done.err

    each_command([c for c in ours() if c[2] in JOBS and not UNANSWERED.search(" ".join(c))], check)


def test_rm_takes_the_configuration(tmp_path: Path) -> None:
    def check(block: Block) -> None:
        file = tmp_path / "rm.toml"
        file.write_text(block.text)
        wrong = complaints(load_config(str(file), {}))
        assert [sentence for sentence in wrong if "/etc/rm/" not in sentence] == []  # a reader's own file

    each_block(check, "toml")


def test_it_is_json() -> None:
    def check(block: Block) -> None:
        found = json.loads(block.text)
        if block.document == "docs/interleaving.md":
            assert found == json.loads((ROOT / "examples/interleave.json").read_text())

    each_block(check, "json")


def test_it_is_an_inventory() -> None:
    def check(block: Block) -> None:
        inventory = parse_inventory(block.text, "hosts.yml" if block.kind == "inventory" else "hosts")
        assert block.kind == "ini" or len(to_hosts(inventory)) == 3

    each_block(check, "inventory", "ini")


def test_it_is_a_file_of_accounts() -> None:
    def check(block: Block) -> None:
        text = textwrap.dedent(block.text)
        accounts, members, qos, limits, partitions = from_toml(text.encode(), "accounts.toml")
        found = Accounts(accounts=accounts, members=members, qos=qos, limits=limits, partitions=partitions)
        assert as_toml(found).strip() == text.strip()

    each_block(check, "accounts")


def test_it_is_a_survey() -> None:
    (block,) = of("survey")
    found = survey_of(load(textwrap.dedent(block.text), "site.survey.yml"), "site.survey.yml")
    assert [(one.name, one.private) for one in found] == [
        ("release", False), ("mirrors", False), ("password", True), ("host_prefix", False),
    ]  # fmt: skip


def test_it_is_a_traffic_file() -> None:
    (block,) = of("traffic")
    assert traffic_file.parse(textwrap.dedent(block.text), "traffic.toml")["phases"]


def test_python_takes_it_and_rm_has_what_it_imports() -> None:
    def check(block: Block) -> None:
        tree = compile(block.text, block.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(tree, ast.Module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rm."):
                module = importlib.import_module(node.module or "")
                assert [a.name for a in node.names if not hasattr(module, a.name)] == []

    each_block(check, "python")
