#!/usr/bin/env python3
"""Runs compiled playbook steps on this host: desired minus observed, and says what changed.

JSON request lines in, JSON reply lines out (docs/agent-protocol.md, operation `steps`), or imported
by rm_agent.py. Standard library only, Python 3.8+. The operations are in rm_steps_*.py beside this file,
imported when they are first called; where no agent is installed yet, all these texts are sent over SSH
at once and fed to `python3`.

A request: {"op": "steps", "steps": [{"id", "task", "op", "args", "user", "environment",
"ignore_errors", "check"}], "check": false, "diff": false, "planned": {}}. The reply's `results` are in
order: {"id", "changed", "failed", "msg", "diff": [unified diffs], ...}. After a failed step the rest of
its task still runs (the items of a loop), then nothing more; a request that goes on with the same task
says so by `failed_task`. In check mode nothing is written; `planned` carries what earlier steps would
have made to the request that follows.
"""

import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_steps_base import Run, StepFailed

VERSION = "0.2.0"
# operation -> the file that has it as do_<operation>
PLACES = {
    "rm_steps_accounts": ("getent", "group", "user"),
    "rm_steps_blob": ("blob",),
    "rm_steps_burn_in": ("rm_burn_in", "probe", "reflect"),
    "rm_steps_command": ("command", "raw", "script"),
    "rm_steps_copy": ("copy",),
    "rm_steps_cron": ("cron",),
    "rm_steps_file": ("file",),
    "rm_steps_git": ("git",),
    "rm_steps_iptables": ("iptables",),
    "rm_steps_kernel": ("boot_id", "hostname", "reboot_now", "sysctl"),
    "rm_steps_keys": ("authorized_key",),
    "rm_steps_look": ("find", "ping", "read_part", "slurp", "stat", "tempfile"),
    "rm_steps_mount": ("mount",),
    "rm_steps_package": ("package", "package_facts"),
    "rm_steps_pip": ("pip",),
    "rm_steps_service": ("service", "service_facts"),
    "rm_steps_setup": ("setup",),
    "rm_steps_text": ("blockinfile", "lineinfile", "replace"),
    "rm_steps_unarchive": ("unarchive",),
    "rm_steps_uri": ("uri",),
    "rm_steps_wait": ("wait_for",),
    "rm_steps_web": ("get_url",),
}
OPERATIONS = {name: place for place, names in PLACES.items() for name in names}


def do_note(run, args):
    """A step whose result the control side already knows; it keeps its place in the order."""
    return dict(args["result"], changed=bool(args.get("changed")), failed=bool(args.get("failed")))


def operation_of(name):
    """The function of an operation; None when this host's files do not know it."""
    if name == "note":
        return do_note
    if name not in OPERATIONS:
        return None
    return getattr(importlib.import_module(OPERATIONS[name]), "do_" + name)


def failure(message, **details):
    return dict({"changed": False, "failed": True, "msg": message}, **details)


def run_step(run, step):
    """One step to its result; nothing but a result ever comes out."""
    saved = dict(os.environ)
    try:
        operation = operation_of(step["op"])
        if operation is None:
            return failure("This host's rm_steps.py does not know '%s'." % step["op"])
        os.environ.update(step.get("environment") or {})
        result = operation(run, step["args"])
        result.setdefault("failed", False)
    except StepFailed as problem:
        result = failure(str(problem), **problem.details)
    except OSError as problem:
        where = " (%s)" % problem.filename if problem.filename else ""
        result = failure("%s%s." % (problem.strerror or problem, where))
    except Exception as problem:  # told as a failed step: one bad step must not lose the others' answers
        said = "%s: %s" % (type(problem).__name__, problem)
        result = failure("rm_steps.py failed in '%s': %s" % (step["op"], said))
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
            said = "the user does not exist yet"
            return {"changed": False, "skipped": True, "might_run": True, "msg": said}
        return failure("There is no user '%s' on this host." % step["user"])
    if who.pw_uid == os.getuid():
        return run_step(run, step)
    operation_of(step["op"])  # imported here: the other user need not be able to read our files
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.initgroups(who.pw_name, who.pw_gid)
            os.setgid(who.pw_gid)
            os.setuid(who.pw_uid)
            os.environ.update(HOME=who.pw_dir, USER=who.pw_name, LOGNAME=who.pw_name)
            os.environ.update(SHELL=who.pw_shell or "/bin/sh")
            os.chdir("/")
            result = run_step(run, step)
        except OSError as problem:
            result = failure("cannot become '%s': %s" % (step["user"], problem.strerror))
        with os.fdopen(writing, "w") as file:
            json.dump([result, run.planned], file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        return failure("The step's process was killed.")
    result, run.planned = json.loads(text)
    return result


def steps_operation(request):
    """The operation `steps` of the agent protocol."""
    run = Run(bool(request.get("check")), bool(request.get("diff")), request.get("planned") or {})
    asked = run.check
    results, failed_task = [], request.get("failed_task")
    for step in request["steps"]:
        if failed_task is not None and step["task"] != failed_task:
            break
        run.check = bool(step.get("check", asked))
        try:
            if step.get("parts"):
                from rm_steps_blob import with_parts

                step["args"] = with_parts(step["args"])
            result = run_step_as(run, step) if step.get("user") else run_step(run, step)
        except (StepFailed, OSError) as problem:
            result = failure(str(problem))
        results.append(dict(result, id=step["id"]))
        if result.get("failed") and not step.get("ignore_errors"):
            failed_task = step["task"]
    return {"results": results, "planned": run.planned, "failed_task": failed_task}


OFTEN = ("rm_steps_accounts", "rm_steps_command", "rm_steps_copy", "rm_steps_look", "rm_steps_text")
LIBRARIES = ("base64", "datetime", "difflib", "glob", "grp", "hashlib", "pwd", "re", "shlex", "shutil",
             "subprocess", "tempfile", "zlib")  # fmt: skip


def features():
    """For the agent, which asks once and then forks a child per request: what most of them would import."""
    for name in OFTEN + LIBRARIES:
        importlib.import_module(name)
    return {}


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
