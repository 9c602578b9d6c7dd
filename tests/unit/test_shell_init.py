"""The command name: whatever happens to the hook, the real rm deletes nothing that a verb names."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from rm.cli.main import JOB_VERBS, run
from rm.cli.shell_init import hook, shim

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
LINES = re.findall(r"^    (rm .+)$", DOCUMENT, re.MULTILINE)
REAL_RM = "/bin/rm"
SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]
pytestmark = pytest.mark.skipif(not os.access(REAL_RM, os.X_OK), reason="no /bin/rm here")


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory full of what the documented lines name; `bin/rmx` records its arguments."""
    box = tmp_path / "box"
    box.mkdir()
    words = {word for line in LINES for word in shlex.split(line)[2:]}
    values = {word.partition("=")[2] for word in words if "=" in word} | {"42", "43", "train.sh"}
    for name in sorted((words | values) - {""}):
        if "/" not in name:
            (box / name).write_text("precious")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rmx"
    program.write_text('#!/bin/sh\nprintf "rmx:%s\\n" "$@"\nexit 9\n')
    program.chmod(0o755)
    monkeypatch.chdir(box)
    return box


def contents(box: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in box.iterdir()}


def sh(script: str, shell: str = "bash", **env: str) -> subprocess.CompletedProcess[str]:
    arguments = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"], "sh": []}[shell]
    return subprocess.run(
        [shell, *arguments, "-c", script],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **env},
    )  # fmt: skip


def test_the_document_shows_every_verb() -> None:
    assert {shlex.split(line)[1] for line in LINES} == set(JOB_VERBS)


@pytest.mark.parametrize("posixly", [False, True], ids=["gnu", "POSIXLY_CORRECT"])
@pytest.mark.parametrize("line", LINES)
def test_without_the_hook_a_documented_line_deletes_nothing(sandbox: Path, line: str, posixly: bool) -> None:
    if not posixly:  # not even a file that is called as the verb
        (sandbox / shlex.split(line)[1]).write_text("precious")
    before = contents(sandbox)
    env = {**os.environ, **({"POSIXLY_CORRECT": "1"} if posixly else {})}
    words = shlex.split(line)[1:]
    if posixly:  # then options after the verb are names: such files exist only in this sandbox
        for word in words:
            (sandbox / word).unlink(missing_ok=True)
        before = contents(sandbox)
    done = subprocess.run([REAL_RM, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode != 0
    assert contents(sandbox) == before


@pytest.mark.parametrize("line", LINES)
def test_a_documented_line_is_accepted_by_the_parser(line: str) -> None:
    from rm.cli.main import refuse_what_rm_would_delete, rmx

    words = shlex.split(line)[1:]
    refuse_what_rm_would_delete(words)
    command = rmx.get_command(None, words[0])  # type: ignore[arg-type]
    assert command is not None
    # below rmx, as always: a command remembers the names of its help option from the first time
    above = click.Context(rmx, **rmx.context_settings)
    command.make_context(words[0], words[1:], parent=above)  # raises when an option is unknown


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        (["submit", "train.sh"], "Write: rm submit --file=train.sh   or: rmx submit train.sh"),
        (["submit", "--file", "train.sh"], "rm submit --file=train.sh"),
        (["submit", "-n", "4", "--file=train.sh"], "rm submit"),
        (["cancel", "42"], "rm cancel --job=42"),
        (["cancel", "--job", "42"], "rm cancel --job=42"),
        (["submit", "--", "train.sh"], "rm submit"),
        (["host", "--host=a"], "Write: rmx host"),
        ([], "is not a verb of `rm`"),
    ],
)
def test_forms_that_the_real_rm_would_act_upon_are_refused(
    words: list[str], safe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--as-rm", *words]) == 2
    assert safe in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_the_hook_takes_over_for_our_verbs_only(sandbox: Path, shell: str) -> None:
    code = hook(shell, str(sandbox.parent / "bin" / "rmx"))
    taken = sh(f"{code}\nrm submit --file=train.sh '--wrap=two words'", shell)
    assert taken.stdout == "rmx:--as-rm\nrmx:submit\nrmx:--file=train.sh\nrmx:--wrap=two words\n"
    assert taken.returncode == 9
    assert sh(f"{code}\nrm 42 train.sh", shell).returncode == 0
    assert not (sandbox / "42").exists()
    assert not (sandbox / "train.sh").exists()
    assert sh(f"{code}\nrm -f submit nothing", shell).stdout == ""
    assert sh(f"{code}\nrm", shell).stdout == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_file_named_as_a_verb_belongs_to_the_real_rm(sandbox: Path, shell: str, kind: str) -> None:
    verb = sandbox / "queue"
    if kind == "file":
        verb.write_text("mine")
    else:
        verb.symlink_to("nowhere")
    done = sh(f"{hook(shell, str(sandbox.parent / 'bin' / 'rmx'))}\nrm queue", shell)
    assert (done.returncode, done.stdout, os.path.lexists(verb)) == (0, "", False)


@pytest.mark.parametrize("extra", ["", "set -a; "], ids=["plain", "allexport"])
def test_the_hook_stays_out_of_child_shells(sandbox: Path, extra: str) -> None:
    code = hook("bash", str(sandbox.parent / "bin" / "rmx"))
    done = sh(f"{extra}{code}\nbash -c 'type -t rm'", "bash")
    assert done.stdout == "file\n"


def test_the_hook_can_be_defined_where_rm_is_an_alias(sandbox: Path) -> None:
    code = hook("bash", str(sandbox.parent / "bin" / "rmx"))
    done = sh(
        f"shopt -s expand_aliases\nalias rm='rm -i'\neval {shlex.quote(code)}\ntype -t rm; \\rm queue", "bash"
    )
    assert done.stderr == ""
    assert done.stdout == "alias\nrmx:--as-rm\nrmx:queue\n"


def test_the_shim_passes_on_to_the_real_rm(sandbox: Path) -> None:
    program = sandbox.parent / "bin" / "rm"
    program.write_text(shim(str(sandbox.parent / "bin" / "rmx"), REAL_RM))
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    assert sh("rm cancel --job=42", "sh", PATH=path).stdout == "rmx:--as-rm\nrmx:cancel\nrmx:--job=42\n"
    assert sh("rm 42 && ! test -e 42", "sh", PATH=path).returncode == 0
    (sandbox / "cancel").write_text("mine")
    assert sh("rm cancel && ! test -e cancel", "sh", PATH=path).returncode == 0


def test_the_printed_hook_is_a_shells_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shell-init", "bash"]) == 0
    printed = capsys.readouterr().out
    assert sh(f"{printed}\ntype -t rm").stdout == "function\n"
    assert run(["shell-init", "--shim"]) == 0
    assert capsys.readouterr().out.startswith("#!/bin/sh\n")
    assert run(["shell-init", "tcsh"]) == 2


def test_the_package_installs_no_program_called_rm() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert list(project["scripts"]) == ["rmx"]
    assert "gui-scripts" not in project
