"""File modules on a real directory: foretold, done, idempotent, and never half."""

import importlib
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from tests.steps_request import done, kept, mode, one, refused, rm_steps, run, step


@pytest.mark.parametrize(
    ("old", "wanted", "new"),
    [
        (0o644, "u+x", 0o744), (0o755, "go-rx", 0o700), (0o600, "u=rw,g=r,o=", 0o640), (0o644, "a+X", 0o644),
        (0o744, "a+X", 0o755), (0o755, "g+s", 0o2755), (0o644, "o=u", 0o646), (0o755, "u=rwx,g=u-w", 0o755),
        (0o777, "+t", 0o1777), (0o4755, "u-s", 0o755),
    ],
)  # fmt: skip
def test_symbolic_modes(tmp_path: Path, old: int, wanted: str, new: int) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(old)
    result = one("file", path=f"{tmp_path}/f", mode=wanted)
    assert (mode(tmp_path / "f"), result["changed"]) == (new, new != old)
    assert oct(mode(tmp_path / "f")) == oct(new)


def test_links_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    done("file", path=f"{tmp_path}/soft", src=f"{tmp_path}/f", state="link")
    done("file", path=f"{tmp_path}/hard", src=f"{tmp_path}/f", state="hard")
    assert os.path.samefile(tmp_path / "hard", tmp_path / "f")
    assert "does not exist" in refused("file", path=f"{tmp_path}/to-none", src="none", state="link")
    done("file", path=f"{tmp_path}/to-none", src="none", state="link", force=True)
    (tmp_path / "full/sub").mkdir(parents=True)
    said = refused("file", check=True, path=f"{tmp_path}/full", src="x", state="link", force=True)
    assert "not empty" in said
    assert "directory" in refused("file", path=f"{tmp_path}/full", src=f"{tmp_path}/f", state="link")
    done("file", path=f"{tmp_path}/to-full", src="full", state="link")
    kept("file", path=f"{tmp_path}/to-full", state="directory")
    assert "is a link" in refused("file", path=f"{tmp_path}/to-full", state="directory", follow=False)


def test_touch_is_a_change_unless_times_are_kept(tmp_path: Path) -> None:
    touch: dict[str, Any] = {"path": f"{tmp_path}/t", "state": "touch"}
    assert one("file", **touch)["changed"]
    assert one("file", **touch)["changed"]
    kept("file", **touch, modification_time="preserve", access_time="preserve")
    done("file", path=f"{tmp_path}/t", modification_time="202001020304.05")
    assert os.stat(tmp_path / "t").st_mtime == pytest.approx(1577934245, abs=86_400)


def test_trees_with_preserved_modes(tmp_path: Path) -> None:
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/run").write_text("#!")
    (tmp_path / "src/run").chmod(0o751)
    (tmp_path / "src/sub/data").write_text("d")
    (tmp_path / "src/sub/data").chmod(0o604)
    done("copy", src=f"{tmp_path}/src/", dest=f"{tmp_path}/here", mode="preserve")
    assert (mode(tmp_path / "here/run"), mode(tmp_path / "here/sub/data")) == (0o751, 0o604)
    done("copy", src=f"{tmp_path}/src", dest=f"{tmp_path}/there", remote_src=True, mode="preserve")
    assert (mode(tmp_path / "there/src/run"), mode(tmp_path / "there/src/sub/data")) == (0o751, 0o604)


def test_a_rewritten_file_keeps_owner_mode_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old\n")
    path.chmod(0o4711)
    try:
        os.setxattr(path, "user.label", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    if os.getuid() == 0:
        os.chown(path, 12345, 54321)
        path.chmod(0o4711)
    result = done("copy", content="new\n", dest=str(path), backup=True)
    assert mode(path) == 0o4711
    assert os.getxattr(path, "user.label") == b"kept"
    if os.getuid() == 0:
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
    assert Path(result["backup_file"]).read_text() == "old\n"


BLOCK = "# BEGIN ANSIBLE MANAGED BLOCK\n{}# END ANSIBLE MANAGED BLOCK\n"


def test_copy_puts_a_new_file_in_the_place_of_a_link_unless_it_follows(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("same\n")
    target.chmod(0o600)
    for content in ("same\n", "other\n"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        done("copy", dest=str(link), content=content)
        assert (link.is_symlink(), link.read_text(), mode(link)) == (False, content, 0o644)
    link.unlink()
    link.symlink_to(target)
    kept("copy", dest=str(link), content="same\n", follow=True)
    done("copy", dest=str(link), content="new\n", follow=True)
    assert (link.is_symlink(), target.read_text(), mode(target)) == (True, "new\n", 0o600)


def test_check_mode_copies_a_directory_that_earlier_steps_would_have_made(tmp_path: Path) -> None:
    (tmp_path / "a/old").mkdir(parents=True)
    (tmp_path / "a/old/gone").write_text("x")
    steps = [
        step(1, "file", path=f"{tmp_path}/a/old/gone", state="absent"),
        step(2, "file", path=f"{tmp_path}/a/sub", state="directory"),
        step(3, "copy", dest=f"{tmp_path}/a/sub/f", content="f\n"),
        step(4, "copy", dest=f"{tmp_path}/b/", src=f"{tmp_path}/a/", remote_src=True, mode="preserve"),
        step(5, "stat", path=f"{tmp_path}/b/old/gone"),
        step(6, "lineinfile", path=f"{tmp_path}/b/sub/f", line="f"),
    ]
    foretold = run(*steps, check=True)["results"]
    real = run(*steps)["results"]
    assert [r["changed"] for r in foretold] == [r["changed"] for r in real] == [True] * 4 + [False] * 2
    assert sorted(foretold[3]["diff"]) == sorted(real[3]["diff"])
    assert not real[4]["stat"]["exists"]
    assert not foretold[4]["stat"]["exists"]


def test_check_mode_says_that_a_link_is_not_there_yet_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    steps = [
        step(1, "file", path=f"{tmp_path}/a/link", src="..", state="link"),
        step(2, "file", path=f"{tmp_path}/a/link", mode="0755"),
        step(3, "copy", dest=f"{tmp_path}/b", src=f"{tmp_path}/a/", remote_src=True),
    ]
    foretold = run(*steps, check=True)["results"]
    assert not foretold[1]["failed"], foretold
    assert (foretold[2]["skipped"], foretold[2]["msg"][-30:]) == (True, "is not there yet to be copied.")
    assert run(*steps)["results"][2]["changed"]


def test_a_directory_of_the_host_is_copied_with_its_modes_and_links(tmp_path: Path) -> None:
    source, dest = tmp_path / "a", tmp_path / "b"
    (source / "private").mkdir(parents=True)
    for name, bits in (("private/key", 0o600), ("same", 0o644), ("other", 0o711)):
        (source / name).write_text("new\n")
        (source / name).chmod(bits)
    (source / "private").chmod(0o700)
    (source / "private/link").symlink_to("key")
    dest.mkdir()
    for name, text in (("same", "new\n"), ("other", "old\n")):
        (dest / name).write_text(text)
        (dest / name).chmod(0o640)
    given = {"dest": str(dest), "src": f"{source}/", "remote_src": True, "mode": "0750"}
    done("copy", **given)
    found = {str(one.relative_to(dest)): one.lstat().st_mode & 0o777 for one in dest.rglob("*")}
    assert found == {
        "private": 0o700,
        "private/key": 0o600,
        "private/link": 0o777,
        "same": 0o640,
        "other": 0o711,
    }
    assert (dest / "private/link").readlink() == Path("key")
    assert dest.stat().st_mode & 0o777 == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
@pytest.mark.parametrize("remote", [True, False])
def test_a_link_in_a_copied_tree_leads_nothing_elsewhere(tmp_path: Path, remote: bool) -> None:
    source, dest, other = tmp_path / "a", tmp_path / "b", tmp_path / "other"
    for path in (source / "sub", dest, other):
        path.mkdir(parents=True)
    for path in (source / "conf", source / "sub/f"):
        path.write_text("new\n")
    (other / "f").write_text("old\n")
    (other / "f").chmod(0o600)
    (dest / "conf").symlink_to(other / "f")
    (dest / "sub").symlink_to(other)
    owner = pwd.getpwnam("nobody").pw_uid
    os.chown(dest / "sub", owner, -1, follow_symlinks=False)
    given: dict[str, Any] = {"dest": f"{dest}/", "src": f"{source}/", "owner": "nobody", "remote_src": remote}
    for check in (True, False):
        assert "link of another user's" in refused("copy", **given, check=check)
    os.chown(dest / "sub", 0, -1, follow_symlinks=False)
    (dest / "sub").unlink()
    (dest / "sub").symlink_to(other / "sub")
    (other / "sub").mkdir(0o711)
    os.chown(other / "sub", owner, -1)  # whose the tree is by then, and who may move the link
    done("copy", **given)
    assert (dest / "conf").lstat().st_uid == owner
    assert (dest / "conf").read_text() == (other / "sub/f").read_text() == "new\n"
    seen = other / "f"
    assert (seen.read_text(), mode(seen), seen.stat().st_uid) == ("old\n", 0o600, 0)
    assert [path.stat().st_uid for path in (other, other / "sub", other / "sub/f")] == [0, owner, owner]
    assert mode(other / "sub") == 0o711


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
@pytest.mark.parametrize("what", ["tree/", "tree", "tree/sub/f"])
@pytest.mark.parametrize("remote", [True, False])
def test_a_destination_that_another_user_makes_a_link_gives_him_nothing(
    tmp_path: Path, remote: bool, what: str
) -> None:
    source, home, other = tmp_path / "tree", tmp_path / "home", tmp_path / "etc"
    for path in (source / "sub", home, other / "sub"):
        path.mkdir(parents=True)
    (source / "sub/f").write_text("new\n")
    (home / "conf").symlink_to(other)
    owner = pwd.getpwnam("nobody").pw_uid
    os.chown(home / "conf", owner, -1, follow_symlinks=False)
    given: dict[str, Any] = {"src": f"{tmp_path}/{what}", "owner": "nobody", "remote_src": remote}
    for dest in (f"{home}/conf/", f"{home}/conf"):
        for check in (True, False):
            assert "conf is a link of another user's" in refused("copy", **given, dest=dest, check=check)
    assert ([*other.rglob("*")], (other / "sub").stat().st_uid) == ([other / "sub"], 0)
    os.chown(home / "conf", 0, -1, follow_symlinks=False)
    done("copy", **given, dest=f"{home}/conf/")
    written = next(path for path in other.rglob("f"))
    assert (written.read_text(), written.stat().st_uid, other.stat().st_uid) == ("new\n", owner, 0)


def test_a_copied_tree_follows_links_when_it_is_told_to(tmp_path: Path) -> None:
    for path in (tmp_path / "a", tmp_path / "b"):
        path.mkdir()
    (tmp_path / "a/conf").write_text("new\n")
    (tmp_path / "f").write_text("old\n")
    (tmp_path / "b/conf").symlink_to(tmp_path / "f")
    done("copy", dest=f"{tmp_path}/b", src=f"{tmp_path}/a/", remote_src=True, follow=True)
    assert ((tmp_path / "f").read_text(), (tmp_path / "b/conf").is_symlink()) == ("new\n", True)


def test_a_file_of_the_host_takes_another_s_place_with_its_own_mode(tmp_path: Path) -> None:
    for name, bits in (("a", 0o751), ("b", 0o600)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(bits)
    done("copy", src=f"{tmp_path}/a", dest=f"{tmp_path}/b", remote_src=True)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o751


def test_a_line_is_sought_in_bytes_with_its_end_as_ansible_does(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("one\r\nmäh\ntwo\n".encode())
    for regexp, line in (("one$", "crlf"), (r"^m\w+h", "word"), (r"^m..h", "two bytes"), (r"^two\s", "end")):
        one("lineinfile", path=str(path), regexp=regexp, line=line)
    assert path.read_bytes() == b"one\r\ntwo bytes\nend\ncrlf\nword\n"


def test_a_hard_link_takes_a_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").chmod(0o644)
    done("file", path=f"{tmp_path}/b", src=f"{tmp_path}/a", state="hard", mode="0600")
    done("file", path=f"{tmp_path}/b", state="hard", mode="0640")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_block_whose_markers_are_alike_is_added_each_time_as_ansible_does(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a\n")
    for after in ("a\n\nx\n\n", "a\n\nx\n\nx\n\n"):
        assert one("blockinfile", path=str(path), block="x", marker="")["changed"]
        assert path.read_text() == after


@pytest.mark.parametrize(
    ("before", "args", "after"),
    [
        ("a\n", {"block": "x\ny"}, "a\n" + BLOCK.format("x\ny\n")),
        ("a", {"block": "x"}, "a\n" + BLOCK.format("x\n")),
        ("a\nb\n", {"block": "x", "insertafter": "^a"}, "a\n" + BLOCK.format("x\n") + "b\n"),
        ("a\nb\n", {"block": "x", "insertbefore": "^a"}, BLOCK.format("x\n") + "a\nb\n"),
        ("a\nb\n", {"block": "x", "insertbefore": "BOF"}, BLOCK.format("x\n") + "a\nb\n"),
        ("a\n" + BLOCK.format("old\n") + "b\n", {"block": "new"}, "a\n" + BLOCK.format("new\n") + "b\n"),
        ("a\n" + BLOCK.format("old\n") + "b\n", {"state": "absent"}, "a\nb\n"),
        ("a\n" + BLOCK.format("old\n") + "b\n", {"block": ""}, "a\nb\n"),
        ("a\n# END ANSIBLE MANAGED BLOCK", {"block": ""}, "a\n# END ANSIBLE MANAGED BLOCK\n"),
        ("ab\na\n", {"block": "x", "insertafter": "a\\n"}, "ab\na\n" + BLOCK.format("x\n")),
        ("a\nb\nc\n", {"block": "x", "insertbefore": "(?m)^b\nc"}, "a\n" + BLOCK.format("x\n") + "b\nc\n"),
        ("a\nb\nc\n", {"block": "x", "insertafter": "(?m)^a$"}, "a\n" + BLOCK.format("x\n") + "b\nc\n"),
        ("a\n", {"block": "x", "insertafter": "BOF"}, "a\n" + BLOCK.format("x\n")),
        ("a\nb\n", {"block": "x", "insertafter": "(?m)b\\n"}, "a\nb\n" + BLOCK.format("x\n")),
        ("", {"block": "x", "insertafter": "(?m)^"}, BLOCK.format("x\n")),
        ("a\nb\n", {"block": "x", "insertafter": "^a", "prepend_newline": True, "append_newline": True},
         "a\n\n" + BLOCK.format("x\n") + "\nb\n"),
    ],
)  # fmt: skip
def test_blockinfile(tmp_path: Path, before: str, args: dict[str, Any], after: str) -> None:
    path = tmp_path / "f"
    path.write_text(before)
    (done if before != after else kept)("blockinfile", path=str(path), **args)
    assert path.read_text() == after


@pytest.mark.parametrize(
    ("before", "args", "after"),
    [
        ("foo 1\nfoo 2\n", {"regexp": r"foo (\d)", "replace": r"bar \1"}, "bar 1\nbar 2\n"),
        ("a\nb\n", {"regexp": "^b$", "replace": "c"}, "a\nc\n"),
        ("x1\n[s]\nx2\n[e]\nx3\n", {"regexp": "^x", "replace": "y", "after": r"\[s\]", "before": r"\[e\]"},
         "x1\n[s]\ny2\n[e]\nx3\n"),
        ("x1\n", {"regexp": "^x", "replace": "y", "after": "nowhere"}, "x1\n"),
        ("x1\n", {"regexp": "^x1\n"}, ""),
    ],
)  # fmt: skip
def test_replace(tmp_path: Path, before: str, args: dict[str, Any], after: str) -> None:
    path = tmp_path / "f"
    path.write_text(before)
    (done if before != after else kept)("replace", path=str(path), **args)
    assert path.read_text() == after


def test_check_mode_sees_what_earlier_steps_would_have_written(tmp_path: Path) -> None:
    path = f"{tmp_path}/new/conf"
    steps = [
        step(1, "file", path=f"{tmp_path}/new", state="directory"),
        step(2, "copy", dest=path, content="a=1\n"),
        step(3, "lineinfile", path=path, regexp="^a=", line="a=2"),
        step(4, "blockinfile", path=path, block="b"),
        step(5, "replace", path=path, regexp="2", replace="3"),
        step(6, "file", path=f"{tmp_path}/new", state="absent"),
        step(7, "stat", path=path),
        step(8, "copy", dest=path, content="x"),
    ]
    foretold = run(*steps, check=True)["results"]
    assert not (tmp_path / "new").exists()
    real = run(*steps)["results"]
    assert [r["changed"] for r in foretold] == [r["changed"] for r in real]
    assert [r["failed"] for r in foretold] == [r["failed"] for r in real] == [False] * 7 + [True]
    assert [r.get("diff") for r in foretold[:6]] == [r.get("diff") for r in real[:6]]


def test_find(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in (("a.log", "needle here\n"), ("b.txt", "x"), (".hid", "h"), ("sub/c.log", "y" * 2000)):
        (tmp_path / name).write_text(text)
    (tmp_path / "b.txt").chmod(0o600)
    os.utime(tmp_path / "a.log", (0, 0))

    def names(**given: Any) -> set[str]:
        result = kept("find", paths=str(tmp_path), **given)
        assert result["matched"] == len(result["files"])
        return {os.path.relpath(f["path"], tmp_path) for f in result["files"]}

    assert names() == {"a.log", "b.txt"}
    assert names(recurse=True, patterns="*.log") == {"a.log", "sub/c.log"}
    assert names(recurse=True, hidden=True, file_type="any") == {"a.log", "b.txt", ".hid", "sub", "sub/c.log"}
    assert names(use_regex=True, patterns="^[ab]", excludes=".*txt") == {"a.log"}
    assert names(age="1w") == {"a.log"}
    assert names(age="-1h") == {"b.txt"}
    assert names(recurse=True, size="1k") == {"sub/c.log"}
    assert names(size="-1b") == {"b.txt"}
    assert names(contains="needle") == {"a.log"}
    assert names(mode="0600") == {"b.txt"}
    assert names(recurse=True, depth=1, file_type="directory") == {"sub"}
    assert kept("find", paths=f"{tmp_path}/none")["skipped_paths"]


def test_slurp_and_tempfile(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x00\xff")
    assert kept("slurp", src=f"{tmp_path}/f")["content"] == "AP8="
    assert "not found" in refused("slurp", src=f"{tmp_path}/none")
    made = one("tempfile", state="directory", path=str(tmp_path), prefix="t", suffix=".d")
    assert mode(Path(made["path"])) == 0o700
    assert made["path"].endswith(".d")
    assert one("tempfile", check=True, path=str(tmp_path))["might_run"]


def test_scripts_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text('echo "$0 says $1"; exit ${2:-0}\n')
    result = one("script", _raw=f"{tmp_path}/s.sh hi")
    assert result["stdout"].endswith("says hi\n")
    assert not Path(result["stdout"].split()[0]).exists()
    assert one("script", _raw=f"{tmp_path}/s.sh hi 4")["rc"] == 4
    assert one("script", check=True, _raw=f"{tmp_path}/s.sh")["might_run"]
    assert one("script", _raw=f"{tmp_path}/s.sh", creates=str(tmp_path))["skipped"]
    assert one("raw", _raw="echo raw")["stdout"] == "raw\n"


def test_a_run_as_another_user_cannot_use_files_of_root(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    import pwd

    who = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid not in (0,))
    asked = {**step(1, "command", _raw="id -un"), "user": who}
    assert rm_steps.steps_operation({"steps": [asked]})["results"][0]["stdout"] == who
    tmp_path.chmod(0o700)
    refusal = {**step(1, "copy", dest=f"{tmp_path}/x", content="x"), "user": who}
    assert rm_steps.steps_operation({"steps": [refusal]})["results"][0]["failed"]


def test_check_mode_foretells_the_attributes_of_what_is_not_there_yet(tmp_path: Path) -> None:
    tree = f"{tmp_path}/tree"
    steps = [
        step(1, "file", path=tree, state="directory", mode="0700"),
        step(2, "copy", content="x", dest=f"{tree}/one", mode="0600"),
        step(3, "file", path=f"{tree}/one", mode="0600"),
        step(4, "file", path=f"{tree}/one", mode="g+r"),
        step(5, "file", path=tree, state="directory", recurse=True, mode="u=rwX,g=rX,o="),
        step(6, "file", path=tree, state="directory", recurse=True, mode="u=rwX,g=rX,o="),
        step(7, "file", path=f"{tree}/empty", state="touch", mode="0640"),
        step(8, "file", path=f"{tree}/empty", mode="0644"),
        step(9, "file", path=f"{tree}/empty", mode="0644"),
        step(10, "file", path=tree, state="absent"),
        step(11, "file", path=tree, state="directory"),
    ]
    foretold = [one["changed"] for one in run(*steps, check=True)["results"]]
    assert not (tmp_path / "tree").exists()
    assert foretold == [one["changed"] for one in run(*steps)["results"]]
    assert foretold == [True, True, False, True, True, False, True, True, False, True, True]


def test_a_directory_copied_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/f").write_text("x")
    assert done("copy", src=f"{tmp_path}/src/", dest=f"{tmp_path}/there/")["dest"] == f"{tmp_path}/there/"


LSATTR = """#!/bin/sh
printf '%s %s\\n' "$(cat "$2.flags" 2>/dev/null || echo ----e---)" "$2"
"""
CHATTR = """#!/bin/sh
echo "$1" >>"$2.asked"
echo "----$1---" | tr -d '+=' >"$2.flags"
"""


def test_attributes_of_chattr_are_set_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("lsattr", LSATTR), ("chattr", CHATTR)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = tmp_path / "file"
    first = one("copy", dest=str(path), content="x", attributes="+ia")
    assert first["changed"]
    assert (tmp_path / "file.asked").read_text() == "+ia\n"
    assert not one("copy", dest=str(path), content="x", attributes="+i")["changed"]
    assert not one("file", path=str(path), attr="ai", state="file")["changed"], "the order is no matter"
    assert one("file", path=str(path), attr="-i", check=True)["changed"]
    assert not one("file", path=str(path), attr="-u")["changed"]
    assert one("file", path=str(path), attr="=a")["changed"]
    assert (tmp_path / "file.asked").read_text() == "+ia\n=a\n"


def test_labels_of_selinux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = importlib.import_module("rm_steps_labels")
    path = tmp_path / "file"
    path.write_text("")
    assert not one("file", path=str(path), setype="etc_t")["changed"], "a host without SELinux"
    kept = {str(path): b"system_u:object_r:tmp_t:s0\0"}
    monkeypatch.setattr(labels, "ENFORCE", str(tmp_path))
    monkeypatch.setattr(labels.os, "getxattr", lambda path, name, follow_symlinks: kept[path])
    monkeypatch.setattr(
        labels.os, "setxattr", lambda path, name, new, follow_symlinks: kept.update({path: new})
    )
    found = one("file", path=str(path), setype="etc_t", selevel="s0:c1")
    assert found["changed"]
    assert kept[str(path)] == b"system_u:object_r:etc_t:s0:c1\0"
    assert "tmp_t:s0 -> system_u:object_r:etc_t:s0:c1" in found["diff"][0]
    assert not one("file", path=str(path), setype="etc_t")["changed"]


def test_package_refuses_what_its_host_s_tool_does_not_know() -> None:
    found = one("package", name="bash", enablerepo="x")
    assert found["msg"] == "This host's apt does not know 'enablerepo'."
    assert not one("package", name="bash", purge=True)["changed"]
