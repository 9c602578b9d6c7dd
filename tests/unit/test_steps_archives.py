"""Archives on a real directory: unpacked as they say, and never elsewhere."""

import gzip
import io
import os
import random
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.steps_request import done, kept, mode, one, refused


def tar_of(path: Path, kind: str = "gz") -> None:
    with tarfile.open(path, f"w:{kind}") as archive:  # type: ignore[call-overload]
        for name, data, bits in (("p/one", b"1", 0o644), ("p/run", b"#!", 0o750)):
            member = tarfile.TarInfo(name)
            member.mode, member.size, member.mtime = bits, len(data), 1_600_000_000
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("p/ln")
        link.type, link.linkname = tarfile.SYMTYPE, "one"
        archive.addfile(link)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", ""])
def test_unarchive_a_tar(tmp_path: Path, kind: str) -> None:
    tar_of(tmp_path / "a.tar", kind)
    out = tmp_path / "out"
    out.mkdir()
    where: dict[str, Any] = {"src": f"{tmp_path}/a.tar", "dest": str(out)}
    done("unarchive", **where)
    assert (mode(out / "p/run"), (out / "p/ln").read_text()) == (0o750, "1")
    (out / "p/one").write_text("2")
    done("unarchive", **where, remote_src=True)
    assert (out / "p/one").read_text() == "1"
    assert kept("unarchive", **where, list_files=True)["files"] == ["p/one", "p/run", "p/ln"]
    assert one("unarchive", **where, creates=str(out))["skipped"]
    assert sorted(os.listdir(out / "p")) == ["ln", "one", "run"]


def test_parts_of_a_tar_are_named_as_they_are_written(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("./d/f", "./one", "./[x]"):
            archive.addfile(tarfile.TarInfo(name))
    for number, (given, there) in enumerate(
        (
            ({"include": ["./one", "./[x]"]}, ["[x]", "one"]),
            ({"exclude": ["./d", "o*"]}, ["[x]"]),
            ({"exclude": ["f"]}, ["[x]", "one"]),
        )
    ):
        out = tmp_path / str(number)
        out.mkdir()
        done("unarchive", src=f"{tmp_path}/a.tar", dest=str(out), **given)
        assert sorted(os.listdir(out)) == there
    assert "does not hold 'one'" in refused(
        "unarchive", src=f"{tmp_path}/a.tar", dest=str(tmp_path), include=["one"]
    )


def test_unarchive_a_zip_in_part(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("q/one", "1")
        archive.writestr("q/two", "2")
    done("unarchive", src=f"{tmp_path}/b.zip", dest=str(tmp_path), exclude=["q/two"], mode="0600")
    assert os.listdir(tmp_path / "q") == ["one"]
    assert mode(tmp_path / "q/one") == 0o600


def test_an_archive_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../evil", "1")
    (tmp_path / "out").mkdir()
    said = refused("unarchive", src=f"{tmp_path}/evil.zip", dest=f"{tmp_path}/out")
    assert "leads out of the destination" in said
    assert not (tmp_path / "evil").exists()
    (tmp_path / "text").write_text("no archive")
    assert "cannot be read" in refused("unarchive", src=f"{tmp_path}/text", dest=f"{tmp_path}/out")


@pytest.mark.parametrize("target", ["/etc", "../..", "q/../.."])
@pytest.mark.parametrize("last", ["file", "directory", "hard"])
def test_an_archives_own_links_lead_nowhere_else(tmp_path: Path, target: str, last: str) -> None:
    kinds = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "hard": tarfile.LNKTYPE}
    link, after = tarfile.TarInfo("p/ln"), tarfile.TarInfo("p/ln" if last == "directory" else "p/ln/evil")
    link.type, link.linkname = tarfile.SYMTYPE, target
    after.type = kinds[last]
    if last == "hard":
        after.name, after.linkname = "mine", "p/ln/passwd"
    (tmp_path / "out").mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(link)
        archive.addfile(after, io.BytesIO())
    said = refused("unarchive", src=f"{tmp_path}/a.tar", dest=f"{tmp_path}/out")
    assert "by way of its own link 'p/ln'" in said
    assert os.listdir(tmp_path / "out") == []


CHAINS = {
    "a link to a link": ([("s", "sub", "OUT"), ("s", "x", "sub"), ("f", "x/evil", "")], "sub"),
    "a directory at the end": ([("s", "sub", "OUT"), ("s", "x", "sub"), ("d", "x", "")], "sub"),
    "a link on the way to a link": (
        [("d", "d", ""), ("s", "d/sub", "OUT"), ("s", "y", "d"), ("s", "z", "./y//sub"), ("f", "z/evil", "")],
        "d/sub",
    ),
    "a second name of a link": ([("s", "sub", "OUT"), ("h", "x", "sub"), ("f", "x/evil", "")], "x"),
    "a hard link through a link": (
        [("d", "d", ""), ("s", "d/sub", "OUT"), ("s", "y", "d"), ("h", "mine", "y/sub/secret")],
        "y",
    ),
    "a link that was another": (
        [("s", "x", "OUT"), ("f", "x/evil", ""), ("f", "x", ""), ("s", "x", "here")],
        "x",
    ),
    "a link that is made by way of a link": (
        [("s", "a", "."), ("s", "a/b", "OUT"), ("f", "b/evil", "")],
        "a",
    ),
    "a second name of a link by way of a link": (
        [("s", "sub", "OUT"), ("s", "a", "."), ("h", "a/b", "sub"), ("f", "b/evil", "")],
        "a",
    ),
    "a circle": ([("s", "a", "b"), ("s", "b", "a"), ("f", "a/evil", "")], "a"),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_no_chain_of_an_archives_links_leads_out(tmp_path: Path, chain: str) -> None:
    entries, link = CHAINS[chain]
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    for folder in (elsewhere, out):
        folder.mkdir(0o755)
    (elsewhere / "secret").write_text("kept")
    kinds = {"s": tarfile.SYMTYPE, "f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "h": tarfile.LNKTYPE}
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind, name, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kinds[kind], target.replace("OUT", str(elsewhere)), 0o700
            archive.addfile(entry, io.BytesIO())
    said = refused("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))
    assert f"by way of its own link '{link}'" in said
    assert (os.listdir(elsewhere), mode(elsewhere), os.listdir(out)) == (["secret"], 0o755, [])


def test_links_that_stay_inside_are_unpacked_with_what_lies_behind_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind, name, target in (
            (tarfile.DIRTYPE, "v1", ""), (tarfile.SYMTYPE, "now", "v1"), (tarfile.SYMTYPE, "new", "now"),
            (tarfile.REGTYPE, "new/file", ""), (tarfile.LNKTYPE, "again", "new"),
            (tarfile.SYMTYPE, "up", "/etc"),
        ):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, target, 0o755
            archive.addfile(entry, io.BytesIO())
    done("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))
    assert (out / "v1" / "file").is_file()
    assert [os.readlink(out / name) for name in ("now", "new", "again", "up")] == ["v1", "now", "now", "/etc"]


def test_a_directory_of_a_tar_takes_the_place_of_a_link(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir(0o755)
    (out / "d").symlink_to(elsewhere)  # an earlier archive left it, or a user
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        entry = tarfile.TarInfo("d")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o777
        archive.addfile(entry)
        archive.addfile(tarfile.TarInfo("d/file"), io.BytesIO())
    done("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))
    assert (mode(elsewhere), list(elsewhere.iterdir())) == (0o755, [])
    assert not (out / "d").is_symlink()
    assert (mode(out / "d"), os.listdir(out / "d")) == (0o777, ["file"])


def test_a_directory_of_a_zip_is_what_a_link_leads_to_as_it_is(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir(0o755)
    (out / "d").symlink_to(elsewhere)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        entry = zipfile.ZipInfo("d/")
        entry.external_attr = 0o040777 << 16
        archive.writestr(entry, b"")
        archive.writestr("d/file", b"x")
    done("unarchive", src=f"{tmp_path}/a.zip", dest=str(out))
    assert (mode(elsewhere), os.listdir(elsewhere)) == (0o755, ["file"])
    assert (out / "d").is_symlink()


def test_an_archive_that_is_damaged_or_says_what_no_file_can_have_is_refused(tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "a.tar"
    out.mkdir()

    def packed(**headers: str) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo("file")
            entry.size, entry.pax_headers = 90_000, headers
            archive.addfile(entry, io.BytesIO(random.Random(1).randbytes(90_000)))
        return stream.getvalue()

    damaged = bytearray(gzip.compress(packed()))
    damaged[2000] ^= 255  # what no block's own form shows: only the sum at the end does
    for content, why in (
        (bytes(damaged), "CRC check failed"),
        (gzip.compress(packed())[:30_000], "ended before the end-of-stream marker"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "zstd failed"),
        (packed(path="a\0b"), "null byte"),
        (packed(mtime="nan"), "NaN"),
        (packed(uid=str(2**70)), "uid") if os.getuid() == 0 else (b"", "not be opened"),
        (packed(size=str(2**70)), "cannot"),
    ):
        path.write_bytes(content)
        said = refused("unarchive", src=str(path), dest=str(out))
        assert why in said
        assert "rm_steps.py failed" not in said
        assert os.listdir(out) == []


def test_a_hole_in_a_file_of_an_archive_takes_no_room(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(64 << 20)
        file.seek(8 << 20)
        file.write(b"x")
    subprocess.run(["tar", "-S", "-cf", "a.tar", "holes"], cwd=tmp_path, check=True)
    done("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))
    assert (out / "holes").read_bytes() == (tmp_path / "holes").read_bytes()
    assert (out / "holes").stat().st_blocks * 512 <= 2 << 20
    assert not one("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))["changed"]


def test_a_hard_link_before_what_it_names_is_refused(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir()
    (out / "l").symlink_to(elsewhere)  # an earlier archive left it
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind, name, target in ((tarfile.LNKTYPE, "h", "l"), (tarfile.SYMTYPE, "l", "here")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
        archive.addfile(tarfile.TarInfo("h/evil"), io.BytesIO())
    said = refused("unarchive", src=f"{tmp_path}/a.tar", dest=str(out))
    assert "a second name of 'l', which does not come before it" in said
    assert list(elsewhere.iterdir()) == []
