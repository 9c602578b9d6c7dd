"""Builds the commit HEAD into dist/ as a wheel and an sdist, byte for byte the same each time: make dist

What is not committed is not in them. The bytes depend on the commit and on the versions that
requirements-test.lock pins (and on Python's zlib), not on the folder, the clock, the umask or the account.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(tree: Path, out: Path, epoch: int) -> list[Path]:
    """Builds a clean source tree into `out`; every time-stamp is `epoch` (seconds since 1970).

    The modes of the tree's files become 0644 and 0755, as git knows them. Exits with the builder's words
    if the build fails.
    """
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    # the wheel is built from the sdist, which shows that the sdist is complete
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nThe build failed.")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    sdist.write_bytes(_settled(sdist.read_bytes(), epoch))
    return [sdist, wheel]


def _settled(sdist: bytes, epoch: int) -> bytes:
    """The same archive, sorted, owned by root, at one time: setuptools writes the clock's and the files'."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=packed) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            executable = member.isdir() or member.mode & 0o100
            settled = member.replace(
                mtime=epoch, mode=0o755 if executable else 0o644, uid=0, gid=0, uname="root", gname="root"
            )
            settled.pax_headers = {}
            new.addfile(settled, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    if _git("status", "--porcelain"):
        print("Changes that are not committed are left out.", file=sys.stderr)
    epoch = int(_git("log", "-1", "--format=%ct", "HEAD"))
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder, "tree"), Path(folder, "out")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
            archive.extractall(tree, filter="data")
        built = [(path.name, path.read_bytes()) for path in build(tree, out, epoch)]
    (ROOT / "dist").mkdir(exist_ok=True)
    for name, content in built:
        (ROOT / "dist" / name).write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}  dist/{name}")


if __name__ == "__main__":
    main()
