#!/usr/bin/env python3
"""Runs compiled playbook steps on this host: desired minus observed, and says what changed.

JSON request lines in, JSON reply lines out (docs/agent-protocol.md, operation `steps`), or imported
by rm_agent.py. Standard library only, Python 3.8+, one file: where no agent is installed yet, this
text itself is sent over SSH and fed to `python3`.

A request: {"op": "steps", "steps": [{"id", "task", "op", "args", "user", "environment",
"ignore_errors", "check"}], "check": false, "diff": false, "planned": {}}. The reply's `results` are in
order: {"id", "changed", "failed", "msg", "diff": [unified diffs], ...}. After a failed step the rest of
its task still runs (the items of a loop), then nothing more. In check mode nothing is written;
`planned` carries what earlier steps would have made to the request that follows.

A file is written aside under one fixed name, synced, read back and renamed: an interrupted run never
leaves half a file, and the next run clears what it left aside.
"""

import base64
import contextlib
import errno
import json
import os
import stat as stat_module
import sys
import zlib

VERSION = "0.1.0"
OUTPUT_MAX_BYTES = 1 << 20  # of each stream of a command; the rest is dropped, and said so
DIFF_MAX_BYTES = 200_000
TOOL_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class StepFailed(Exception):
    """The step cannot reach its state; the message is a sentence."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details


class Run:
    """One request: its check and diff flags, and in check mode what would exist by now."""

    def __init__(self, check, diff, planned):
        self.check = check
        self.diff = diff
        self.planned = planned  # {"paths": {path: kind}, "users": [...], "groups": [...]}
        for name, empty in (("paths", {}), ("users", []), ("groups", [])):
            self.planned.setdefault(name, empty)

    def kind(self, path):
        """absent, directory, file, link or other; what is planned comes before what is."""
        paths = self.planned["paths"]
        if path in paths:
            return paths[path]
        above = os.path.dirname(path)
        while above not in ("", "/"):
            if paths.get(above) == "absent":
                return "absent"
            above = os.path.dirname(above)
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        for test, name in (
            (stat_module.S_ISLNK, "link"),
            (stat_module.S_ISDIR, "directory"),
            (stat_module.S_ISREG, "file"),
        ):
            if test(mode):
                return name
        return "other"

    def is_directory(self, path):
        return self.kind(path) == "directory" or (self.kind(path) == "link" and os.path.isdir(path))

    def plan(self, path, kind):
        if self.check:
            self.planned["paths"][path] = kind


# -- owners, modes, content ---------------------------------------------------------------------


def account(run, name, kind):
    """The number of a user or group, None when only planned."""
    import grp
    import pwd

    if str(name).isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        if run.check and name in run.planned[kind + "s"]:
            return None
        raise StepFailed("There is no %s '%s' on this host." % (kind, name)) from None


def wanted_ids(run, args):
    owner, group = args.get("owner"), args.get("group")
    uid = account(run, owner, "user") if owner is not None else -1
    gid = account(run, group, "group") if group is not None else -1
    return uid, gid


def fix_attributes(run, path, args, changes):
    """Owner and mode of an existing path; what differs is noted in `changes` and put right."""
    uid, gid = wanted_ids(run, args)
    mode = args.get("mode")
    if run.check and path in run.planned["paths"]:
        return
    seen = os.lstat(path)
    if (uid is None or uid >= 0) and seen.st_uid != uid:
        changes.append("owner: %s -> %s" % (seen.st_uid, args["owner"]))
    if (gid is None or gid >= 0) and seen.st_gid != gid:
        changes.append("group: %s -> %s" % (seen.st_gid, args["group"]))
    if changes and not run.check and (seen.st_uid, seen.st_gid) != (uid, gid):
        os.chown(path, uid, gid, follow_symlinks=False)
        seen = os.lstat(path)
    old = stat_module.S_IMODE(seen.st_mode)
    if mode is not None and old != mode and not stat_module.S_ISLNK(seen.st_mode):
        changes.append("mode: %04o -> %04o" % (old, mode))
        if not run.check:
            os.chmod(path, mode)


def write_file(run, path, data, args):
    """Write aside, sync, verify, rename. Owner and mode are those asked for, else the old ones."""
    directory, name = os.path.split(path)
    aside = os.path.join(directory, ".%s.rm-new" % name[:240])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)
    try:
        old = os.stat(path)
        mode, uid, gid = stat_module.S_IMODE(old.st_mode), old.st_uid, old.st_gid
    except OSError:
        umask = os.umask(0o077)
        os.umask(umask)
        mode, uid, gid = 0o666 & ~umask, -1, -1
    asked_uid, asked_gid = wanted_ids(run, args)
    uid, gid = (uid if asked_uid == -1 else asked_uid), (gid if asked_gid == -1 else asked_gid)
    fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w+b") as file:
            file.write(data)
            file.flush()
            if uid != -1 or gid != -1:
                os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), mode if args.get("mode") is None else args["mode"])
            os.fsync(file.fileno())
            file.seek(0)
            if file.read() != data:
                raise StepFailed("%s read back differently than written; %s is unchanged." % (aside, path))
        if args.get("validate"):
            import shlex

            argv = [word.replace("%s", aside) for word in shlex.split(args["validate"])]
            code, out, err = execute(argv)
            if code != 0:
                raise StepFailed("The new %s does not validate: %s" % (path, (err or out).strip()))
        if args.get("backup") and os.path.lexists(path):
            import shutil
            import time

            shutil.copy2(path, "%s.%s~" % (path, time.strftime("%Y-%m-%d@%H:%M:%S")))
        os.rename(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    sync_directory(directory)


def sync_directory(path):
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.EROFS):  # some file systems cannot
            raise
    finally:
        os.close(fd)


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def content_diff(run, path, old, new):
    if not run.diff:
        return []
    import difflib

    try:
        if len(old or b"") + len(new or b"") > DIFF_MAX_BYTES:
            raise ValueError
        before, after = (old or b"").decode(), (new or b"").decode()
    except ValueError:
        return ["%s: %d -> %d bytes (binary or long)\n" % (path, len(old or b""), len(new or b""))]
    lines = difflib.unified_diff(
        before.splitlines(True),
        after.splitlines(True),
        path if old is not None else "/dev/null",
        path if new is not None else "/dev/null",
    )
    return ["".join(x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)]


def state_diff(run, path, changes):
    return ["%s: %s\n" % (path, "; ".join(changes))] if run.diff and changes else []


def sha1(data):
    import hashlib

    return hashlib.sha1(data).hexdigest()


def execute(argv, cwd=None, env=None, stdin=None):
    """Run a program to its end: code, stdout, stderr. Output goes to files, so that a daemon that the
    program leaves behind cannot hold this run by keeping a pipe open."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as into:
        if stdin is not None:
            into.write(stdin.encode())
            into.seek(0)
        source = subprocess.DEVNULL if stdin is None else into
        code = subprocess.call(argv, cwd=cwd, env=env, stdin=source, stdout=out, stderr=err)
        texts = []
        for file in (out, err):
            size = file.seek(0, 2)
            file.seek(0)
            text = file.read(OUTPUT_MAX_BYTES).decode("utf-8", "replace")
            texts.append(text if size <= OUTPUT_MAX_BYTES else text + "\n[%d bytes in all]" % size)
    return code, texts[0], texts[1]


def tool(*names):
    import shutil

    for name in names:
        found = shutil.which(name) or shutil.which(name, path=TOOL_PATH)
        if found:
            return found
    raise StepFailed("This host has no %s." % " or ".join(names))


def must(argv):
    code, out, err = execute(argv, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C"))
    if code != 0:
        raise StepFailed(
            "%s failed (%d): %s" % (os.path.basename(argv[0]), code, (err or out).strip()[-2000:])
        )
    return out


def absolute(path):
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise StepFailed("The path '%s' is not absolute." % path)
    return os.path.normpath(path)


# -- the operations: args -> result -------------------------------------------------------------


def do_file(run, args):
    path = absolute(args["path"])
    state, changes = args["state"], []
    kind = run.kind(path)
    if state == "absent":
        if path == "/":
            raise StepFailed("The root directory is never removed.")
        if kind == "absent":
            return {"changed": False, "path": path, "state": "absent"}
        if not run.check:
            if kind == "directory":
                import shutil

                shutil.rmtree(path)
            else:
                os.unlink(path)
        run.plan(path, "absent")
        return {"changed": True, "path": path, "state": "absent", "diff": state_diff(run, path, ["removed"])}
    if state == "directory":
        if kind == "absent":
            missing = []
            above = path
            while run.kind(above) == "absent":
                missing.append(above)
                above = os.path.dirname(above)
            if not run.is_directory(above):
                raise StepFailed("%s is not a directory." % above)
            wanted_ids(run, args)
            for one in reversed(missing):
                if not run.check:
                    os.mkdir(one)
                    fix_attributes(run, one, args, [])
                run.plan(one, "directory")
            changes.append("created directory")
        elif not run.is_directory(path):
            raise StepFailed("%s exists and is a %s, not a directory." % (path, kind))
        else:
            fix_attributes(run, os.path.realpath(path) if kind == "link" else path, args, changes)
        if args.get("recurse") and os.path.isdir(path):
            for top, directories, files in os.walk(path):
                for name in sorted(directories) + sorted(files):
                    fix_attributes(run, os.path.join(top, name), args, changes)
    elif state == "link":
        target = args["src"]
        if kind == "link" and path not in run.planned["paths"] and os.readlink(path) == target:
            return {"changed": False, "dest": path, "src": target, "state": "link"}
        if kind in ("directory", "file", "other") and not args.get("force"):
            raise StepFailed("%s exists and is a %s; 'force' would replace it by the link." % (path, kind))
        if kind == "directory":
            raise StepFailed("%s is a directory; remove it first." % path)
        changes.append("link to %s" % target)
        if not run.check:
            aside = os.path.join(os.path.dirname(path), ".%s.rm-new" % os.path.basename(path)[:240])
            if os.path.lexists(aside):
                os.unlink(aside)
            os.symlink(target, aside)
            os.rename(aside, path)
        run.plan(path, "link")
    elif state == "touch":
        changes.append("touched")
        if not run.check:
            if kind == "absent":
                write_file(run, path, b"", args)
            else:
                os.utime(path)
                fix_attributes(run, path, args, changes)
        elif kind == "absent":
            run.plan(path, "file")
    else:
        if kind == "absent":
            raise StepFailed("%s does not exist; 'file' creates it only with state touch." % path)
        fix_attributes(run, os.path.realpath(path) if kind == "link" else path, args, changes)
    return {
        "changed": bool(changes),
        "path": path,
        "state": run.kind(path) if run.check else state,
        "diff": state_diff(run, path, changes),
    }


def put_content(run, path, data, args):
    """Bring one file to this content; the heart of copy, template and lineinfile."""
    kind = run.kind(path)
    if kind == "directory":
        raise StepFailed("%s is a directory." % path)
    if not run.is_directory(os.path.dirname(path)):
        raise StepFailed("The directory %s does not exist." % os.path.dirname(path))
    planned = path in run.planned["paths"]
    old = read_file(path) if kind in ("file", "link") and not planned and os.path.exists(path) else None
    if old is not None and not args.get("force", True):
        return {"changed": False, "dest": path, "msg": "file already exists"}
    changes, diff = [], []
    if old != data:
        diff = content_diff(run, path, old, data)
        changes.append("content")
        if run.check:
            wanted_ids(run, args)
            run.plan(path, "file")
        else:
            write_file(run, path, data, args)
    elif kind == "file":
        fix_attributes(run, path, args, changes)
        diff = state_diff(run, path, changes)
    return {"changed": bool(changes), "dest": path, "checksum": sha1(data), "size": len(data), "diff": diff}


def unpack(text):
    return zlib.decompress(base64.b64decode(text))


def do_copy(run, args):
    into = args["dest"].endswith("/")
    dest = absolute(args["dest"])
    if "files" in args:
        result = {"changed": False, "dest": dest, "diff": []}
        for name in sorted(args["files"]):
            path = os.path.join(dest, name)
            attributes = {"path": os.path.dirname(path), "state": "directory"}
            for key in ("owner", "group"):
                attributes[key] = args.get(key)
            attributes["mode"] = args.get("directory_mode")
            parts = [do_file(run, attributes), put_content(run, path, unpack(args["files"][name]), args)]
            result["changed"] |= any(part["changed"] for part in parts)
            result["diff"] += [d for part in parts for d in part.get("diff", [])]
        return result
    if "remote_src" in args:
        source = absolute(args["remote_src"])
        data, name = read_file(source), os.path.basename(source)
    else:
        data, name = unpack(args["content"]), args.get("name") or ""
    if run.is_directory(dest) or into:
        if not name:
            raise StepFailed("%s is a directory." % dest)
        if not run.is_directory(dest):
            do_file(run, {"path": dest, "state": "directory"})
        dest = os.path.join(dest, name)
    return put_content(run, dest, data, args)


def do_lineinfile(run, args):
    import re

    path = absolute(args["path"])
    if run.kind(path) == "link":
        path = os.path.realpath(path)
    if run.kind(path) == "absent" or path in run.planned["paths"]:
        if not args["create"] and run.kind(path) == "absent":
            if args["state"] == "absent":
                return {"changed": False, "msg": "file not present", "found": 0}
            raise StepFailed("%s does not exist; 'create' would make it." % path)
        old = None
    else:
        old = read_file(path)
    lines = (old or b"").decode("utf-8", "surrogateescape").splitlines(True)
    regexp = re.compile(args["regexp"]) if args["regexp"] is not None else None
    search = args["search_string"]

    def matches(text):
        if regexp is not None:
            return regexp.search(text)
        if search is not None:
            return search in text
        return args["line"] == text.rstrip("\r\n") if args["state"] == "absent" else None

    if args["state"] == "absent":
        kept = [one for one in lines if not matches(one.rstrip("\r\n"))]
        found, lines = len(lines) - len(kept), kept
        said = "%d line(s) removed" % found if found else ""
    else:
        found, said = None, ""
        lines, said = _with_line(args, lines, matches, re)
    data = "".join(lines).encode("utf-8", "surrogateescape")
    if old is None and args["state"] == "absent":
        return {"changed": False, "found": 0}
    result = put_content(run, path, data, args)
    result["msg"] = said
    if found is not None:
        result["found"] = found
    return result


def _with_line(args, lines, matches, re):
    line = args["line"].rstrip("\r\n")
    first = args["firstmatch"]
    hits = [i for i, one in enumerate(lines) if matches(one.rstrip("\r\n"))]
    if hits:
        at = hits[0] if first else hits[-1]
        match = matches(lines[at].rstrip("\r\n"))
        new = match.expand(line) if args["backrefs"] and hasattr(match, "expand") else line
        if lines[at].rstrip("\r\n") == new:
            return lines, ""
        return [*lines[:at], new + "\n", *lines[at + 1 :]], "line replaced"
    if args["backrefs"] or any(one.rstrip("\r\n") == line for one in lines):
        return lines, ""
    after, before = args["insertafter"], args["insertbefore"]
    if "BOF" in (after, before):
        return [line + "\n", *lines], "line added"
    pattern = before or (after if after != "EOF" else None)
    places = [i for i, one in enumerate(lines) if pattern and re.search(pattern, one.rstrip("\r\n"))]
    at = len(lines) if not places else (places[0] if first else places[-1]) + (0 if before else 1)
    if at and not lines[at - 1].endswith("\n"):
        lines = [*lines[: at - 1], lines[at - 1] + "\n", *lines[at:]]
    return [*lines[:at], line + "\n", *lines[at:]], "line added"


def do_command(run, args):
    import glob
    import time

    argv = args["argv"]
    shown = args.get("shell") or argv
    if args.get("expand_argument_vars"):
        argv = [os.path.expanduser(os.path.expandvars(word)) for word in argv]
    chdir = absolute(args["chdir"]) if args.get("chdir") else None
    for name, stops in (("creates", True), ("removes", False)):
        pattern = args.get(name)
        if pattern:
            pattern = os.path.join(chdir or os.getcwd(), os.path.expanduser(pattern))
            there = bool(glob.glob(pattern)) or run.kind(pattern) != "absent"
            if there == stops:
                why = "since %s %s" % (pattern, "exists" if stops else "does not exist")
                empty = {"rc": 0, "stdout": "skipped, " + why, "stderr": "", "cmd": shown, "stderr_lines": []}
                return dict(empty, changed=False, msg="Did not run, " + why, stdout_lines=[empty["stdout"]])
    if run.check:
        text = shown if isinstance(shown, str) else " ".join(shown)
        known = bool(args.get("creates") or args.get("removes"))
        result = {"rc": 0, "stdout": "", "stderr": "", "stdout_lines": [], "stderr_lines": [], "cmd": shown}
        return dict(result, changed=known, skipped=not known, might_run=True, msg="might run: " + text)
    stdin = args.get("stdin")
    if stdin is not None and args.get("stdin_add_newline", True):
        stdin += "\n"
    began = time.monotonic()
    try:
        code, out, err = execute(argv, chdir, None, stdin)
    except OSError as problem:
        raise StepFailed("'%s' cannot be run: %s." % (argv[0], problem.strerror), rc=2, cmd=shown) from None
    if args.get("strip_empty_ends", True):
        out, err = out.rstrip("\r\n"), err.rstrip("\r\n")
    return {
        "changed": True,
        "failed": code != 0,
        "rc": code,
        "msg": "" if code == 0 else "exit code %d" % code,
        "cmd": shown,
        "stdout": out,
        "stderr": err,
        "stdout_lines": out.splitlines(),
        "stderr_lines": err.splitlines(),
        "delta_us": int((time.monotonic() - began) * 1e6),
    }


def do_group(run, args):
    import grp

    name = args["name"]
    try:
        seen = grp.getgrnam(name)
    except KeyError:
        seen = None
    if args["state"] == "absent":
        argv = ["groupdel", name] if seen else None
    elif seen is None:
        argv = ["groupadd"] + (["-r"] if args["system"] else [])
        argv += (["-g", str(args["gid"])] if args["gid"] is not None else []) + [name]
    elif args["gid"] is not None and seen.gr_gid != args["gid"]:
        argv = ["groupmod", "-g", str(args["gid"]), name]
    else:
        argv = None
    planned = run.check and seen is None and name in run.planned["groups"]
    if argv is None or planned:
        return {"changed": False, "name": name, "state": args["state"]}
    if run.check:
        run.planned["groups"].append(name)
    else:
        must([tool(argv[0]), *argv[1:]])
    return {"changed": True, "name": name, "state": args["state"], "diff": state_diff(run, name, [argv[0]])}


def do_user(run, args):
    import grp
    import pwd

    name = args["name"]
    result = {"name": name, "state": args["state"], "changed": False}
    try:
        seen = pwd.getpwnam(name)
    except KeyError:
        seen = None
    if args["state"] == "absent":
        if seen is None:
            return result
        flags = (["-r"] if args["remove"] else []) + (["-f"] if args["force"] else [])
        argv = [["userdel", *flags, name]]
    else:
        argv = []
        if seen is None and run.check and name in run.planned["users"]:
            return result
        for group in ([args["group"]] if args["group"] else []) + (args["groups"] or []):
            account(run, group, "group")
        flags = []
        for value, flag, old in (
            (args["uid"], "-u", seen and seen.pw_uid),
            (args["comment"], "-c", seen and seen.pw_gecos),
            (args["shell"], "-s", seen and seen.pw_shell),
            (args["home"], "-d", seen and seen.pw_dir),
        ):
            if value is not None and value != old:
                flags += [flag, str(value)]
        if args["group"] and (seen is None or account(run, args["group"], "group") != seen.pw_gid):
            flags += ["-g", args["group"]]
        if args["groups"] is not None:
            own = {g.gr_name for g in grp.getgrall() if name in g.gr_mem}
            wanted = set(args["groups"]) | (own if args["append"] else set())
            if own != wanted:
                flags += ["-G", ",".join(sorted(wanted))]
        if seen is None:
            flags += (["-r"] if args["system"] else []) + ["-m" if args["create_home"] else "-M"]
            if args["group"] is None:
                try:
                    grp.getgrnam(name)
                    flags += ["-g", name]  # as useradd would refuse to make the group once more
                except KeyError:
                    pass
            argv = [["useradd", *flags, name]]
        elif flags:
            argv = [["usermod", *flags, name]]
    if not argv:
        return dict(result, uid=seen.pw_uid, group=seen.pw_gid, home=seen.pw_dir, shell=seen.pw_shell)
    if run.check:
        if args["state"] == "present":
            run.planned["users"].append(name)
            run.planned["groups"].append(args["group"] or name)
    else:
        for one in argv:
            must([tool(one[0]), *one[1:]])
        if args["state"] == "present":
            now = pwd.getpwnam(name)
            result.update(uid=now.pw_uid, group=now.pw_gid, home=now.pw_dir, shell=now.pw_shell)
    result["diff"] = state_diff(run, "user " + name, [" ".join(one) for one in argv])
    return dict(result, changed=True)


def do_stat(run, args):
    import grp
    import hashlib
    import pwd

    path = os.path.expanduser(args["path"])
    try:
        seen = os.stat(path) if args["follow"] else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"changed": False, "stat": {"exists": False}}
    mode = seen.st_mode
    found = {
        "exists": True,
        "path": path,
        "mode": "%04o" % stat_module.S_IMODE(mode),
        "isdir": stat_module.S_ISDIR(mode),
        "isreg": stat_module.S_ISREG(mode),
        "islnk": stat_module.S_ISLNK(mode),
        "issock": stat_module.S_ISSOCK(mode),
        "isfifo": stat_module.S_ISFIFO(mode),
        "ischr": stat_module.S_ISCHR(mode),
        "isblk": stat_module.S_ISBLK(mode),
        "size": seen.st_size,
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "inode": seen.st_ino,
        "dev": seen.st_dev,
        "nlink": seen.st_nlink,
        "mtime": seen.st_mtime,
        "atime": seen.st_atime,
        "ctime": seen.st_ctime,
        "readable": os.access(path, os.R_OK),
        "writeable": os.access(path, os.W_OK),
        "executable": os.access(path, os.X_OK),
    }
    try:
        found["pw_name"] = pwd.getpwuid(seen.st_uid).pw_name
        found["gr_name"] = grp.getgrgid(seen.st_gid).gr_name
    except KeyError:
        pass
    if found["islnk"]:
        found["lnk_target"], found["lnk_source"] = os.readlink(path), os.path.realpath(path)
    if found["isreg"] and args["get_checksum"] and found["readable"]:
        digest = hashlib.new(args["checksum_algorithm"])
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        found["checksum"] = digest.hexdigest()
    return {"changed": False, "stat": found}


def do_package(run, args):
    import shutil

    names, state = args["name"], args["state"]
    debian = shutil.which("dpkg-query") is not None
    if not debian:
        tool("rpm")
    program = tool("apt-get") if debian else tool("dnf", "yum")

    def installed(name):
        if debian:
            code, out, _ = execute(
                ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name.split("=")[0]]
            )
            version = out.split(" ")[1] if code == 0 and out.startswith("installed ") else None
            return version is not None and ("=" not in name or version == name.split("=", 1)[1])
        return execute(["rpm", "-q", "--whatprovides", name])[0] == 0

    def outdated(name):
        if not debian:
            return execute([program, "-q", "check-update", name])[0] == 100
        out = must([tool("apt-cache"), "policy", name])
        fields = dict(line.strip().split(": ", 1) for line in out.splitlines() if ": " in line)
        return fields.get("Installed") != fields.get("Candidate")

    if args["update_cache"] and debian and not run.check:
        must([program, "-qq", "update"])
    if state == "absent":
        todo = [name for name in names if installed(name)]
    else:
        todo = [n for n in names if not installed(n) or (state == "latest" and outdated(n))]
    if todo and not run.check:
        verb = "remove" if state == "absent" else "install"
        options = ["-qq", "-o", "Dpkg::Options::=--force-confold"] if debian else ["-q"]
        if debian and args["install_recommends"] is False:
            options.append("--no-install-recommends")
        must([program, "-y", *options, verb, *todo])
    return {"changed": bool(todo), "packages": todo, "diff": state_diff(run, state, todo)}


def do_wait_for(run, args):
    import socket
    import time

    began = time.monotonic()
    there = args["state"] in ("present", "started")
    what = args["path"] or "%s:%s" % (args["host"], args["port"])
    if run.check:
        return {"changed": False, "skipped": True, "might_run": True, "msg": "might wait for " + what}
    time.sleep(args["delay"])
    if args["path"] is None and args["port"] is None:
        time.sleep(max(0, args["timeout"] - args["delay"]))
        return {"changed": False, "elapsed": args["timeout"]}
    while True:
        if args["path"] is not None:
            found = os.path.lexists(args["path"])
        else:
            try:
                socket.create_connection((args["host"], args["port"]), args["connect_timeout"]).close()
                found = True
            except OSError:
                found = False
        elapsed = time.monotonic() - began
        if found == there:
            return {"changed": False, "elapsed": int(elapsed), "path": args["path"], "port": args["port"]}
        if elapsed >= args["timeout"]:
            said = "%s is not %s after %d s." % (what, args["state"], args["timeout"])
            raise StepFailed(args["msg"] or said, elapsed=int(elapsed))
        time.sleep(min(args["sleep"], max(0.05, args["timeout"] - elapsed)))


def do_setup(run, args):
    import platform
    import pwd
    import socket

    def text(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def ip(*words):
        try:
            code, out, _ = execute([tool("ip"), "-json", *list(words)])
        except (OSError, StepFailed):
            return ""
        return out if code == 0 else ""

    me = pwd.getpwuid(os.getuid())
    raw = {
        "uname": list(platform.uname()[:5]),
        "hostname": socket.gethostname(),
        "fqdn": socket.gethostname(),
        "os_release": text("/etc/os-release") or text("/usr/lib/os-release"),
        "meminfo": text("/proc/meminfo"),
        "cpus": os.cpu_count() or 1,
        "cpus_usable": len(os.sched_getaffinity(0)),
        "addresses": ip("address"),
        "routes": ip("route"),
        "python_version": list(sys.version_info[:3]),
        "python_executable": sys.executable or "python3",
        "init": text("/proc/1/comm").strip(),
        "user": me.pw_name,
        "uid": me.pw_uid,
        "home": me.pw_dir,
        "machine_id": text("/etc/machine-id").strip(),
        "uptime_s": float((text("/proc/uptime") or "0").split()[0]),
    }
    return {"changed": False, "raw_facts": raw}


def do_ping(run, args):
    return {"changed": False, "ping": args["data"]}


def do_note(run, args):
    """A step whose result the control side already knows; it keeps its place in the order."""
    return dict(args["result"], changed=False, failed=bool(args.get("failed")))


# -- running ------------------------------------------------------------------------------------


def run_step(run, step):
    """One step to its result; nothing but a result ever comes out."""
    operation = globals().get("do_" + step["op"])
    if operation is None:
        return {
            "changed": False,
            "failed": True,
            "msg": "This host's rm_steps.py does not know '%s'." % step["op"],
        }
    saved = dict(os.environ)
    try:
        os.environ.update(step.get("environment") or {})
        result = operation(run, step["args"])
        result.setdefault("failed", False)
    except StepFailed as problem:
        result = dict({"changed": False, "failed": True, "msg": str(problem)}, **problem.details)
    except OSError as problem:
        where = " (%s)" % problem.filename if problem.filename else ""
        result = {"changed": False, "failed": True, "msg": "%s%s." % (problem.strerror or problem, where)}
    except Exception as problem:  # told as a failed step: one bad step must not lose the others' answers
        said = "%s: %s" % (type(problem).__name__, problem)
        result = {
            "changed": False,
            "failed": True,
            "msg": "rm_steps.py failed in '%s': %s" % (step["op"], said),
        }
    finally:
        os.environ.clear()
        os.environ.update(saved)
    return result


def run_step_as(run, step):
    """The same in a child that has become another user; what it plans comes back with the result."""
    import pwd

    try:
        who = pwd.getpwnam(step["user"])
    except KeyError:
        if run.check and step["user"] in run.planned["users"]:
            return {
                "changed": False,
                "skipped": True,
                "might_run": True,
                "msg": "the user does not exist yet",
            }
        return {"changed": False, "failed": True, "msg": "There is no user '%s' on this host." % step["user"]}
    if who.pw_uid == os.getuid():
        return run_step(run, step)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.initgroups(who.pw_name, who.pw_gid)
            os.setgid(who.pw_gid)
            os.setuid(who.pw_uid)
            os.environ.update(HOME=who.pw_dir, USER=who.pw_name, LOGNAME=who.pw_name)
            os.chdir("/")
            result = run_step(run, step)
        except OSError as problem:
            said = "cannot become '%s': %s" % (step["user"], problem.strerror)
            result = {"changed": False, "failed": True, "msg": said}
        with os.fdopen(writing, "w") as file:
            json.dump([result, run.planned], file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        return {"changed": False, "failed": True, "msg": "The step's process was killed."}
    result, run.planned = json.loads(text)
    return result


def steps_operation(request):
    """The operation `steps` of the agent protocol."""
    run = Run(bool(request.get("check")), bool(request.get("diff")), request.get("planned") or {})
    asked = run.check
    results, failed_task = [], None
    for step in request["steps"]:
        if failed_task is not None and step["task"] != failed_task:
            break
        run.check = bool(step.get("check", asked))
        result = run_step_as(run, step) if step.get("user") else run_step(run, step)
        results.append(dict(result, id=step["id"]))
        if result.get("failed") and not step.get("ignore_errors"):
            failed_task = step["task"]
    return {"results": results, "planned": run.planned}


OPS = {}
SLOW_OPS = {"steps": steps_operation}


def serve(lines, write):
    for line in lines:
        if not line.strip():
            continue
        identity = None
        try:
            request = json.loads(line)
            identity = request.get("id")
            if request.get("op") not in SLOW_OPS:
                raise ValueError("unknown operation %r" % request.get("op"))
            reply = {"id": identity, "ok": True, "result": SLOW_OPS[request["op"]](request)}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            reply = {
                "id": identity,
                "ok": False,
                "code": "bad-request",
                "error": "Bad request: %s." % problem,
            }
        write(json.dumps(reply, separators=(",", ":")) + "\n")


def main(arguments):
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    if arguments:
        print("usage: rm_steps.py [--version]  (JSON request lines on standard input)", file=sys.stderr)
        return 2

    def write(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    serve(sys.stdin, write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
