"""`unarchive`: what is in an archive is in a directory, file by file, each put in place whole."""

import contextlib
import os
import stat as stat_module

from rm_steps_aside import LINKS_MOST, aside_of, refuse_led_away, set_aside, sync_directory
from rm_steps_base import StepFailed, absolute, expanded, must, state_diff, tool, unpacked
from rm_steps_write import described, fix_attributes, mode_from, set_mode, wanted_ids

BLOCK = 1 << 20
# by their first bytes, Ansible's names for what reads them: its TarArchive takes all that tar knows by itself
_HANDLERS = ((b"PK", "ZipArchive"), (b"\x1f\x8b", "TgzArchive"))


class Member:
    """One entry: its name as it is `written` and from the destination, its kind, mode, owner, size, target,
    how to read it, and has it holes?"""

    def __init__(self, name, kind, mode, size, mtime, owner=None, target="", opened=None, holes=False):
        self.written, self.name, self.kind, self.mode, self.size = name, _relative(name), kind, mode, size
        self.mtime, self.owner, self.target, self.opened = mtime, owner, target, opened
        self.holes = holes


def _relative(name):
    """A name inside the destination; archives that would write elsewhere are refused."""
    clean = os.path.normpath(name.lstrip("/"))
    if clean.startswith("../") or clean == "..":
        raise StepFailed("The archive holds '%s', which leads out of the destination." % name)
    return clean


def _refuse_ways_out(members):
    """An archive's own links must not lead what follows them out of the destination, one by one or by way of
    each other."""
    links, files, early = {}, set(), None
    for member in members:
        target = member.target
        if member.kind == "hard":  # one to a link is a second name of that link
            if target not in files and target not in links:
                early = early or member
            target = links.get(target)
            files.add(member.name)
        elif member.kind != "link":
            files.add(member.name)
            continue
        if target is not None:
            links[member.name] = target if links.get(member.name, target) == target else "/"
    for member in members:
        way = member.name if member.kind == "directory" else os.path.dirname(member.name)
        through = _above(member.target) & links.keys() if member.kind == "hard" else set()
        if member.kind == "link" or member.name in links:  # else it would lie elsewhere than under its name
            through |= _above(member.name) & links.keys()
        link = _left_by(way, links) or min(through, default="")
        if link:
            raise StepFailed("The archive holds '%s', by way of its own link '%s'." % (member.name, link))
    if early is not None:  # what it is would depend on what lies there
        raise StepFailed(
            "The archive holds '%s', a second name of '%s', which does not come before it."
            % (early.name, early.target)
        )


def _left_by(way, links):
    """The link by which a way leaves the destination; "" when it stays there. A target with `..` counts as
    one outside, as tar has it: what it leads to may not be there yet."""
    done, parts, followed = [], way.split("/"), 0
    while parts:
        done.append(parts.pop(0))
        here = os.path.normpath("/".join(done))
        target = links.get(here)
        if target is None:
            continue
        followed += 1
        if _leads_up(target) or followed > LINKS_MOST:
            return here
        done[-1:] = []
        parts = target.split("/") + parts
    return ""


def _above(name):
    """The directories that a name passes through."""
    parts = name.split("/")
    return {"/".join(parts[:count]) for count in range(1, len(parts))}


def _leads_up(target):
    return target.startswith("/") or ".." in target.split("/")


@contextlib.contextmanager
def _tar(path):
    import tarfile

    archive = None
    plain = path
    if _begins(path) == b"\x28\xb5\x2f\xfd":  # zstd, which Python cannot read by itself before 3.14
        import tempfile

        fd, plain = tempfile.mkstemp(prefix="rm-unpack-")
        os.close(fd)
    try:
        if plain != path:
            must([tool("zstd"), "-q", "-d", "-f", path, "-o", plain])
        archive = tarfile.open(plain)  # noqa: SIM115
        members = _tar_members(archive)
        while archive.fileobj.read(BLOCK):  # to the sum at the end of what is compressed
            pass
        yield members
    except (tarfile.TarError, *_by_damage()) as problem:
        why = str(problem).partition(":")[0]
        raise StepFailed("%s cannot be read as an archive: %s." % (path, why)) from None
    finally:
        if archive is not None:
            archive.close()
        if plain != path:
            with contextlib.suppress(FileNotFoundError):  # zstd removes what it could not finish
                os.unlink(plain)


def _tar_members(archive):
    found = []
    for one in archive.getmembers():
        if one.isdir():
            kind, target = "directory", ""
        elif one.issym():
            kind, target = "link", one.linkname
        elif one.islnk():
            kind, target = "hard", _relative(one.linkname)
        elif one.isreg():
            kind, target = "file", ""
        else:
            continue  # devices and pipes are not unpacked
        reader = (lambda one=one: archive.extractfile(one)) if kind == "file" else None
        owner = (one.uname or str(one.uid), one.gname or str(one.gid), one.uid, one.gid)
        found.append(
            Member(
                one.name.lstrip("/"),
                kind,
                one.mode & 0o7777,
                one.size,
                one.mtime,
                owner,
                target,
                reader,
                one.issparse(),
            )
        )
    return found


@contextlib.contextmanager
def _zip(path):
    import time
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            found = []
            for one in archive.infolist():
                bits = one.external_attr >> 16
                name, mtime = one.filename.rstrip("/"), time.mktime((*one.date_time, 0, 0, -1))
                mode = stat_module.S_IMODE(bits) or (0o755 if one.is_dir() else 0o644)
                if one.is_dir():
                    found.append(Member(name, "directory", mode, 0, mtime))
                elif stat_module.S_ISLNK(bits):
                    target = archive.read(one).decode("utf-8", "surrogateescape")
                    found.append(Member(name, "link", mode, 0, mtime, None, target))
                else:
                    reader = lambda one=one: archive.open(one)  # noqa: E731
                    found.append(Member(name, "file", mode, one.file_size, mtime, None, "", reader))
            yield found
    except (zipfile.BadZipFile, *_by_damage()) as problem:
        raise StepFailed("%s cannot be read as an archive: %s." % (path, problem)) from None


def _by_damage():
    """What Python raises by an archive that is cut, damaged, encrypted, or says what no file can have."""
    import zlib

    found = [EOFError, ValueError, OverflowError, RuntimeError, zlib.error]
    with contextlib.suppress(ImportError):
        import lzma

        found.append(lzma.LZMAError)
    return found


def _begins(path):
    with open(path, "rb") as file:
        return file.read(4)


def _chosen(members, args, is_zip):
    """What `include` and `exclude` leave, as unzip and tar take them: tar's `include` are names as they are
    written, with what is below them, each of which must be there."""
    from fnmatch import fnmatchcase

    def named(member, name):
        return member.written == name or member.written.startswith(name + "/")

    def matched(member, pattern):
        return fnmatchcase(member.written, pattern) or member.written.startswith(pattern + "/")

    def excluded(member, pattern):
        parts = member.written.split("/")
        ways = ((low, high) for low in range(len(parts)) for high in range(low + 1, len(parts) + 1))
        return any(fnmatchcase("/".join(parts[low:high]), pattern) for low, high in ways)

    include, exclude = ([one.rstrip("/") for one in args[name] or ()] for name in ("include", "exclude"))
    takes, leaves = (matched, matched) if is_zip else (named, excluded)
    missing = [one for one in include if not any(takes(member, one) for member in members)]
    if missing:
        raise StepFailed("The archive does not hold '%s', which 'include' names." % missing[0])
    return [
        one
        for one in members
        if (not include or any(takes(one, name) for name in include))
        and not any(leaves(one, name) for name in exclude)
    ]


def _ids(member):
    """The owner that tar gives a file when root unpacks it."""
    import grp
    import pwd

    if member.owner is None or os.getuid() != 0:
        return None
    uname, gname, uid, gid = member.owner
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(uname).pw_uid
    with contextlib.suppress(KeyError):
        gid = grp.getgrnam(gname).gr_gid
    return uid, gid


def _wanted_mode(member, args):
    if args.get("mode") is None:
        return member.mode
    return mode_from(args["mode"], member.mode, member.kind == "directory")


def _differs(member, path, dest, args, ids):
    """Why the path is not as the archive has it; "" when it is."""
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    mode = seen.st_mode
    if member.kind == "directory":
        if member.owner is None and os.path.islink(path) and os.path.isdir(path):
            return ""  # unzip leaves a link to a directory as it is
        if not stat_module.S_ISDIR(mode):
            return "kind"
    elif member.kind == "link":
        return "" if stat_module.S_ISLNK(mode) and os.readlink(path) == member.target else "target"
    elif member.kind == "hard":
        other = os.path.join(dest, member.target)
        return "" if os.path.exists(other) and os.path.samefile(path, other) else "link"
    else:
        if not stat_module.S_ISREG(mode):
            return "kind"
        if args["keep_newer"] and seen.st_mtime > member.mtime:
            return ""
        if seen.st_size != member.size or not _same_content(member, path):
            return "content"
    if stat_module.S_IMODE(mode) != _wanted_mode(member, args):
        return "mode"
    if ids is not None and (seen.st_uid, seen.st_gid) != ids:
        return "owner"
    return ""


def _same_content(member, path):
    with member.opened() as ours, open(path, "rb") as theirs:
        while True:
            one, two = ours.read(BLOCK), theirs.read(BLOCK)
            if one != two:
                return False
            if not one:
                return True


def _unpack(member, path, dest, args, ids):
    """Put one entry in place; a file is written aside and renamed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = _wanted_mode(member, args)
    if member.kind == "directory":
        if os.path.islink(path) or not os.path.isdir(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # as tar does; and what a link leads to may be anybody's
            os.mkdir(path)
        if ids:
            os.chown(path, *ids, follow_symlinks=False)
        set_mode(path, mode)
        return
    if member.kind in ("link", "hard"):
        aside = aside_of(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        if member.kind == "link":
            os.symlink(member.target, aside)
        else:
            os.link(os.path.join(dest, member.target), aside, follow_symlinks=False)
        if ids and member.kind == "link":
            os.chown(aside, *ids, follow_symlinks=False)
        os.rename(aside, path)
        return
    with set_aside(path) as (fd, aside):
        with os.fdopen(fd, "wb") as file, member.opened() as source:
            for block in iter(lambda: source.read(BLOCK), b""):
                if member.holes and not block.strip(b"\0"):
                    file.seek(len(block), os.SEEK_CUR)  # no room on the disk
                else:
                    file.write(block)
            file.truncate()
            if ids:
                os.fchown(file.fileno(), *ids)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.utime(file.fileno(), (member.mtime, member.mtime))
            os.fsync(file.fileno())
        os.rename(aside, path)


def do_unarchive(run, args):
    dest = absolute(args["dest"])
    if args["creates"] and run.kind(expanded(args["creates"])) != "absent":
        return {"changed": False, "skipped": True, "msg": "skipped, since %s exists" % args["creates"]}
    refuse_led_away(dest + "/")
    if not run.is_directory(dest):
        raise StepFailed("dest '%s' must be an existing dir" % dest)
    mine = None
    if "content" in args:
        import tempfile

        fd, mine = tempfile.mkstemp(prefix="rm-unpack-")
        with os.fdopen(fd, "wb") as file:
            file.write(unpacked(args["content"]))
        source = mine
    elif "://" in args["src"]:
        from rm_steps_web import download

        source = mine = download(args["src"], args)
    else:
        source = absolute(args["src"])
        if run.kind(source) == "absent":
            raise StepFailed("Source '%s' does not exist" % source)
        if not os.path.exists(source):
            said = "the archive is not there yet"
            return {"changed": True, "might_run": True, "msg": said, "dest": dest, "src": source}
    try:
        return _into(run, args, dest, source)
    finally:
        if mine:
            os.unlink(mine)


def _into(run, args, dest, source):
    is_zip = _begins(source) == b"PK\x03\x04"
    changes, names = [], []
    wanted_ids(run, args)
    with (_zip if is_zip else _tar)(source) as members:
        chosen = _chosen(members, args, is_zip)
        _refuse_ways_out(chosen)
        for member in chosen:
            names.append(member.written + "/" * (member.kind == "directory"))
            path = os.path.normpath(os.path.join(dest, member.name))
            if path == dest:
                continue  # the destination itself keeps its mode
            refuse_led_away(path)
            if member.kind == "hard":
                refuse_led_away(os.path.join(dest, member.target))
            ids = None if args.get("owner") or args.get("group") else _ids(member)
            why = _differs(member, path, dest, args, ids) if os.path.isdir(dest) else "missing"
            if why:
                changes.append("%s (%s)" % (member.name, why))
                if not run.check:
                    _unpack(member, path, dest, args, ids)
                run.plan(path, {"hard": "file"}.get(member.kind, member.kind))
            if (args.get("owner") or args.get("group")) and os.path.lexists(path):
                own = []
                fix_attributes(run, path, dict(args, mode=None), own)
                changes += ["%s (%s)" % (member.name, one) for one in own]
    if changes and not run.check:
        sync_directory(dest)
    kind = next((name for magic, name in _HANDLERS if _begins(source).startswith(magic)), "TarArchive")
    result = {"changed": bool(changes), "dest": dest, "src": args.get("src"), "handler": kind}
    if args["list_files"]:
        result["files"] = names
    return dict(result, diff=state_diff(run, dest, changes), **described(run, dest))
