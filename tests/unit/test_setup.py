"""What the make targets install: what rm needs to run for who runs it, the rest for who develops it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.shared_python import choose

ROOT = Path(__file__).parents[2]


def _recipe(folder: Path, target: str) -> list[str]:
    """What `make TARGET` would run in a fresh checkout."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-test.lock"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "scripts", folder / "scripts", dirs_exist_ok=True)
    done = subprocess.run(["make", "-n", target], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_users_set_up_installs_no_developers_tools(tmp_path: Path) -> None:
    user = _recipe(tmp_path, "setup")
    installs = [line for line in user if "pip install" in line]
    assert any("-r requirements.lock" in line for line in installs)
    assert not any("-r requirements-test.lock" in line for line in installs)
    locked = [line for line in installs + _recipe(tmp_path, "setup-dev") if "-r requirements" in line]
    assert locked
    assert all("--require-hashes" in line for line in locked)
    (cut,) = [line for line in user if line.startswith("awk")]
    (tmp_path / ".venv").mkdir()
    subprocess.run(["sh", "-c", cut], cwd=tmp_path, check=True)
    pins = [line for line in (tmp_path / ".venv/build.lock").read_text().splitlines() if line[0] != " "]
    assert [line.partition("==")[0] for line in pins] == ["pip", "setuptools"]


def test_tests_and_lint_install_what_they_need_by_themselves(tmp_path: Path) -> None:
    for target in ("test", "lint", "setup-dev"):
        assert any("-r requirements-test.lock" in line for line in _recipe(tmp_path, target)), target


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all users may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def python(place: Path) -> str:
    """Says that it is a Python that will do, and all users may run it."""
    program = place / "home/python3"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' True {program} {program}\n")
    for path in (program.parent, program):
        path.chmod(0o755)
    return str(program)


def test_frameworks_get_a_python_that_all_users_may_run(python: str, place: Path) -> None:
    assert choose(place / "not/there/yet", [python]) == python
    home = Path(python).parent
    home.chmod(0o700)
    with pytest.raises(ValueError, match=rf"others may not enter or read {home}\n(?s:.*)make frameworks"):
        choose(place, ["/no/such/python", python])
    with pytest.raises(ValueError, match=f"not a place for .*: others may not enter {home}"):
        choose(home / "checkout/.venv-ddp", [python])


def test_a_python_that_will_not_do_is_told_with_its_reason(place: Path, python: str) -> None:
    Path(python).write_text("#!/bin/sh\necho 'No module named ensurepip' >&2; exit 1\n")
    with pytest.raises(ValueError, match="lacks venv or ensurepip"):
        choose(place, [python])
    Path(python).write_text(f"#!/bin/sh\nprintf '%s\\n' False {python} {python}\n")
    with pytest.raises(ValueError, match="is older than"):
        choose(place, [python])


def test_the_environment_of_the_frameworks_is_of_that_python(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, "frameworks")
    (made,) = [line for line in recipe if "-m venv --clear .venv-ddp" in line]
    assert "scripts/shared_python.py .venv-ddp" in made
    told = subprocess.run(
        [sys.executable, "scripts/shared_python.py", "/"], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "PYTHON": "/no/such/python"},
    )  # fmt: skip
    assert told.returncode == 1
    assert "/no/such/python cannot be run: No such file" in told.stderr
