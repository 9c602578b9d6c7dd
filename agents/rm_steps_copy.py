"""`copy` and `template`: files on the host have exactly this content; whole trees, too."""

import os
import stat as stat_module

from rm_steps_aside import followed
from rm_steps_base import StepFailed, absolute, digest, unpacked
from rm_steps_file import do_file
from rm_steps_write import put_content


def do_copy(run, args):
    into = args["dest"].endswith("/")
    dest, args = absolute(args["dest"]), dict(args, replaces_links=True)
    _refuse_another_s_link(run, dest, args)
    if "files" in args:
        return _tree(run, dest, args)
    if "remote_src" in args:
        source = absolute(args["remote_src"])
        kind = run.kind(source)
        if kind == "absent":
            raise StepFailed("%s does not exist on this host." % source)
        if kind == "directory" or os.path.isdir(source):
            return _copied_tree(run, source, dest, args)
        data, name = run.read(source), os.path.basename(source)
        if data is None:
            raise _not_yet(run, source)
        if args.get("mode") == "preserve":
            args = dict(args, mode=_mode_of(source))
    else:
        data, name = unpacked(args["content"]), args.get("name") or ""
    if args.get("checksum") and digest(data) != args["checksum"]:
        raise StepFailed("The source's SHA-1 is %s, not the expected %s." % (digest(data), args["checksum"]))
    if run.is_directory(dest) or into:
        if not name:
            raise StepFailed("%s is a directory." % dest)
        if not run.is_directory(dest):
            do_file(run, dict(_directory_of(args), path=dest))
        dest = os.path.join(dest, name)
    dest = _followed(run, dest, args)
    if "remote_src" in args and run.kind(dest) == "file" and run.read(dest) != data:
        # a file of this host takes the other's place with its own mode, as a new file of who copies
        mode = _mode_of(source) if args.get("mode") is None else args["mode"]
        owner, group = args.get("owner") or str(os.geteuid()), args.get("group") or str(os.getegid())
        args = dict(args, mode=mode, owner=owner, group=group)
    return put_content(run, dest, data, args)


def _followed(run, dest, args):
    return followed(dest) if args.get("follow") and run.kind(dest) == "link" else dest


def _directory_of(args):
    attributes = {"state": "directory", "mode": args.get("directory_mode")}
    attributes.update(owner=args.get("owner"), group=args.get("group"))
    return attributes


def _refuse_another_s_link(run, path, args):
    """A link that another user has put in place of a directory must not lead what root writes elsewhere. Says
    whether there is a link to a directory that is not followed by request."""
    if run.kind(path) != "link" or not run.is_directory(path) or args.get("follow"):
        return False
    if os.lstat(path).st_uid not in (0, os.geteuid()):
        told = "%s is a link of another user's to a directory; only 'follow: true' would write to there."
        raise StepFailed(told % path)
    return True


def _directory_in(run, path, args, attributes):
    """One directory of a tree that is copied. What a link leads to keeps its owner and mode."""
    if _refuse_another_s_link(run, path, args):
        return {"changed": False}
    return do_file(run, dict(attributes, path=path, state="directory", follow=bool(args.get("follow"))))


def _mode_of(source):
    """None where only check mode knows the file."""
    return stat_module.S_IMODE(os.stat(source).st_mode) if os.path.exists(source) else None


def _not_yet(run, source):
    return StepFailed("%s is not there yet to be copied." % source, skipped=run.check)


def _below(run, source, follow):
    """(directories, files) below a directory of this host, by their paths from there, in check mode with what
    earlier steps would have made. A link that is not followed is a file."""
    directories, files = [], []
    for where, below, names in os.walk(source, followlinks=follow):
        below.sort()
        if run.kind(where) != "absent":
            directories.append(os.path.relpath(where, source))
        links = [name for name in below if not follow and os.path.islink(os.path.join(where, name))]
        for path in (os.path.join(where, name) for name in (*names, *links)):
            if run.kind(path) != "absent":
                files.append(os.path.relpath(path, source))
    for path, kind in run.planned["paths"].items():
        if (path == source or path.startswith(source + "/")) and kind != "absent":
            (directories if kind == "directory" else files).append(os.path.relpath(path, source))
    return sorted(set(directories)), sorted(set(files))


def _copied_tree(run, source, dest, args):
    """A directory of this host, as Ansible copies it: what is new or differs has the mode of its source, and
    `mode` is of the copy itself."""
    into = args["dest"].endswith("/")
    name = "" if args["remote_src"].endswith("/") else os.path.basename(source)
    shown = os.path.join(args["dest"], name) if run.is_directory(dest) else args["dest"]
    if run.kind(absolute(shown)) != "absent" and not args.get("force", True):
        return {"changed": False, "dest": shown, "msg": "file already exists", "diff": []}
    if not run.is_directory(os.path.dirname(dest)) and not into:
        raise StepFailed("The directory %s does not exist." % os.path.dirname(dest))
    result, top = {"changed": False, "dest": shown, "diff": []}, os.path.join(dest, name)
    owned = {"owner": args.get("owner"), "group": args.get("group")}

    def add(part):
        result["changed"] |= part["changed"]
        result["diff"] += part.get("diff", [])

    if into and not run.is_directory(dest):
        add(do_file(run, dict(_directory_of(args), path=dest)))
    follow = args.get("local_follow") is True
    directories, files = _below(run, source, follow)
    for part in directories:
        path = os.path.normpath(os.path.join(top, part))
        mode = None if run.is_directory(path) else _mode_of(os.path.join(source, part))
        add(_directory_in(run, path, args, dict(owned, mode=mode)))
    for part in files:
        path, origin = os.path.join(top, part), os.path.join(source, part)
        if run.kind(origin) == "link" and not follow:
            if origin in run.planned["paths"]:
                raise _not_yet(run, origin)
            link = dict(owned, path=path, state="link", src=os.readlink(origin), follow=False)
            add(do_file(run, dict(link, force=True)))
            continue
        data = run.read(origin)
        if data is None:
            raise _not_yet(run, origin)
        path = _followed(run, path, args)
        same = run.kind(path) == "file" and run.read(path) == data
        mode = None if same else _mode_of(origin)
        add(put_content(run, path, data, dict(owned, mode=mode, replaces_links=True)))
    mode = _mode_of(source) if args.get("mode") == "preserve" else args.get("mode")
    add(_directory_in(run, absolute(shown), args, dict(owned, mode=mode)))
    return result


def _tree(run, dest, args):
    result = {"changed": False, "dest": os.path.join(args["dest"], ""), "diff": []}
    modes = args.get("modes") or {}

    def add(part):
        result["changed"] |= part["changed"]
        result["diff"] += part.get("diff", [])

    folders = {os.path.dirname(name) for name in args["files"]} | set(args.get("directories") or ())
    for name in sorted(folders):
        path = os.path.normpath(os.path.join(dest, name))
        if run.is_directory(path) and path == dest:
            continue  # what was there before keeps its owner
        add(_directory_in(run, path, args, _directory_of(args)))
    for name in sorted(args["files"]):
        path = os.path.join(dest, name)
        own = dict(args, mode=modes.get(name)) if args.get("mode") == "preserve" else args
        data = unpacked(args["files"][name])
        add(put_content(run, _followed(run, path, args), data, own))
    for name, target in sorted((args.get("links") or {}).items()):
        link = {"path": os.path.join(dest, name), "state": "link", "src": target, "follow": False}
        add(do_file(run, dict(link, force=True, owner=args.get("owner"), group=args.get("group"))))
    return result
