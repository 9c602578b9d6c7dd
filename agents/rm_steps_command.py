"""`command`, `shell`, `script`, `raw`: programs whose effect cannot be predicted."""

import os

from rm_steps_base import StepFailed, absolute, execute, expanded, output_of, unpacked


def _stops(run, args, chdir):
    """Why the command need not run: `creates` is there, or `removes` is not, as (path, what of it); None
    when it must."""
    import glob

    for name, stops in (("creates", True), ("removes", False)):
        pattern = args.get(name)
        if pattern:
            path = os.path.join(chdir or os.getcwd(), expanded(pattern))
            there = bool(glob.glob(path)) or run.kind(path) != "absent"
            if there == stops:
                return expanded(pattern), "exists" if stops else "does not exist"
    return None


_NEVER = {"start": None, "end": None, "delta": None}  # of a command that did not run


def do_command(run, args):
    import datetime

    argv = args["argv"]
    shown = args.get("shell") or argv
    if args.get("expand_argument_vars"):
        argv = [os.path.expanduser(os.path.expandvars(word)) for word in argv]
    chdir = absolute(args["chdir"]) if args.get("chdir") else None
    why = _stops(run, args, chdir)
    if why:
        said = dict(output_of(0, "skipped, since %s %s" % why, "", shown), changed=False, **_NEVER)
        did = "Would" if run.check else "Did"
        return dict(said, msg="%s not run command since '%s' %s" % (did, why[0], why[1]))
    if chdir is not None and not run.is_directory(chdir):
        raise StepFailed("Unable to change directory: %s does not exist." % chdir)
    if run.check:
        text = shown if isinstance(shown, str) else " ".join(shown)
        known = bool(args.get("creates") or args.get("removes"))
        result = dict(output_of(0, "", "", shown), **_NEVER)
        said = dict(result, changed=known, might_run=True, msg="might run: " + text)
        return said if known else dict(said, skipped=True)
    stdin = args.get("stdin")
    if stdin is not None and args.get("stdin_add_newline", True):
        stdin += "\n"
    began = datetime.datetime.now()
    try:
        code, out, err = execute(argv, chdir, None, stdin)
    except OSError as problem:
        said = "'%s' cannot be run: %s." % (argv[0], problem.strerror)
        shown = shown if isinstance(shown, str) else " ".join(shown)
        raise StepFailed(said, **dict(output_of(problem.errno, "", "", shown))) from None
    ended = datetime.datetime.now()
    if args.get("strip_empty_ends", True):
        out, err = out.rstrip("\r\n"), err.rstrip("\r\n")
    return dict(
        output_of(code, out, err, shown),
        changed=True,
        failed=code != 0,
        msg="" if code == 0 else "non-zero return code",
        start=str(began),
        end=str(ended),
        delta=str(ended - began),
    )


def do_script(run, args):
    """A program of the control side, run here from a private file that is gone afterwards."""
    import shlex
    import tempfile

    name = args["name"]
    chdir = absolute(args["chdir"]) if args.get("chdir") else None
    why = _stops(run, args, chdir)
    if why:
        return {"changed": False, "skipped": True, "msg": "Did not run script since %s %s" % why}
    if run.check:
        known = bool(args.get("creates") or args.get("removes"))
        said = "might run: %s %s" % (name, " ".join(args["arguments"]))
        return {"changed": known, "skipped": not known, "might_run": True, "msg": said.strip(), "rc": 0}
    with tempfile.TemporaryDirectory(prefix="rm-script-") as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(unpacked(args["content"]))
        os.chmod(path, 0o700)
        first = shlex.split(args["executable"]) if args.get("executable") else []
        argv = [*first, path, *args["arguments"]]
        try:
            code, out, err = execute(argv, chdir)
        except OSError as problem:
            if problem.errno != 8:  # ENOEXEC: no first line says what runs it; a shell then does
                raise StepFailed("%s cannot be run: %s." % (name, problem.strerror), rc=126) from None
            code, out, err = execute(["/bin/sh", path, *args["arguments"]], chdir)
    found = output_of(code, out, err, [name, *args["arguments"]])
    del found["cmd"]
    said = "" if code == 0 else "non-zero return code"
    return dict(found, changed=True, failed=code != 0, msg=said)


def do_raw(run, args):
    if run.check:
        said = "might run: " + args["_raw"]
        return {"changed": False, "skipped": True, "might_run": True, "msg": said, "rc": 0}
    shell = args.get("executable") or "/bin/sh"
    try:
        code, out, err = execute([shell, "-c", args["_raw"]])
    except OSError as problem:
        raise StepFailed("'%s' cannot be run: %s." % (shell, problem.strerror), rc=127) from None
    found = output_of(code, out, err, args["_raw"])
    del found["cmd"]
    said = "" if code == 0 else "non-zero return code"
    return dict(found, changed=True, failed=code != 0, msg=said)
