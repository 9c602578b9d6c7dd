"""What the make targets install: what rm needs to run for who runs it, the rest for who develops it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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
    (cut,) = [line for line in user if line.startswith("awk")]
    (tmp_path / ".venv").mkdir()
    subprocess.run(["sh", "-c", cut], cwd=tmp_path, check=True)
    pins = [line for line in (tmp_path / ".venv/build.lock").read_text().splitlines() if line[0] != " "]
    assert [line.partition("==")[0] for line in pins] == ["setuptools"]


def test_tests_and_lint_install_what_they_need_by_themselves(tmp_path: Path) -> None:
    for target in ("test", "lint", "setup-dev"):
        assert any("-r requirements-test.lock" in line for line in _recipe(tmp_path, target)), target
