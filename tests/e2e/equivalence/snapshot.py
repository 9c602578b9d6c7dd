"""The end state of a host: what was changed below the directories that playbooks write to.

Every entry that changed since a moment (by its ctime), with its type, mode, owner, group and content. A
directory's content is the names in it: what was removed shows, too. It is read from here, through the host's
first process: a program on the host for each look would be a sixth of what these tests cost.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rm.lab import Lab

ROOTS = ("/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr/local", "/var/lib", "/var/spool")
HOMES = "/home"
CHANGED = (*ROOTS, "/etc/shadow")  # by the lab, which gives hosts users of their own
ALONE = ("/root", "/tmp", HOMES)  # in which a host sees nothing of this machine
# logins, and the backups that useradd and its like keep; besides, `.ansible` in a home is
# the tool's own, what is in `.git` is compared by what git says of it, and
# `__pycache__` holds moments
NOT_COMPARED = (
    "/var/log/sshd.log", "/var/log/wtmp", "/var/log/lastlog", "/var/log/btmp",
    "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
    "/etc/.pwd.lock",
)  # fmt: skip

LEFT_OUT = frozenset({".ansible", ".git", "__pycache__"})
MACHINE = Path("/")
DIRECTORY = oct(stat.S_IFDIR)
State = dict[str, dict[str, Any]]


def hide_homes(lab: Lab) -> None:
    """Let the lab's hosts have homes of their own only: this machine's users work while tests run."""
    for host in lab.hosts:
        done = lab.exec(host.name, ["mount", "-t", "tmpfs", "-o", "mode=755", "homes", HOMES])
        assert done.returncode == 0, done.stderr


def snapshot(lab: Lab, host: str, since_s: float) -> State:
    """Path to facts, of what changed on a host since `since_s` (seconds since the epoch).

    A host sees this machine's directories below its own changes: what is as here is none of the host's.
    """
    init = lab.status(host).init
    found = _facts(Path(f"/proc/{init}/root"), _touched(init), since_s)
    here = _facts(MACHINE, found)
    return {path: _own(path, fact, here.get(path)) for path, fact in found.items() if fact != here.get(path)}


def look(lab: Lab, host: str, paths: Iterable[str]) -> State:
    """The same of these paths, changed or not, as far as they are there."""
    found = _facts(Path(f"/proc/{lab.status(host).init}/root"), paths)
    here = _facts(MACHINE, found)
    return {path: _own(path, fact, here.get(path)) for path, fact in found.items()}


def since(fact: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Of a file's lines those that the lab had not changed already, which has users of its own."""
    known = before["content"] if before else None
    if not isinstance(known, list) or not isinstance(fact["content"], list) or fact["type"] == DIRECTORY:
        return fact
    return {**fact, "content": [line for line in fact["content"] if line not in known]}


def _own(path: str, fact: dict[str, Any], here: dict[str, Any] | None) -> dict[str, Any]:
    """Of a directory's names, and of a file's lines, those that the host has added, and with a minus those
    that it has removed.

    Others come and go on this machine while tests run, and every machine has users of its own.
    """
    if here is None or fact["type"] != here["type"] or path.startswith(ALONE):
        return fact
    mine, theirs = fact["content"], here["content"]
    if fact["type"] == DIRECTORY:
        added, removed = {*mine} - {*theirs}, {*theirs} - {*mine}
        return {**fact, "content": [*sorted(added), *(f"-{name}" for name in sorted(removed))]}
    if not isinstance(mine, str) or not isinstance(theirs, str) or "\n" not in theirs:
        return fact
    lines = difflib.ndiff(theirs.splitlines(keepends=True), mine.splitlines(keepends=True))
    return {**fact, "content": [line for line in lines if line[:1] in "+-"]}


def _touched(init: int) -> Iterator[str]:
    """The paths that may have changed on a host: all of its own file systems, and of each overlay over this
    machine's files what lies in its upper layer, which the lab's keeper sees."""
    (parent,) = (line.split()[1] for line in _lines(f"/proc/{init}/status") if line.startswith("PPid:"))
    uppers, whole = {}, set[str]()
    for line in _lines(f"/proc/{init}/mountinfo"):
        before, after = line.split(" - ")
        where, options, kind = before.split()[4], before.split()[5], after.split()[0]
        if kind == "overlay":
            (upper,) = (one[9:] for one in after.split()[2].split(",") if one.startswith("upperdir="))
            uppers[where] = f"/proc/{parent}/root{upper}"
        elif "ro" not in options.split(","):
            whole.add(where)
    for root in ROOTS:
        top = f"/{root.split('/')[1]}"
        if top in uppers and root not in whole:
            yield from _below(uppers[top] + root.removeprefix(top), root)
        for where in whole:
            if f"{where}/".startswith(f"{root}/"):
                yield from _below(f"/proc/{init}/root{where}", where)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _below(place: str, path: str) -> Iterator[str]:
    """A path and those below it, as a place shows them."""
    if not os.path.lexists(place):
        return
    yield path
    if not os.path.islink(place) and os.path.isdir(place):
        for name in _names(place, path):
            yield from _below(f"{place}/{name}", f"{path}/{name}")


def _names(place: str, path: str) -> list[str]:
    names = (name for name in os.listdir(place) if name not in LEFT_OUT)
    return [name for name in names if f"{path}/{name}" not in NOT_COMPARED]


def _facts(top: Path, paths: Iterable[str], since_s: float = 0.0) -> State:
    """`top` is where the host's root is seen."""
    users, groups = (_by_number(top / "etc" / file) for file in ("passwd", "group"))
    found: State = {}
    for path in paths:
        place = f"{top}{path}" if top != MACHINE else path
        try:
            seen = os.lstat(place)
            if seen.st_ctime >= since_s:
                kind = stat.S_IFMT(seen.st_mode)
                owner, group = users.get(seen.st_uid, seen.st_uid), groups.get(seen.st_gid, seen.st_gid)
                found[path] = {"type": oct(kind), "mode": oct(seen.st_mode - kind), "owner": owner,
                               "group": group, "content": _content(place, path, seen.st_mode)}  # fmt: skip
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is not there, or has been removed meanwhile
    return found


def _by_number(file: Path) -> dict[int, str]:
    """The names of users or of groups; of two with a number the first counts, as for the system."""
    rows = [line.split(":") for line in file.read_text().splitlines()]
    return {int(row[2]): row[0] for row in reversed(rows) if len(row) > 2 and row[2].isdigit()}


def _content(place: str, path: str, mode: int) -> Any:
    if stat.S_ISLNK(mode):
        return os.readlink(place)
    if stat.S_ISDIR(mode):
        return sorted(_names(place, path))
    if not stat.S_ISREG(mode):
        return None
    data = Path(place).read_bytes()
    if path == "/etc/shadow":  # without the day of the last change
        lines = [line.split(b":") for line in data.splitlines()]
        # with the end of the last line, or this machine's last user would be told with those that follow
        data = b"".join(b":".join(line[:2] + line[3:]) + b"\n" for line in lines)
    if path.startswith("/var/spool/cron/"):  # without crontab's remark on when and from where
        data = b"\n".join(line for line in data.splitlines() if not line.startswith(b"# ("))
    try:
        return data.decode() if len(data) < 20000 else hashlib.sha256(data).hexdigest()
    except UnicodeDecodeError:
        return hashlib.sha256(data).hexdigest()
