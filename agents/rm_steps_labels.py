"""SELinux labels and chattr(1)'s attributes of one path, put right where they differ."""

import os

from rm_steps_base import StepFailed, asks, execute, find_tool, plain_environment, tool

LABEL = "security.selinux"
PARTS = ("seuser", "serole", "setype", "selevel")
ENFORCE = "/sys/fs/selinux/enforce"
EXTENTS = "e"  # ext4 sets it of itself
NAMES = (*PARTS, "attributes")


def fix_labels(run, path, args, changes):
    """Puts right what differs, and notes it in `changes`. Labels count only on hosts with SELinux."""
    if not any(args.get(name) for name in NAMES) or (run.check and path in run.planned["paths"]):
        return
    if any(args.get(name) for name in PARTS) and os.path.exists(ENFORCE):
        _fix_context(run, path, args, changes)
    if args.get("attributes"):
        _fix_flags(run, path, args["attributes"], changes)


def _fix_context(run, path, args, changes):
    try:
        old = os.getxattr(path, LABEL, follow_symlinks=False).rstrip(b"\0").decode()
    except OSError as problem:
        raise StepFailed("The SELinux label of %s cannot be read: %s." % (path, problem.strerror)) from None
    parts = (old.split(":", 3) + [""] * 4)[:4]
    usual = None
    for i, name in enumerate(PARTS):
        wanted = args.get(name)
        if wanted == "_default":
            usual = usual if usual is not None else _usual(path)
            wanted = usual[i] if i < len(usual) else None
        parts[i] = wanted or parts[i]
    new = ":".join(part for part in parts if part)
    if new == old:
        return
    changes.append("label: %s -> %s" % (old, new))
    if not run.check:
        try:
            os.setxattr(path, LABEL, new.encode() + b"\0", follow_symlinks=False)
        except OSError as problem:
            said = "%s cannot get the SELinux label %s: %s." % (path, new, problem.strerror)
            raise StepFailed(said) from None


def _usual(path):
    """The parts of the label that the policy has for a path."""
    code, out = asks([tool("matchpathcon"), "-n", path])
    return out.strip().split(":", 3) if code == 0 and ":" in out else []


def _fix_flags(run, path, wanted, changes):
    """`=ai`, `+i`, `-i`, or only letters, which means `=`."""
    how, letters = (wanted[0], wanted[1:]) if wanted[0] in "+-=" else ("=", wanted)
    old = _flags(path)
    if old is not None:
        if how == "+":
            same = set(letters) <= old
        elif how == "-":
            same = not set(letters) & old
        else:
            same = set(letters) - {EXTENTS} == old - {EXTENTS}
        if same:
            return
    changes.append("attributes: %s -> %s%s" % ("".join(sorted(old or ())), how, letters))
    if not run.check:
        code, out, err = execute([tool("chattr"), how + letters, path], env=plain_environment())
        if code != 0 or err.strip():
            raise StepFailed("chattr failed: %s" % (err or out).strip(), rc=code)


def _flags(path):
    """The letters that lsattr(1) shows, None where it cannot say."""
    if not find_tool("lsattr"):
        return None
    code, out = asks([tool("lsattr"), "-d", path])
    return set(out.split()[0]) - {"-"} if code == 0 and out.split() else None
