"""Owner, mode and content of one path: put right only where they differ, and never half.

A file is written aside (rm_steps_aside.py), synced, read back and renamed: an interrupted run never leaves
half a file.
"""

import contextlib
import os
import re
import stat as stat_module
import time

from rm_steps_aside import clear_aside, refuse_led_away, set_aside, sync_directory
from rm_steps_base import StepFailed, content_diff, digest, execute, plain_environment, state_diff, tool
from rm_steps_labels import fix_labels

_CLAUSE = re.compile(r"^([ugoa]*)((?:[-+=](?:[rwxXst]*|[ugo]))+)$")
_SHIFT = {"u": 6, "g": 3, "o": 0}


def account(run, name, kind):
    """The number of a user or group, None when only planned."""
    import grp
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        if str(name).isdigit():
            return int(name)
        if run.check and name in run.planned[kind + "s"]:
            return None
        raise StepFailed("There is no %s '%s' on this host." % (kind, name)) from None


def name_of(number, kind):
    """The name of a user or group number; the number as text when it has none; a name as it is."""
    import grp
    import pwd

    if isinstance(number, str):
        return number
    try:
        return pwd.getpwuid(number).pw_name if kind == "user" else grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def wanted_ids(run, args):
    """The asked-for (uid, gid): -1 not asked for, None only planned."""
    owner, group = args.get("owner"), args.get("group")
    uid = account(run, owner, "user") if owner is not None else -1
    gid = account(run, group, "group") if group is not None else -1
    return uid, gid


def default_mode(is_directory=False):
    umask = os.umask(0o077)
    os.umask(umask)
    return (0o777 if is_directory else 0o666) & ~umask


def mode_from(wanted, old, is_directory=False):
    """Permission bits out of a number or symbolic text (chmod(1): "u=rwX,go-w"), given the old ones."""
    if isinstance(wanted, int):
        return wanted
    mode = old
    for clause in wanted.split(","):
        match = _CLAUSE.match(clause)
        if match is None:
            raise StepFailed("'%s' is not a permission mode." % wanted)
        who = match.group(1) or "a"
        who = "ugo" if "a" in who else who
        for operator, what in re.findall(r"([-+=])([ugo]|[rwxXst]*)", match.group(2)):
            bits, special = 0, 0
            for letter in who:
                if what in _SHIFT and what:
                    these = mode >> _SHIFT[what] & 7
                else:
                    these = (4 if "r" in what else 0) | (2 if "w" in what else 0)
                    run_it = "x" in what or ("X" in what and (is_directory or old & 0o111))
                    these |= 1 if run_it else 0
                bits |= these << _SHIFT[letter]
                if "s" in what and letter in "ug":
                    special |= 0o4000 if letter == "u" else 0o2000
            if "t" in what:
                special |= 0o1000
            if operator == "-":
                mode &= ~(bits | special)
            elif operator == "+":
                mode |= bits | special
            else:
                cleared = sum(7 << _SHIFT[letter] for letter in who)
                cleared |= (0o4000 if "u" in who else 0) | (0o2000 if "g" in who else 0)
                mode = (mode & ~cleared) | bits | special
    return mode


def fix_attributes(run, path, args, changes):
    """Owner and mode of an existing (or planned) path; what differs is noted in `changes` and put right."""
    refuse_led_away(path)
    if not run.check:
        clear_aside(path)
    uid, gid = wanted_ids(run, args)
    wanted = args.get("mode")
    is_link, is_directory, (old, old_uid, old_gid) = _attributes(run, path)
    # an account that is only planned has no number yet: its name stands for it
    uid, gid = (args["owner"] if uid is None else uid), (args["group"] if gid is None else gid)
    new_uid, new_gid = (old_uid if uid == -1 else uid), (old_gid if gid == -1 else gid)
    if new_uid != old_uid:
        changes.append("owner: %s -> %s" % (name_of(old_uid, "user"), args["owner"]))
    if new_gid != old_gid:
        changes.append("group: %s -> %s" % (name_of(old_gid, "group"), args["group"]))
    if (new_uid, new_gid) != (old_uid, old_gid) and not run.check:
        os.chown(path, uid, gid, follow_symlinks=False)
        old = stat_module.S_IMODE(os.lstat(path).st_mode)  # which loses its setuid bit
    mode = old if wanted is None or is_link else mode_from(wanted, old, is_directory)
    if old != mode:
        changes.append("mode: %04o -> %04o" % (old, mode))
        if not run.check:
            set_mode(path, mode)
    if run.check:
        run.planned["attributes"][path] = [mode, new_uid, new_gid]
    if not is_link:
        fix_labels(run, path, args, changes)


def set_mode(path, mode):
    """chmod(2) that never follows a link: in a user's directory one may have taken the file's place."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat_module.S_ISLNK(os.fstat(fd).st_mode):
            raise StepFailed("%s became a link just now; its mode is unchanged." % path)
        os.chmod("/proc/self/fd/%d" % fd, mode)
    finally:
        os.close(fd)


def _attributes(run, path):
    """Is it a link, is it a directory, and [mode, uid, gid]: as it is, or in check mode would be by now."""
    planned = run.planned["paths"].get(path) if run.check else None
    known = run.planned["attributes"].get(path) if run.check else None
    try:
        seen = os.lstat(path)
        kind = run.kind(path)
        found = [stat_module.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid]
    except OSError:
        if planned is None:
            raise
        kind = planned
        above = _attributes(run, os.path.dirname(path))[2] if path != "/" else [0, 0, 0]
        inherited = above[0] & 0o2000  # a directory hands down its group, and to directories this bit
        mode = default_mode(True) | inherited if kind == "directory" else default_mode()
        found = [mode, os.geteuid(), above[2] if inherited else os.getegid()]
    return kind == "link", kind == "directory", known or found


def keep_extended(path, fd):
    """Give a new file the old one's extended attributes (access lists, labels), as far as one may."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(path, name))


def write_file(run, path, data, args):
    """Write aside, sync, verify, rename. Owner and mode are those asked for, else the old ones; with
    `replaces_links` those of a new file in the place of a link."""
    old = None
    with contextlib.suppress(OSError):
        old = None if args.get("replaces_links") and os.path.islink(path) else os.stat(path)
    mode = stat_module.S_IMODE(old.st_mode) if old else default_mode()
    uid, gid = (old.st_uid, old.st_gid) if old else (-1, -1)
    asked_uid, asked_gid = wanted_ids(run, args)
    uid, gid = (uid if asked_uid == -1 else asked_uid), (gid if asked_gid == -1 else asked_gid)
    result = {}
    with set_aside(path) as (fd, aside):
        with os.fdopen(fd, "w+b") as file:
            file.write(data)
            file.flush()
            if old is not None:
                keep_extended(path, file.fileno())
            if uid != -1 or gid != -1:
                try:
                    os.fchown(file.fileno(), uid, gid)
                except PermissionError:
                    if asked_uid != -1 or asked_gid != -1:
                        raise  # else: a file of somebody else's in a directory of ours becomes ours
            if args.get("mode") is not None:
                mode = mode_from(args["mode"], mode)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            file.seek(0)
            if file.read() != data:
                raise StepFailed("%s read back differently than written; %s is unchanged." % (aside, path))
            ours = os.fstat(file.fileno()).st_ino
        if args.get("validate"):
            validate(args["validate"], aside, path)
        if args.get("backup") and os.path.lexists(path):
            result["backup_file"] = backup_of(path)
        if os.lstat(aside).st_ino != ours:
            raise StepFailed("Another run is writing %s." % path)
        os.rename(aside, path)
    sync_directory(os.path.dirname(path))
    return result


def write_output(path, line, env=None):
    """Standard output of a line of bash becomes a file's content: written aside, synced, renamed. Returns
    the code and standard error; where the line fails, an old file stays as it is. A link is replaced."""
    argv, old = [tool("bash"), "-c", "set -o pipefail; " + line], None
    with contextlib.suppress(OSError):
        old = os.stat(path)
    if old is not None and stat_module.S_ISDIR(old.st_mode):
        raise StepFailed("%s is a directory." % path)
    if old is not None and not stat_module.S_ISREG(old.st_mode):  # /dev/null
        refuse_led_away(path + "/")
        fd = os.open(path, os.O_WRONLY)
        try:
            code, _, err = execute(argv, env=env, stdout=fd)
        finally:
            os.close(fd)
        return code, err
    if not os.path.isdir(os.path.dirname(path)):
        raise StepFailed("The directory %s does not exist." % os.path.dirname(path))
    with set_aside(path) as (fd, aside):
        with os.fdopen(fd, "w+b") as file:
            code, _, err = execute(argv, env=env, stdout=file.fileno())
            if code != 0:
                os.unlink(aside)
                return code, err
            if old is not None:
                keep_extended(path, file.fileno())
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            mode = stat_module.S_IMODE(old.st_mode) if old is not None else default_mode()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            ours = os.fstat(file.fileno())
        seen = os.lstat(aside)
        if (seen.st_dev, seen.st_ino) != (ours.st_dev, ours.st_ino):
            raise StepFailed("Another run is writing %s." % path)
        os.rename(aside, path)
    sync_directory(os.path.dirname(path))
    return code, err


def validate(command, aside, path):
    """The admin's own check of a new file, before it takes the old one's place."""
    import shlex

    if "%s" not in command:
        raise StepFailed("'validate' must hold %s for the new file's name.".replace("%s", "'%s'"))
    argv = [word.replace("%s", aside) for word in shlex.split(command)]
    code, out, err = execute(argv, env=plain_environment())
    if code != 0:
        said = (err or out).strip()
        raise StepFailed("The new %s does not validate: %s" % (path, said), rc=code, exit_status=code)


def backup_of(path):
    """Keep a copy beside a file that is about to change; its name is Ansible's."""
    import shutil

    number = os.getpid()
    while True:
        name = "%s.%d.%s~" % (path, number, time.strftime("%Y-%m-%d@%H:%M:%S"))
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:  # of this second; each of Ansible's has a process of its own
            number += 1
    with open(fd, "wb") as file, open(path, "rb") as source:
        shutil.copyfileobj(source, file)
        file.flush()
        seen = os.fstat(source.fileno())
        keep_extended(path, file.fileno())
        with contextlib.suppress(PermissionError):
            os.fchown(file.fileno(), seen.st_uid, seen.st_gid)
        os.fchmod(file.fileno(), stat_module.S_IMODE(seen.st_mode))
        os.utime(file.fileno(), ns=(seen.st_atime_ns, seen.st_mtime_ns))
    return name


def put_content(run, path, data, args):
    """Bring one file to this content; the heart of copy, template, lineinfile and their kind. With
    `replaces_links` in `args` a link never does, whatever it points to."""
    refuse_led_away(path if args.get("replaces_links") else path + "/")
    kind = run.kind(path)
    if kind == "directory":
        raise StepFailed("%s is a directory." % path)
    if not run.is_directory(os.path.dirname(path)):
        raise StepFailed("The directory %s does not exist." % os.path.dirname(path))
    old = run.read(path) if kind in ("file", "link") else None
    if kind != "absent" and not args.get("force", True):
        return {"changed": False, "dest": path, "msg": "file already exists", "diff": []}
    changes, diff, kept = [], [], {}
    if old != data or (kind == "link" and args.get("replaces_links")):
        diff = content_diff(run, path, old, data)
        changes.append("content")
        if run.check:
            run.plan(path, "file", data)
            fix_attributes(run, path, args, [])
        else:
            kept = write_file(run, path, data, args)
            fix_labels(run, path, args, changes)
    elif kind == "file":
        fix_attributes(run, path, args, changes)
        diff = state_diff(run, path, changes)
    found = {"changed": bool(changes), "dest": path, "checksum": digest(data), "size": len(data)}
    return dict(found, diff=diff, **kept, **described(run, path))


def remove_file(run, path):
    """Take a file away; its diff."""
    refuse_led_away(path)
    diff = content_diff(run, path, run.read(path), None)
    if not run.check:
        os.unlink(path)
    run.plan(path, "absent")
    return diff


def described(run, path):
    """Owner, group, mode and kind of a path, as Ansible's file modules return them."""
    if run.check and path in run.planned["paths"]:
        return {}
    try:
        seen = os.lstat(path)
    except OSError:
        return {"state": "absent"}
    mode = seen.st_mode
    kind = "link" if stat_module.S_ISLNK(mode) else "directory" if stat_module.S_ISDIR(mode) else "file"
    if kind == "file" and seen.st_nlink > 1:
        kind = "hard"
    return {
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "owner": name_of(seen.st_uid, "user"),
        "group": name_of(seen.st_gid, "group"),
        "mode": "0%03o" % stat_module.S_IMODE(mode),
        "size": seen.st_size,
        "state": kind,
    }
