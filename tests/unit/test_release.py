"""A release: the same bytes each time, all that it needs, and nothing that only tests need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts import dist, sbom

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_001
SHIPPED = {
    "agents": "rm/shipped/agents",
    "examples": "rm/shipped/examples",
    "playbooks": "rm/shipped/playbooks",
}
SHIPPED |= {"rm": "rm", "migrations": "rm/adapters/migrations", "packaging": "data/share/rmx/packaging"}
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def _tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout of git")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and os.path.lexists(ROOT / name)]


def _built(folder: Path, group_writes: bool, mtime: int) -> list[Path]:
    """Built from a copy of the checkout, whose files have other modes and times than the checkout's."""
    tree = folder / "tree"
    for name in _tracked():
        copy = tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy, follow_symlinks=False)
        if not copy.is_symlink():
            copy.chmod(copy.stat().st_mode & 0o700 | (0o060 if group_writes else 0))
            os.utime(copy, (mtime, mtime))
    (tree / ".git_archival.txt").write_text(f"describe: v9.8.7\ncommit: {'0' * 40}\n")  # as git archive does
    return dist.build(tree, folder / "out", EPOCH)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The sdist and the wheel."""
    return _built(tmp_path_factory.mktemp("one"), group_writes=False, mtime=1_600_000_000)


def test_what_is_built_has_the_version_of_the_tag(release: list[Path]) -> None:
    assert [path.name for path in release] == ["rmx-9.8.7.tar.gz", "rmx-9.8.7-py3-none-any.whl"]


def test_two_builds_give_the_same_bytes(
    release: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    again = _built(tmp_path / "a/longer/path", group_writes=True, mtime=1_650_000_000)
    assert [path.name for path in again] == [path.name for path in release]
    for one, other in zip(release, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_the_sdist_has_every_file_and_tells_nothing_of_the_builder(release: list[Path]) -> None:
    with tarfile.open(release[0]) as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(EPOCH, 0, 0, "root", "root")}
    assert {m.mode for m in members} == {0o644, 0o755}
    there = {m.name.partition("/")[2] for m in members}
    # setuptools leaves out links to directories, of which a checkout has one for a comparison with Ansible
    assert [name for name in _tracked() if name not in there and not (ROOT / name).is_dir()] == []


def test_the_wheel_has_all_that_rm_ships(release: list[Path]) -> None:
    with zipfile.ZipFile(release[1]) as archive:
        there = {name.rpartition(".data/")[2] for name in archive.namelist()}
    missing = [
        name
        for name in _tracked()
        if name != "rm/adapters/migrations"  # a link in a checkout
        if (goal := SHIPPED.get(name.partition("/")[0])) and f"{goal}/{name.partition('/')[2]}" not in there
    ]
    assert missing == []


def _run_time(folder: Path) -> set[str]:
    """Links the files of the packages that requirements.lock names into `folder`; returns their names."""
    names = set()
    lock = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    for line in lock.splitlines():
        wanted = Requirement(line.partition(" --hash")[0]) if not line.startswith("#") else None
        if wanted is None or (wanted.marker and not wanted.marker.evaluate()):
            continue
        package = metadata.distribution(wanted.name)
        assert package.version in wanted.specifier
        names.add(wanted.name)
        for file in package.files or []:
            if ".." in file.parts:
                continue  # its programs
            link = folder / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(package.locate_file(file))
    return names


def test_the_wheel_runs_with_the_packages_of_the_lock_alone(release: list[Path], tmp_path: Path) -> None:
    packages, installed = tmp_path / "packages", tmp_path / "installed"
    names = _run_time(packages)
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--no-index", "--no-compile", "--target", str(installed), str(release[1]),
        ],
        check=True,
    )  # fmt: skip
    assert "pytest" not in names

    def run(*words: str) -> str:
        """Runs Python that finds nothing but the standard library, these packages and the wheel."""
        done = subprocess.run(
            [sys.executable, "-S", *words], cwd=tmp_path, capture_output=True, text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{installed}:{packages}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(str(installed / "bin/rmx"), "--version") == "rmx 9.8.7\n"
    modules = [
        ".".join(path.relative_to(installed).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((installed / "rm").rglob("*.py"))
        if "shipped" not in path.parts and "migrations" not in path.parts
    ]
    assert len(modules) > 500
    run("-c", IMPORT_ALL, *modules)
    # the database's migrations and a shipped playbook are found where the wheel puts them
    run("-m", "rm.adapters.store.migrate", f"sqlite:///{tmp_path}/rm.sqlite3")
    program = (
        "import sys; from rm.adapters.playbook.shipped import shipped_directory as d; print(d(sys.argv[1]))"
    )
    for folder in ("agents", "playbooks"):
        assert run("-c", program, folder) == f"{installed}/rm/shipped/{folder}\n"


def test_the_bill_of_materials_names_each_locked_package_with_hashes_and_licence() -> None:
    text = sbom.document()
    bill = json.loads(text)
    assert bill["bomFormat"] == "CycloneDX"
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]
    assert str(ROOT) not in text
    lock = (ROOT / "requirements.lock").read_text()
    assert len(bill["components"]) == lock.count("==")
    for component in bill["components"]:
        hashes = [h["content"] for r in component["externalReferences"] for h in r.get("hashes", [])]
        assert hashes
        assert all(f"--hash=sha256:{one}" in lock for one in hashes)
        assert f"{component['name']}=={component['version']}" in lock
        assert component.get("licenses") or component["name"] in ("colorama", "tzdata")  # other systems'
    root, *_ = bill["dependencies"]
    assert "pkg:pypi/aiohttp@" in " ".join(root["dependsOn"])
    assert "pytest" not in text
