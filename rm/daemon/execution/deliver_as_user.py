"""Writes logs into a user's directory, as that user: the only code here that needs a user's rights.

    python -I -m rm.daemon.execution.deliver_as_user [PATTERN]

Standard input is a socket (SOCK_SEQPACKET) with one request, {"user", "directory", "names", "logs"}, and the
open files that are to be written: for each name as many as "logs" says, or one where that is left out. The
answer is a list: of each name "", or why it is not written. Started as root (by root's daemon, or by
packaging/rm-deliver.socket for one that is not root) it becomes the user before it opens
anything, and it never writes as root. The names must be such as PATTERN makes, which is jobs.deliver of
/etc/rm/rm.toml unless it is given: a sender of requests can put logs into directories, and no other files.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import stat
import sys
from collections.abc import Sequence
from itertools import islice

FILES_MAX = 100  # of one request; the kernel passes 253
REQUEST_MAX = 1 << 16
SENTENCE_MAX = 300
ANSWER_MAX = 1 << 18
DEFAULT_PATTERN = "rm-%j.out"
_CONFIG = "/etc/rm/rm.toml"


class Refused(Exception):
    """A sentence for the user."""


def named_by(pattern: str, name: str) -> bool:
    """Can `name` have come from the pattern, also with the task's number before its suffix?"""
    stem, suffix = os.path.splitext(pattern)
    made = [re.sub(r"%(%|\d*[A-Za-z])", _placeholder, re.escape(p)) for p in (pattern, f"{stem}.%t{suffix}")]
    return name[:1] not in ("", ".") and any(re.fullmatch(one, name) for one in made)


def _placeholder(found: re.Match[str]) -> str:
    """What may stand there: a number where it is one, so that names of any other sort are no logs."""
    key = found[1][-1]
    if key in "jJA":
        return r"[0-9]+(_[0-9]+)?"
    if key in "ant":
        return rf"([0-9]+|{found[0]})"  # what the job has not stays as it is
    return "%" if key == "%" else r"[^/\0]*"


def configured_pattern(config: str = _CONFIG) -> str:
    import tomllib  # not in each child of root's daemon

    try:
        with open(config, "rb") as file:
            return str(tomllib.load(file).get("jobs", {}).get("deliver", DEFAULT_PATTERN))
    except FileNotFoundError:
        return DEFAULT_PATTERN


def become(user: str) -> None:
    """This process is the user's from here on, with the user's groups."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise Refused(f"there is no user {user} on this machine") from None
    if account.pw_uid == 0:
        raise Refused("root's output is never delivered")
    if os.getuid() == 0:
        os.initgroups(user, account.pw_gid)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    elif os.getuid() != account.pw_uid:
        raise Refused("the daemon does not run as root and cannot write as another user")


def copy(at: int, name: str, files: Sequence[int]) -> None:
    """Into the directory `at`, one after the other; written aside and renamed: neither is a link of that name
    followed nor half a log seen."""
    sizes = [(fd, os.fstat(fd)) for fd in files]
    if not all(stat.S_ISREG(about.st_mode) for _, about in sizes):
        raise Refused("what is to be written is not a file")
    aside = f".rm-delivery.{os.getpid()}.{files[0]}"
    out = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=at)
    try:
        with open(out, "wb") as target:
            for fd, about in sizes:
                left = about.st_size
                with open(fd, "rb", closefd=False) as source:
                    while data := source.read(min(left, 1 << 20)):
                        target.write(data)
                        left -= len(data)
        os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        os.unlink(aside, dir_fd=at)
        raise


def serve(door: socket.socket, pattern: str) -> list[str]:
    """Carry out the one request: of each name "", or why it could not be written; one sentence for all."""
    text, files, _, _ = socket.recv_fds(door, REQUEST_MAX, FILES_MAX)
    try:
        request = json.loads(text)
        user, directory, names = request["user"], request["directory"], request["names"]
        logs = request.get("logs", [1] * len(names))
        if len(names) != len(logs) or min(logs, default=1) < 1 or sum(logs) != len(files):
            raise ValueError(f"{len(files)} files for {len(names)} names")
        left = iter(files)
        of_each = [list(islice(left, number)) for number in logs]
        unfit = [not named_by(pattern, name) for name in names]
        become(user)
        os.umask(int(request.get("umask", 0o022)) & 0o777)
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except Refused as refused:
        return [str(refused)]
    except OSError as error:
        return [error.strerror or str(error)]
    except (ValueError, KeyError, TypeError) as error:
        return [f"the request cannot be understood: {error!r}"]
    told = []
    for name, its, wrong in zip(names, of_each, unfit, strict=True):
        try:
            if wrong:
                raise Refused(f"'{name}' is not a name that jobs.deliver of rm.toml ('{pattern}') makes")
            copy(at, name, its)
            told.append("")
        except Refused as refused:
            told.append(str(refused))
        except OSError as error:
            told.append(error.strerror or str(error))
    return told


def main(arguments: Sequence[str]) -> int:
    os.umask(0o022)
    os.chdir("/")
    with socket.socket(fileno=0) as door:
        told = serve(door, arguments[0] if arguments else configured_pattern())
        door.sendall(json.dumps([why[:SENTENCE_MAX] for why in told]).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
