"""The version: git's tag, as a checkout, an archive, an sdist and the package say it."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import rm
from rm.version import BEFORE_TAGS, named, version_of

ROOT = Path(__file__).parents[2]
SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("described", "commit", "changeable", "said"),
    [
        ("v1.2.0", SHA, False, "1.2.0"),
        ("v1.2.0", SHA, True, "1.2.0+g0123456789"),
        ("v1.2.0-7-g0123456", SHA, False, "1.2.0+g0123456789"),
        ("v1.2.0rc1", SHA, False, "1.2.0rc1"),
        ("v1.2.0rc1-1-g0123456", SHA, True, "1.2.0rc1+g0123456789"),
        ("v1.2.0-rc1", SHA, False, "1.2.0rc1"),
        ("v1.2.0-rc1-12-g0123456", SHA, False, "1.2.0rc1+g0123456789"),
        ("v1.2.0-beta.2", SHA, False, "1.2.0b2"),
        ("v1.2.0-alpha", SHA, False, "1.2.0a0"),
        ("", SHA, False, f"{BEFORE_TAGS}+g0123456789"),
        ("", "", True, BEFORE_TAGS),
        ("v1.2-test", SHA, False, f"{BEFORE_TAGS}+g0123456789"),
    ],
)
def test_a_version_names_the_tag_and_what_came_after_it(
    described: str, commit: str, changeable: bool, said: str
) -> None:
    assert named(described, commit, changeable) == said


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one commit, that can be asked for its version and be built."""
    folder = tmp_path / "checkout"
    (folder / "rm").mkdir(parents=True)
    for name in ("rm/__init__.py", "rm/version.py", ".gitattributes", ".git_archival.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def archive(checkout: Path, target: Path) -> Path:
    made = subprocess.run(["git", "archive", "HEAD"], cwd=checkout, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as packed:
        packed.extractall(target, filter="data")
    return target


def test_a_checkout_and_an_archive_of_the_same_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))  # as in a hook of another repository
    short = "+g" + subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"],
        check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"},
    ).stdout[:10]  # fmt: skip
    assert version_of(checkout) == BEFORE_TAGS + short
    monkeypatch.delenv("GIT_DIR")
    assert version_of(archive(checkout, tmp_path / "untagged")) == BEFORE_TAGS + short
    git(checkout, "tag", "nightly")
    git(checkout, "tag", "-a", "-m", "release", "v7.1.0")
    assert version_of(checkout) == f"7.1.0{short}"
    assert version_of(checkout, changeable=False) == "7.1.0"
    assert version_of(archive(checkout, tmp_path / "tagged")) == "7.1.0"
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    later = archive(checkout, tmp_path / "later")
    assert version_of(later) == version_of(checkout) == f"7.1.0+g{git(checkout, 'rev-parse', 'HEAD')[:10]}"


def test_an_sdist_says_what_it_was_built_as_and_a_bare_copy_no_commit(checkout: Path) -> None:
    (checkout / ".git").rename(checkout / "elsewhere")
    assert version_of(checkout) == BEFORE_TAGS  # git has not filled in the file
    (checkout / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: rmx\nVersion: 3.0.1\n")
    assert version_of(checkout) == "3.0.1"


def test_the_package_finds_its_version_when_it_is_asked(checkout: Path) -> None:
    git(checkout, "tag", "v2.0")
    program = "import rm, sys; assert 'subprocess' not in sys.modules; print(rm.__version__)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program], cwd=checkout, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"2.0+g{git(checkout, 'rev-parse', 'HEAD')[:10]}"
    with pytest.raises(AttributeError, match="no attribute 'version_'"):
        _ = rm.version_  # type: ignore[attr-defined]
