"""`file`: a path is a directory, a file, a link, or nothing; with owner, mode and times."""

import os

from rm_steps_aside import aside_of, followed, refuse_led_away, sync_directory
from rm_steps_base import StepFailed, absolute, expanded, state_diff
from rm_steps_labels import NAMES, fix_labels
from rm_steps_write import described, fix_attributes, wanted_ids, write_file

_KEPT = ("owner", "group", "mode", "access_time", "modification_time", *NAMES)


def do_file(run, args):
    path = absolute(args["path"])
    state, kind, changes = args.get("state"), run.kind(path), []
    if state is None:  # as it is, if it is
        state = kind if kind in ("directory", "link") else "directory" if args.get("recurse") else "file"
    refuse_led_away(path)
    if state == "absent":
        return _absent(run, path, kind)
    leads = kind == "link" and args.get("follow", True) and state not in ("link", "hard")
    target = followed(path) if leads else path
    if state == "directory":
        _directory(run, path, target, kind, args, changes)
    elif state == "link":
        _link(run, path, kind, args, changes)
    elif state == "hard":
        _hard(run, path, kind, args, changes)
    elif state == "touch":
        _touch(run, target, run.kind(target), args, changes)
    else:
        if run.kind(target) == "absent":
            raise StepFailed("%s does not exist; 'file' creates it only with state touch." % path)
        if run.kind(target) == "directory":
            raise StepFailed("%s is a directory, not a file." % path)
        fix_attributes(run, target, args, changes)
        _times(run, target, args, changes, None)
    result = {"changed": bool(changes), "diff": state_diff(run, path, changes), **described(run, target)}
    shown = target if leads and state != "touch" else path
    if args["path"].endswith("/") and shown == path:
        shown = os.path.join(path, "")
    if state in ("link", "hard"):
        result.update(dest=path, src=args.get("src") or (os.readlink(path) if os.path.islink(path) else None))
    else:
        result.update({"dest" if state == "touch" else "path": shown})
    return result


def _absent(run, path, kind):
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


def _directory(run, path, target, kind, args, changes):
    if kind == "absent":
        missing, above = [], path
        while run.kind(above) == "absent":
            missing.append(above)
            above = os.path.dirname(above)
        if not run.is_directory(above):
            raise StepFailed("%s is not a directory." % above)
        wanted_ids(run, args)
        for one in reversed(missing):
            if not run.check:
                os.mkdir(one)
            run.plan(one, "directory")
            fix_attributes(run, one, args, [])
        changes.append("created directory")
    elif not run.is_directory(path) or (kind == "link" and not args.get("follow", True)):
        raise StepFailed("%s exists and is a %s, not a directory." % (path, kind))
    else:
        fix_attributes(run, target, args, changes)
        _times(run, target, args, changes, None)
    if args.get("recurse"):
        for below in _below(run, target):
            fix_attributes(run, below, args, changes)


def _below(run, directory):
    """Everything in a directory, in check mode as it would be by now."""
    for top, directories, files in os.walk(directory):
        for name in sorted(directories) + sorted(files):
            path = os.path.join(top, name)
            if run.kind(path) != "absent":
                yield path
    for path, kind in sorted(run.planned["paths"].items()):
        if path.startswith(directory + "/") and kind != "absent" and not os.path.lexists(path):
            yield path


def _place(run, path, kind, args, changes, make, same, what):
    """Put a link of either kind in place of what may be there, by way of a rename."""
    if same:
        return
    if kind in ("file", "other") and not args.get("force"):
        raise StepFailed("%s exists and is a %s; 'force' would replace it by the link." % (path, kind))
    if kind == "directory":
        if not args.get("force"):
            raise StepFailed("%s exists and is a directory; 'force' would replace an empty one." % path)
        if path not in run.planned["paths"] and os.path.isdir(path) and os.listdir(path):
            raise StepFailed("%s is a directory that is not empty; remove it first." % path)
    if not run.is_directory(os.path.dirname(path)):
        raise StepFailed("The directory %s does not exist." % os.path.dirname(path))
    changes.append(what)
    if not run.check:
        if kind == "directory":
            os.rmdir(path)
        aside = aside_of(path)
        if os.path.lexists(aside):
            os.unlink(aside)
        make(aside)
        os.rename(aside, path)
        sync_directory(os.path.dirname(path))
    run.plan(path, "link")


def _link(run, path, kind, args, changes):
    source = args.get("src")
    if source is None:
        if kind == "link" and path in run.planned["paths"]:
            return
        if kind == "link":
            source = os.readlink(path)
        else:
            raise StepFailed("State 'link' needs 'src' unless %s is a link already." % path)
    source = expanded(source)
    real = os.path.join(os.path.dirname(path), source)
    if run.kind(os.path.normpath(real)) == "absent" and not os.path.exists(real) and not args.get("force"):
        raise StepFailed("%s does not exist; 'force' would make a link to it nevertheless." % real)
    follows, target = args.get("follow", True), path
    kept = [name for name in _KEPT if args.get(name) is not None]
    if follows and kept:
        # where the task itself says what its link leads to, another user may have made only those after it
        target = followed(path if args.get("src") is None else os.path.join(os.path.dirname(path), source))
    same = kind == "link" and path not in run.planned["paths"] and os.readlink(path) == source
    _place(run, path, kind, args, changes, lambda at: os.symlink(source, at), same, "link to %s" % source)
    if kept and (os.path.exists if follows else os.path.lexists)(path) and path not in run.planned["paths"]:
        fix_attributes(run, target, args, changes)
        _times(run, target, args, changes, None)


def _hard(run, path, kind, args, changes):
    linked = kind == "file" and path not in run.planned["paths"] and os.stat(path).st_nlink > 1
    if args.get("src") is None and not linked:
        raise StepFailed("State 'hard' needs 'src'.")
    source = path if args.get("src") is None else absolute(args["src"])
    refuse_led_away(source)
    if run.kind(source) == "absent":
        raise StepFailed("%s does not exist." % source)
    seen = kind == "file" and path not in run.planned["paths"] and os.path.exists(source)
    same = seen and os.path.samefile(path, source)

    def make(at):  # newer Pythons would follow a link that was put in its place
        os.link(source, at, follow_symlinks=False)

    _place(run, path, kind, args, changes, make, same, "hard link to %s" % source)
    if run.kind(source) == "file":
        fix_attributes(run, source, args, changes)
        _times(run, source, args, changes, None)


def _touch(run, path, kind, args, changes):
    if kind == "absent":
        changes.append("touched")
        if not run.check:
            write_file(run, path, b"", args)
            fix_labels(run, path, args, [])
            return
        run.plan(path, "file", b"")
        fix_attributes(run, path, args, [])
        return
    fix_attributes(run, path, args, changes)
    _times(run, path, args, changes, "now")


def _times(run, path, args, changes, default):
    """Set modification and access time: "now", "preserve", or a time in the given format."""
    import time

    if run.check and path in run.planned["paths"]:
        return
    seen = os.lstat(path)
    now, wanted = time.time_ns(), []
    for name, old in (("access_time", seen.st_atime_ns), ("modification_time", seen.st_mtime_ns)):
        given = args.get(name) or default or "preserve"
        if given == "preserve":
            wanted.append(old)
        elif given == "now":
            wanted.append(now)
        else:
            try:
                moment = time.mktime(time.strptime(given, args.get(name + "_format") or "%Y%m%d%H%M.%S"))
            except ValueError:
                raise StepFailed("'%s' is not a time in the format of '%s'." % (given, name)) from None
            wanted.append(int(moment) * 10**9)
    if wanted != [seen.st_atime_ns, seen.st_mtime_ns]:
        changes.append("touched")
        if not run.check:
            os.utime(path, ns=tuple(wanted), follow_symlinks=False)
