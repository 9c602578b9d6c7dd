#!/usr/bin/env python3
"""Runs compiled playbook steps on this host: desired minus observed, and says what changed.

JSON request lines in, JSON reply lines out (docs/agent-protocol.md, operation `steps`), or imported
by rm_agent.py. Standard library only, Python 3.8+. The operations are in rm_steps_*.py beside this file,
imported when they are first called; where no agent is installed yet, these texts are sent over SSH, those
that no request needs left out, and fed to `python3`.

A request: {"op": "steps", "steps": [{"id", "task", "op", "args", "user", "environment", "ignore_errors",
"check", "timeout", "async"}], "check": false, "diff": false, "planned": {}}. The reply's `results` are in
order: {"id", "changed", "failed", "msg", "diff": [unified diffs], ...}. After a failed step the rest of its
task still runs (the items of a loop), then nothing more; a request that goes on with the same task says so
by `failed_task`. In check mode nothing is written; `planned` carries what earlier steps would have made to
the request that follows. A reply that grows long ends early with `cut`: the steps without a result are to
be asked for again. When nobody listens any more, the step under way is finished and the next is not begun.
"""

import hashlib
import importlib
import json
import os
import re
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_steps_base import Run, StepFailed

# operation -> the file that has it as do_<operation>
PLACES = {
    "rm_steps_accounts": ("getent", "group", "user"),
    "rm_steps_apt_key": ("apt_key",),
    "rm_steps_apt_sources": ("apt_repository", "deb822_repository"),
    "rm_steps_assemble": ("assemble",),
    "rm_steps_async": ("async_status",),
    "rm_steps_blob": ("blob",),
    "rm_steps_burn_in": ("rm_burn_in",),
    "rm_steps_command": ("command", "raw", "script"),
    "rm_steps_copy": ("copy",),
    "rm_steps_cron": ("cron",),
    "rm_steps_debian": ("alternatives", "debconf"),
    "rm_steps_file": ("file",),
    "rm_steps_filesystem": ("filesystem",),
    "rm_steps_firewalld": ("firewalld",),
    "rm_steps_git": ("git",),
    "rm_steps_ini": ("ini_file", "yum_repository"),
    "rm_steps_iptables": ("iptables",),
    "rm_steps_kernel": ("boot_id", "hostname", "reboot_now", "sysctl"),
    "rm_steps_keys": ("authorized_key",),
    "rm_steps_look": ("find", "ping", "read_part", "slurp", "stat", "tempfile"),
    "rm_steps_modprobe": ("modprobe",),
    "rm_steps_mount": ("mount",),
    "rm_steps_mysql": ("mysql_db", "mysql_user"),
    "rm_steps_network": ("network_pair",),
    "rm_steps_openssl": ("openssl_csr", "openssl_privatekey", "x509_certificate"),
    "rm_steps_own": ("own_module",),
    "rm_steps_package": ("package", "package_facts"),
    "rm_steps_pip": ("pip",),
    "rm_steps_postgresql": ("postgresql_db", "postgresql_user"),
    "rm_steps_rpm_key": ("rpm_key",),
    "rm_steps_selinux": ("seboolean", "selinux", "seport"),
    "rm_steps_service": ("service", "service_facts"),
    "rm_steps_setup": ("setup",),
    "rm_steps_survey": ("survey",),
    "rm_steps_text": ("blockinfile", "lineinfile", "replace"),
    "rm_steps_timezone": ("timezone",),
    "rm_steps_ufw": ("ufw",),
    "rm_steps_unarchive": ("unarchive",),
    "rm_steps_uri": ("uri",),
    "rm_steps_wait": ("wait_for",),
    "rm_steps_web": ("get_url",),
}
OPERATIONS = {name: place for place, names in PLACES.items() for name in names}
REPLY_BYTES = 1 << 20  # a reply that is longer ends after the step that made it so: others wait behind it
HERE = os.path.dirname(os.path.abspath(__file__))


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
        if step.get("async") or step.get("timeout"):
            result = run_bounded(run, step, operation)
        else:
            result = operation(run, step["args"])
        result.setdefault("failed", False)
    except StepFailed as problem:
        result = failure(str(problem), **problem.details)
    except OSError as problem:
        where = " (%s)" % problem.filename if problem.filename else ""
        result = failure("%s%s." % (problem.strerror or problem, where))
    except Exception as problem:  # reported as a failed step: one bad step must not lose the others' answers
        said = "%s: %s" % (type(problem).__name__, problem)
        result = failure("rm_steps.py failed in '%s': %s" % (step["op"], said))
    finally:
        os.environ.clear()
        os.environ.update(saved)
    return result


def run_bounded(run, step, operation):
    """A step with a time limit, or in the background."""
    from rm_steps_async import start, time_limit

    if step.get("async") and not run.check:
        return start(run_step, run, dict(step, timeout=step["async"]))
    if not step.get("timeout"):
        return operation(run, step["args"])
    with time_limit(step["timeout"]):
        return operation(run, step["args"])


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
            os.chdir(who.pw_dir if step.get("at_home") and os.path.isdir(who.pw_dir) else "/")
            result = run_step(run, step)
        except OSError as problem:
            result = failure("cannot become '%s': %s" % (step["user"], problem.strerror))
        try:
            with os.fdopen(writing, "w") as file:
                json.dump([result, run.planned], file)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        return failure("The step's process was killed.")
    result, run.planned = json.loads(text)
    return result


def steps_operation(request, deserted=lambda: False):
    """The operation `steps` of the agent protocol. `deserted`: does nobody wait for the answer any more?"""
    run = Run(bool(request.get("check")), bool(request.get("diff")), request.get("planned") or {})
    asked = run.check
    results, failed_task, size, cut = [], request.get("failed_task"), 0, False
    for step in request["steps"]:
        if failed_task is not None and step["task"] != failed_task:
            break
        if size > REPLY_BYTES or deserted():
            cut = True
            break
        run.check = bool(step.get("check", asked))
        began_s = time.monotonic()
        try:
            if step.get("parts"):
                from rm_steps_blob import with_parts

                step["args"] = with_parts(step["args"])
            result = run_step_as(run, step) if step.get("user") else run_step(run, step)
        except (StepFailed, OSError) as problem:
            result = failure(str(problem))
        took_us = int((time.monotonic() - began_s) * 1e6)
        results.append(dict(result, id=step["id"], took_us=took_us))
        size += len(json.dumps(result))
        if result.get("failed") and not step.get("ignore_errors"):
            failed_task = step["task"]
    answer = {"results": results, "planned": run.planned, "failed_task": failed_task}
    return dict(answer, cut=True) if cut else answer


# -- in the agent ---------------------------------------------------------------------------------


OFTEN = ("rm_steps_accounts", "rm_steps_apt", "rm_steps_command", "rm_steps_copy", "rm_steps_look",
         "rm_steps_package", "rm_steps_setup", "rm_steps_text")  # fmt: skip
LIBRARIES = ("base64", "datetime", "difflib", "glob", "grp", "hashlib", "pwd", "re", "shlex", "shutil",
             "socket", "subprocess", "tempfile", "zlib")  # fmt: skip
LOADED = {}  # the executor's files by name: what shows whether one was replaced


class Replaced(Exception):
    """These files are no longer those on the disk, and parts of both must not be mixed."""

    code = "replaced"


def state_of(name):
    """Changes when a file of ours is replaced; None: it is gone."""
    try:
        found = os.stat(os.path.join(HERE, name + ".py"))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def features():
    """For the agent, which asks once and then forks children for requests: what most of them would import.

    `steps` names the executor's files by their content, so that who sends steps knows what they will meet.
    """
    texts = executor()
    for name in OFTEN + LIBRARIES:
        importlib.import_module(name)
    return {"steps": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()}


def executor():
    """Name to text: every file of PLACES and what they import of their siblings."""
    wanted, texts = ["rm_steps", *PLACES], {}
    while wanted:
        name = wanted.pop()
        LOADED[name] = state_of(name)  # before it is read
        with open(os.path.join(HERE, name + ".py"), encoding="utf-8") as file:
            texts[name] = file.read()
        found = re.findall(r"^\s*(?:import|from) (rm_\w+)", texts[name], re.MULTILINE)
        wanted += [name for name in found if name not in texts]
    return texts


def steps_in_agent(request):
    """The same in a child of the agent, which ends it by SIGTERM; what steps start ignores no signals."""
    if any(state_of(name) != state for name, state in LOADED.items()):
        raise Replaced("The agent's files were replaced since it was started.")
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for step in request["steps"]:
        operation_of(step["op"])  # before a step can replace a file that another one needs
    return steps_operation(request, lambda: bool(told))


OPS = {}
SLOW_OPS = {"steps": steps_in_agent}


# -- as a program -----------------------------------------------------------------------------------


def nobody_reads():
    """Has the other end of standard output gone?"""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def take_files(packed):
    """Further files of the executor, for the loader that runs this one."""
    import base64
    import zlib

    sys.modules["__main__"].S.update(json.loads(zlib.decompress(base64.b64decode(packed))))


def serve(lines, write):
    for line in lines:
        if not line.strip():
            continue
        identity = None
        try:
            request = json.loads(line)
            identity = request.get("id")
            if request.get("op") == "files":
                take_files(request["files"])
                continue
            if request.get("op") != "steps":
                raise ValueError("unknown operation %r" % request.get("op"))
            reply = {"id": identity, "ok": True, "result": steps_operation(request, nobody_reads)}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            reply = {
                "id": identity,
                "ok": False,
                "code": "bad-request",
                "error": "Bad request: %s." % problem,
            }
        write(json.dumps(reply, separators=(",", ":")) + "\n")


def main(arguments):
    if arguments:
        print("usage: rm_steps.py  (JSON request lines on standard input)", file=sys.stderr)
        return 2

    def write(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    serve(sys.stdin, write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
