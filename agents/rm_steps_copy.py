"""`copy` and `template`: files on the host have exactly this content; whole trees, too."""

import os
import stat as stat_module

from rm_steps_base import StepFailed, absolute, digest, unpacked
from rm_steps_file import do_file
from rm_steps_write import put_content


def do_copy(run, args):
    into = args["dest"].endswith("/")
    dest, args = absolute(args["dest"]), dict(args, replaces_links=True)
    if "files" in args:
        return _tree(run, dest, args)
    if "remote_src" in args:
        source = absolute(args["remote_src"])
        kind = run.kind(source)
        if kind == "absent":
            raise StepFailed("%s does not exist on this host." % source)
        if kind == "directory" or os.path.isdir(source):
            return _tree(run, dest, dict(args, **_local_tree(run, source, args["remote_src"].endswith("/"))))
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
    return put_content(run, _followed(run, dest, args), data, args)


def _followed(run, dest, args):
    return os.path.realpath(dest) if args.get("follow") and run.kind(dest) == "link" else dest


def _directory_of(args):
    attributes = {"state": "directory", "mode": args.get("directory_mode")}
    attributes.update(owner=args.get("owner"), group=args.get("group"))
    return attributes


def _mode_of(source):
    """None where only check mode knows the file."""
    return stat_module.S_IMODE(os.stat(source).st_mode) if os.path.exists(source) else None


def _not_yet(run, source):
    return StepFailed("%s is not there yet to be copied." % source, skipped=run.check)


def _local_tree(run, source, inside):
    """The files under a directory of this host, as the control side names those of its own; in check mode
    with what earlier steps would have made."""
    top = source if inside else os.path.dirname(source)
    files, directories = {}, []
    for where, below, names in os.walk(source):
        below.sort()
        if run.kind(where) == "directory":
            directories.append(os.path.relpath(where, top))
        for path in (os.path.join(where, name) for name in names):
            if run.kind(path) != "absent":
                files[os.path.relpath(path, top)] = path
    for path, kind in run.planned["paths"].items():
        name = os.path.relpath(path, top)
        if (path == source or path.startswith(source + "/")) and kind != "absent":
            if kind == "directory":
                directories.append(name)
            else:
                files[name] = path
    return {"files": files, "directories": directories, "local": True}


def _tree(run, dest, args):
    shown = args["dest"] if args.get("local") else os.path.join(args["dest"], "")
    result = {"changed": False, "dest": shown, "diff": []}
    modes = args.get("modes") or {}

    def add(part):
        result["changed"] |= part["changed"]
        result["diff"] += part.get("diff", [])

    folders = {os.path.dirname(name) for name in args["files"]} | set(args.get("directories") or ())
    for name in sorted(folders):
        path = os.path.normpath(os.path.join(dest, name))
        given = dict(_directory_of(args), path=path)
        if run.is_directory(path) and path == dest:
            continue  # what was there before keeps its owner
        add(do_file(run, given))
    for name in sorted(args["files"]):
        path = os.path.join(dest, name)
        own = dict(args, mode=modes.get(name)) if args.get("mode") == "preserve" else args
        if args.get("local"):
            source = args["files"][name]
            data = run.read(source)
            if data is None:
                raise _not_yet(run, source)
            if args.get("mode") == "preserve":
                own = dict(args, mode=_mode_of(source))
        else:
            data = unpacked(args["files"][name])
        add(put_content(run, _followed(run, path, args), data, own))
    for name, target in sorted((args.get("links") or {}).items()):
        link = {"path": os.path.join(dest, name), "state": "link", "src": target, "follow": False}
        add(do_file(run, dict(link, force=True, owner=args.get("owner"), group=args.get("group"))))
    return result
