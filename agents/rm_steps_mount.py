"""`mount`: a file system is mounted now, and by /etc/fstab at the next boot."""

import os

from rm_steps_aside import refuse_led_away
from rm_steps_base import StepFailed, execute, must, plain_environment, state_diff, tool
from rm_steps_write import put_content

_ESCAPES = ((" ", r"\040"), ("\t", r"\011"), ("\n", r"\012"))


def _escaped(text):
    for plain, coded in _ESCAPES:
        text = text.replace(plain, coded)
    return text


def mounted(path):
    """(source, type, options) of what is mounted at a path now; None when nothing is."""
    found = None
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split(" ")
            if words[1] == _escaped(path):
                found = (words[0], words[2], words[3])
    return found


def _options(args):
    options = args["opts"] or "defaults"
    if args.get("boot") is False and "noauto" not in options.split(","):
        options += ",noauto"
    return options


def _with_entry(text, args, path, options):
    """fstab with this mount's line set (or without it); the old text when nothing differs."""
    entry = [_escaped(args["src"] or ""), _escaped(path), args["fstype"] or "", _escaped(options)]
    entry += [str(args["dump"] or "0"), str(args["passno"] or "0")]
    lines, done = [], False
    for line in text.splitlines(True):
        words = line.split()
        ours = len(words) >= 4 and not line.lstrip().startswith("#") and words[1] == entry[1]
        if ours and entry[2] == "swap" and words[0] != entry[0]:
            ours = False  # all swap spaces have the same path
        if not ours:
            lines.append(line)
        elif args["state"] not in ("absent", "absent_from_fstab"):
            padded = words[:6] + ["0"] * (6 - len(words))
            if not done:
                lines.append(line if padded == entry else " ".join(entry) + "\n")
            done = True
    if not done and args["state"] not in ("absent", "absent_from_fstab"):
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(" ".join(entry) + "\n")
    return "".join(lines)


def do_mount(run, args):
    path, state = os.path.normpath(args["path"]), args["state"]
    if state in ("mounted", "ephemeral", "unmounted", "remounted"):
        refuse_led_away(path + "/")
    elif state == "absent":
        refuse_led_away(path)  # the directory is removed, and not what a link at its place leads to
    fstab = args["fstab"] or "/etc/fstab"
    result = {"name": path, "fstab": fstab, "changed": False, "diff": []}
    options = _options(args)
    result.update({k: args[k] for k in ("src", "fstype", "dump", "passno")}, opts=options)
    changes, now = [], mounted(path)
    planned = run.planned["states"].get("mount " + path)
    is_mounted = now is not None if planned is None else planned == "mounted"
    if state in ("present", "mounted", "absent", "absent_from_fstab", "remounted") and not (
        state == "remounted" and not args["src"]
    ):
        old = (run.read(fstab) or b"").decode("utf-8", "surrogateescape")
        new = old if state == "remounted" else _with_entry(old, args, path, options)
        if new != old:
            put = put_content(run, fstab, new.encode("utf-8", "surrogateescape"), {"backup": args["backup"]})
            result.update(changed=True, diff=put["diff"], backup_file=put.get("backup_file", ""))
    in_fstab_changed = result["changed"]

    def do(verb, argv, after):
        changes.append(verb)
        if run.check:
            run.planned["states"]["mount " + path] = after
        else:
            must(argv)

    if state in ("absent", "unmounted") and is_mounted:
        do("unmounted", [tool("umount"), path], "unmounted")
    if state == "absent" and run.kind(path) == "directory":
        if run.check:
            run.plan(path, "absent")
        else:
            try:
                os.rmdir(path)
            except OSError as problem:
                raise StepFailed("Error rmdir %s: %s" % (path, problem.strerror)) from None
        changes.append("removed directory")
    if state in ("mounted", "ephemeral"):
        if run.kind(path) == "absent":
            changes.append("created directory")
            if not run.check:
                os.makedirs(path)
            run.plan(path, "directory")
        if is_mounted and state == "ephemeral" and now and _source_of(now[0]) != _source_of(args["src"]):
            raise StepFailed("%s is mounted already, from %s." % (path, now[0]))
        by_file = ["-T", fstab] if args["fstab"] else []
        if is_mounted and in_fstab_changed:
            again = [tool("mount"), *by_file, "-o", "remount", path]
            code = 0 if run.check else execute(again, env=plain_environment())[0]
            if code != 0:  # some file systems cannot
                must([tool("umount"), path])
                must([tool("mount"), *by_file, path])
            changes.append("remounted")
        elif not is_mounted:
            direct = ["-t", args["fstype"], "-o", args["opts"] or "defaults", args["src"] or "none", path]
            do("mounted", [tool("mount"), *(direct if state == "ephemeral" else [*by_file, path])], "mounted")
    if state == "remounted":
        if not is_mounted:
            raise StepFailed("%s is not mounted." % path)
        words = ["remount"] + ([args["opts"]] if args["opts"] else [])
        do("remounted", [tool("mount"), "-o", ",".join(words), path], "mounted")
    result["diff"] = result["diff"] + state_diff(run, "mount " + path, changes)
    return dict(result, changed=result["changed"] or bool(changes))


def _source_of(source):
    """A device by its real path, so that UUID= and links compare."""
    for prefix, folder in (("UUID=", "by-uuid"), ("LABEL=", "by-label"), ("PARTUUID=", "by-partuuid")):
        if source and source.startswith(prefix):
            return os.path.realpath(os.path.join("/dev/disk", folder, source[len(prefix) :]))
    return os.path.realpath(source) if source and source.startswith("/") else source
