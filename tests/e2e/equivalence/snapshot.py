"""The end state of a host: what was changed below the directories that playbooks write to.

`PROGRAM` runs on the host and prints JSON: every entry that changed since a moment (by its ctime), with its
type, mode, owner, group and content. A directory's content is the names in it: what was removed shows, too.
"""

from __future__ import annotations

import difflib
import json
import stat
import subprocess
from collections.abc import Iterable, Sequence
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

PROGRAM = r"""
import grp, hashlib, json, os, pwd, stat, sys
since, roots, also, skipped = json.loads(sys.stdin.readline())
skipped = set(skipped)
found = {}
def name(of, number):
    try:
        return of(number)[0]
    except KeyError:
        return number
def entries(path):
    names = [one for one in os.listdir(path) if one not in (".ansible", ".git", "__pycache__")]
    return [one for one in names if os.path.join(path, one) not in skipped]
def content(path, mode):
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if stat.S_ISDIR(mode):
        return sorted(entries(path))
    if not stat.S_ISREG(mode):
        return None
    with open(path, "rb") as file:
        data = file.read()
    if path == "/etc/shadow":  # without the day of the last change
        lines = [line.split(b":") for line in data.splitlines()]
        data = b"\n".join(b":".join(line[:2] + line[3:]) for line in lines)
    if path.startswith("/var/spool/cron/"):  # without crontab's remark on when and from where
        data = b"\n".join(line for line in data.splitlines() if not line.startswith(b"# ("))
    try:
        return data.decode() if len(data) < 20000 else hashlib.sha256(data).hexdigest()
    except UnicodeDecodeError:
        return hashlib.sha256(data).hexdigest()
def look(path):
    try:
        look_at(path)
    except FileNotFoundError:
        pass  # of this machine's, which it has removed meanwhile
def look_at(path):
    seen = os.lstat(path)
    if seen.st_ctime >= since or path in also:
        kind = stat.S_IFMT(seen.st_mode)
        found[path] = {"type": oct(kind), "mode": oct(seen.st_mode - kind),
                       "owner": name(pwd.getpwuid, seen.st_uid), "group": name(grp.getgrgid, seen.st_gid),
                       "content": content(path, seen.st_mode)}
    if stat.S_ISDIR(seen.st_mode) and path not in also:
        for one in entries(path):
            look(os.path.join(path, one))
for root in roots or also:
    if os.path.lexists(root):
        look(root)
print(json.dumps(found))
"""  # fmt: skip

DIRECTORY = oct(stat.S_IFDIR)
ASK = ("/usr/bin/python3", "-S", "-E", "-c", PROGRAM)
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
    found = _ask(lab.exec_command(host, ASK), since_s, ROOTS, ())
    here = _ask(ASK, 0.0, (), tuple(found))
    return {path: _own(path, fact, here.get(path)) for path, fact in found.items() if fact != here.get(path)}


def look(lab: Lab, host: str, paths: Iterable[str]) -> State:
    """The same of these paths, changed or not, as far as they are there."""
    found = _ask(lab.exec_command(host, ASK), 0.0, (), tuple(paths))
    here = _ask(ASK, 0.0, (), tuple(found))
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


def _ask(argv: Sequence[str], since_s: float, roots: tuple[str, ...], also: tuple[str, ...]) -> State:
    asked = json.dumps([since_s, roots, also, NOT_COMPARED]) + "\n"
    done = subprocess.run(argv, input=asked.encode(), capture_output=True, check=True, timeout=60)
    found: State = json.loads(done.stdout)
    return found
