"""srun's programs around a task, and its copy of a program to the hosts of the step."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_process import AGENTS, agents
from tests.unit.test_srun import run

sys.path.insert(0, str(AGENTS))
rm_around_task = importlib.import_module("rm_around_task")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the user of the job may enter and write to, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def test_lines_of_a_prolog_change_the_environment() -> None:
    said = list[bytes]()
    printed = (
        "export A=1\nexport  B = two words \nexport C\nexport =x\nunset OLD\nunset NONE\n"
        "print  hello  world \nprint\nprinter x\nexported=1\nexport E=\nprint last"
    )
    after = rm_around_task.changed({"OLD": "x", "KEPT": "k"}, printed, said.append)
    assert after == {"KEPT": "k", "A": "1", "B": " two words ", "E": ""}
    assert said == [b"hello  world \n", b"last\n"]


def test_a_task_finds_what_its_prolog_says(folder: Path) -> None:
    prolog = program(
        folder / "prolog",
        "echo export MINE=rank $SLURM_PROCID\necho unset GONE\n"
        "echo print $SLURM_SCRIPT_CONTEXT $SLURM_PROCID\ncat >&2\n",
    )
    script = f"""
export GONE=x
echo typed | srun -l -n2 --task-prolog={prolog} sh -c 'read in; echo "$in, $MINE, [$GONE]"'
SLURM_TASK_PROLOG={prolog} srun -n1 --multi-prog /dev/stdin <<< '0 printenv MINE'
"""
    with agents() as start:
        code, lines = run(start(), script)
    assert sorted(lines[:4]) == sorted(
        [f"{r}: {line}" for r in range(2) for line in (f"prolog_task {r}", f"typed, rank {r}, []")]
    )
    assert (code, lines[4:]) == (0, ["prolog_task 0", "rank 0"])


def test_a_prolog_that_fails_ends_its_task(folder: Path) -> None:
    failing = program(folder / "failing", "echo print no\nexit 3\n")
    epilog = program(folder / "epilog", "echo after\n")
    script = f"""
srun -n1 --task-prolog={failing} --task-epilog={epilog} echo ran
echo $?
srun -n1 --task-prolog={folder}/none echo ran
echo $?
"""
    with agents() as start:
        _, lines = run(start(), script)
    host = os.uname().nodename
    assert lines[0] == f"srun: error: {host}: task 0: --task-prolog failed status=3"
    assert lines[1] == "after"
    assert lines[2].endswith("task 0: Exited with exit code 3")
    assert lines[3] == "3"
    assert "--task-prolog could not be started: " in lines[4]
    assert lines[-1] == "1"
    assert "ran" not in lines


def test_an_epilog_runs_after_its_task_and_keeps_its_end(folder: Path) -> None:
    log = folder / "log"
    epilog = program(folder / "epilog", f"echo $SLURM_SCRIPT_CONTEXT $SLURM_PROCID $TOLD >> {log}; exit 4\n")
    prolog = program(folder / "prolog", "echo export TOLD=x\n")
    script = f"""
srun -n2 --task-epilog={epilog} sh -c 'echo task $SLURM_PROCID >> {log}; exit $((SLURM_PROCID + 6))'
echo $?
srun -n1 --task-prolog={prolog} --task-epilog={epilog} sh -c 'kill -USR1 $$'
echo $?
echo typed | srun -n1 --task-epilog={epilog} cat
"""
    with agents() as start:
        _, lines = run(start(), script)
    failed = [line for line in lines if line.endswith(": --task-epilog failed status=4")]
    assert len(failed) == 4
    assert "7" in lines
    assert "138" in lines
    assert "typed" in lines
    said = log.read_text().splitlines()
    assert [sorted(said[:4]), said[4:]] == [
        ["epilog_task 0", "epilog_task 1", "task 0", "task 1"],
        ["epilog_task 0", "epilog_task 0"],
    ]


def test_signals_reach_a_task_that_has_an_epilog(folder: Path) -> None:
    epilog = program(folder / "epilog", "echo after\n")
    script = f"""
task='trap "echo got; exit 5" USR1; : > {folder}/up; while :; do sleep 0.05; done'
srun -n1 --task-epilog={epilog} sh -c "$task" &
until [ -e {folder}/up ]; do sleep 0.02; done
kill -USR1 $!
wait $!
echo $?
"""
    with agents() as start:
        _, lines = run(start(), script)
    assert [line for line in lines if line in ("got", "after", "5")] == ["got", "after", "5"]


def test_a_program_is_copied_and_runs_from_there(folder: Path) -> None:
    program(folder / "mine", 'echo "$0 $1 $SLURM_PROCID"\n')
    script = f"""
cd {folder}
mkdir there
export SLURM_TASK_EPILOG=/nowhere/epilog
srun -n2 --bcast={folder}/there/copy --task-epilog=none ./mine word
SLURM_BCAST={folder}/there/ srun -n1 --task-epilog=none mine; echo $?
PATH=$PATH:. SLURM_BCAST={folder}/there/ srun -n1 --task-epilog=none mine word
srun -n1 --task-epilog=none --bcast ./mine word
srun -n1 --task-epilog=none --bcast=/nowhere/copy ./mine; echo $?
srun -n1 --bcast --multi-prog ./mine; echo $?
"""
    with agents() as start:
        _, lines = run(start(), script)
    there = folder / "there"
    assert sorted(lines[:2]) == [f"{there}/copy word {rank}" for rank in range(2)]
    assert lines[2:4] == ["srun: error: --bcast: the program mine is not found.", "1"]
    assert lines[4].startswith(f"{there}/slurm_bcast_1.")
    assert lines[4].endswith("_h1 word 0")
    assert lines[5].startswith(f"{folder}/slurm_bcast_1.")
    assert "/nowhere/copy: No such file or directory" in lines[6]
    assert lines[7:9] == ["srun: error: --bcast: ./mine is not on every host of the step.", "1"]
    assert lines[9:] == ["srun: error: --bcast copies one program; --multi-prog has several.", "1"]


def test_an_agent_that_does_not_know_them_refuses_and_runs_nothing(folder: Path) -> None:
    """Its part of a step takes no notice of what it does not know."""
    for file in AGENTS.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    part = folder / "rm_step_part.py"
    known = "rm_around_task.asked_for(asked)"
    assert known in part.read_text()
    part.write_text(part.read_text().replace(known, "asked"))
    prolog = program(folder / "prolog", "echo print ran\n")
    programs = folder / "programs"
    programs.write_text("* echo ran\n")
    script = f"""
srun -n1 --task-prolog={prolog} --task-epilog={prolog} echo ran; echo $?
SLURM_TASK_EPILOG={prolog} srun -n1 --multi-prog {programs}; echo $?
srun -n1 echo without
"""
    with agents() as start:
        agent = start(files=folder)
        host = os.uname().nodename
        _, lines = run(agent, script)
    said = [line for line in lines if " does not know " in line]
    assert said == [
        f"srun: error: the agent of {host} does not know {names}: upgrade it."
        for names in ("--task-prolog and --task-epilog", "--task-epilog")
    ]
    assert [line for line in lines if not line.startswith("srun: error:")] == ["1", "1", "without"]
