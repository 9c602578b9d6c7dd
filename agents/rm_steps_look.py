"""`stat`, `find`, `slurp`, `tempfile`, `ping`: what is there, and a place for something new."""

import os
import stat as stat_module

from rm_steps_aside import refuse_led_away
from rm_steps_base import StepFailed, digest_of_file, expanded
from rm_steps_write import fix_attributes, mode_from, name_of

_PARTS = (("xusr", 0o100), ("wusr", 0o200), ("rusr", 0o400), ("xgrp", 0o010), ("wgrp", 0o020),
          ("rgrp", 0o040), ("xoth", 0o001), ("woth", 0o002), ("roth", 0o004))  # fmt: skip


def _fields(path, seen):
    """The fields of stat(2) by Ansible's names."""
    mode = seen.st_mode
    found = {
        "path": path,
        "mode": "%04o" % stat_module.S_IMODE(mode),
        "isdir": stat_module.S_ISDIR(mode),
        "isreg": stat_module.S_ISREG(mode),
        "islnk": stat_module.S_ISLNK(mode),
        "issock": stat_module.S_ISSOCK(mode),
        "isfifo": stat_module.S_ISFIFO(mode),
        "ischr": stat_module.S_ISCHR(mode),
        "isblk": stat_module.S_ISBLK(mode),
        "isuid": bool(mode & stat_module.S_ISUID),
        "isgid": bool(mode & stat_module.S_ISGID),
        "size": seen.st_size,
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "inode": seen.st_ino,
        "dev": seen.st_dev,
        "nlink": seen.st_nlink,
        "mtime": seen.st_mtime,
        "atime": seen.st_atime,
        "ctime": seen.st_ctime,
        "pw_name": name_of(seen.st_uid, "user"),
        "gr_name": name_of(seen.st_gid, "group"),
    }
    found.update((name, bool(mode & bit)) for name, bit in _PARTS)
    return found


def do_stat(run, args):
    path = expanded(args["path"])
    if run.check and run.planned["paths"].get(path) == "absent":
        return {"changed": False, "stat": {"exists": False}}
    try:
        seen = os.stat(path) if args["follow"] else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"changed": False, "stat": {"exists": False}}
    found = dict(_fields(path, seen), exists=True)
    found.update(
        blocks=seen.st_blocks,
        block_size=seen.st_blksize,
        device_type=seen.st_rdev,
        readable=os.access(path, os.R_OK),
        writeable=os.access(path, os.W_OK),
        executable=os.access(path, os.X_OK),
    )
    if found["islnk"]:
        found["lnk_target"], found["lnk_source"] = os.readlink(path), os.path.realpath(path)
    if found["isreg"] and args["get_checksum"] and found["readable"]:
        found["checksum"] = digest_of_file(path, args["checksum_algorithm"])
    if found["isreg"] and args.get("get_mime"):
        found.update(_mime(path))
    return {"changed": False, "stat": found}


def _mime(path):
    from rm_steps_base import asks, find_tool

    program = find_tool("file")
    code, out = asks([program, "--mime-type", "--mime-encoding", "-b", path]) if program else (1, "")
    kind, _, encoding = out.strip().partition("; charset=")
    if code != 0 or not encoding:
        return {"mimetype": "unknown", "charset": "unknown"}
    return {"mimetype": kind, "charset": encoding}


def do_find(run, args):
    """Files that match; `skipped_paths` are the places that could not be looked into."""
    import time

    now, found, examined, skipped = time.time(), [], 0, {}
    for top in args["paths"]:
        top = expanded(top)
        if not os.path.isdir(top):
            skipped[top] = "'%s' is not a directory" % top
            continue
        base = top.rstrip("/").count("/")
        errors = []
        for where, directories, names in os.walk(top, followlinks=args["follow"], onerror=errors.append):
            depth = where.rstrip("/").count("/") - base + 1
            examined += len(directories) + len(names)
            if args["depth"] and depth > args["depth"]:
                directories[:] = []
                continue
            for name in [*names, *directories]:
                path = os.path.normpath(os.path.join(where, name))
                if name.startswith(".") and not args["hidden"]:
                    continue
                try:
                    seen = os.lstat(path)
                except OSError as problem:
                    skipped[path] = str(problem)
                    continue
                if _wanted(args, path, name, seen, now):
                    one = _fields(path, seen)
                    if args["get_checksum"] and one["isreg"]:
                        one["checksum"] = digest_of_file(path, args["checksum_algorithm"])
                    found.append(one)
            if not args["recurse"]:
                directories[:] = []
            if args["limit"] and len(found) >= args["limit"]:
                break
        skipped.update((e.filename, e.strerror) for e in errors)
    if args["limit"]:
        found = found[: args["limit"]]
    said = "All paths examined" if not skipped else "Not all paths examined, check warnings for details"
    return {
        "changed": False, "files": found, "matched": len(found), "examined": examined, "msg": said,
        "skipped_paths": skipped,
    }  # fmt: skip


def _wanted(args, path, name, seen, now):
    kinds = {
        "any": lambda mode: True,
        "file": stat_module.S_ISREG,
        "directory": stat_module.S_ISDIR,
        "link": stat_module.S_ISLNK,
    }
    if not kinds[args["file_type"]](seen.st_mode):
        return False
    if args["patterns"] and not _named(name, args["patterns"], args["use_regex"]):
        return False
    if args["excludes"] and _named(name, args["excludes"], args["use_regex"]):
        return False
    if args["age_s"] is not None:
        age = now - getattr(seen, "st_" + args["age_stamp"])
        if age < args["age_s"] if args["age_s"] >= 0 else age > -args["age_s"]:
            return False
    if args["size_bytes"] is not None and stat_module.S_ISREG(seen.st_mode):
        size = args["size_bytes"]
        if seen.st_size < size if size >= 0 else seen.st_size > -size:
            return False
    if args["mode_bits"] is not None:
        mode = stat_module.S_IMODE(seen.st_mode)
        wanted = mode_from(args["mode_bits"], 0)
        if mode != wanted if args["exact_mode"] else not mode & wanted:
            return False
    if args["contains"] and args["file_type"] == "file":
        return _contains(path, args["contains"], args["read_whole_file"], args["encoding"])
    return True


def _named(name, patterns, regex):
    import fnmatch
    import re

    if regex:
        return any(re.match(pattern, name) for pattern in patterns)
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _contains(path, pattern, whole, encoding):
    import re

    try:
        with open(path, encoding=encoding or "utf-8", errors="replace") as file:
            if whole:
                return re.search(pattern, file.read()) is not None
            return any(re.match(pattern, line) for line in file)
    except OSError:
        return False


SLURP_MAX_BYTES = 64 << 20


def do_slurp(run, args):
    """The content of a file in base64; `fetch` takes it, too."""
    import base64

    path = expanded(args["path"])
    if run.kind(path) == "absent":
        raise StepFailed("file not found: %s" % path, absent=True)
    if os.path.isdir(path):
        raise StepFailed("source is a directory and must be a file: %s" % path, directory=True)
    if os.path.exists(path) and os.stat(path).st_size > SLURP_MAX_BYTES:
        raise StepFailed("%s has more than %d MiB." % (path, SLURP_MAX_BYTES >> 20))
    data = run.read(path)
    if data is None:
        raise StepFailed("%s is not there yet to be read." % path, absent=True)
    content = base64.b64encode(data).decode()
    return {"changed": False, "content": content, "encoding": "base64", "source": path}


def do_read_part(run, args):
    """Some bytes of a file from an offset on, for `fetch`; "size" and "checksum" of the whole at offset 0."""
    import base64

    path = expanded(args["path"])
    result = {"changed": False}
    try:
        with open(path, "rb") as file:
            if args["offset"] == 0:
                result.update(size=os.fstat(file.fileno()).st_size, checksum=digest_of_file(path))
            file.seek(args["offset"])
            result["data"] = base64.b64encode(file.read(args["length"])).decode()
    except FileNotFoundError:
        raise StepFailed("the remote file does not exist", absent=True) from None
    except IsADirectoryError:
        raise StepFailed("remote file is a directory, fetch cannot work on directories") from None
    return result


def do_tempfile(run, args):
    import tempfile

    place = args["path"]
    if run.check:
        return {"changed": True, "skipped": True, "might_run": True, "msg": "would make a temporary path"}
    if place is not None and not os.path.isdir(expanded(place)):
        raise StepFailed("%s is not a directory." % place)
    place = expanded(place) if place else None
    refuse_led_away(os.path.join(place or tempfile.gettempdir(), ""))
    if args["state"] == "directory":
        path = tempfile.mkdtemp(args["suffix"], args["prefix"], place)
    else:
        fd, path = tempfile.mkstemp(args["suffix"], args["prefix"], place)
        os.close(fd)
    result = {"changed": True, "path": path, "state": args["state"]}
    seen = os.stat(path)
    fix_attributes(run, path, args, [])
    result.update(mode="%04o" % stat_module.S_IMODE(seen.st_mode), uid=seen.st_uid, gid=seen.st_gid)
    return dict(result, owner=name_of(seen.st_uid, "user"), group=name_of(seen.st_gid, "group"))


def do_ping(run, args):
    if args["data"] == "crash":
        raise StepFailed("boom")
    return {"changed": False, "ping": args["data"]}
