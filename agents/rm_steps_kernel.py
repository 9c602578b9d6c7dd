"""`sysctl`, `hostname`, and the host's part of `reboot`."""

import os
import re

from rm_steps_base import StepFailed, asks, execute, find_tool, must, plain_environment, state_diff, tool
from rm_steps_write import put_content

INITIAL_NAMESPACE = "pid:[4026531836]"  # of processes: PROC_PID_INIT_INO of Linux
_VARIABLE = re.compile(r"^\s*([^#;=\s][^=]*?)\s*=\s*(.*?)\s*$")


def _normal(value):
    return " ".join(str(value).split())


def do_sysctl(run, args):
    name, path = args["name"], args["sysctl_file"]
    value = _normal(args["value"]) if args["value"] is not None else None
    text = (run.read(path) or b"").decode("utf-8", "surrogateescape")
    lines, kept, seen = text.splitlines(True), [], []
    dashed = name.replace("/", ".")
    for line in lines:
        match = _VARIABLE.match(line)
        if match and match.group(1).replace("/", ".").lstrip("-") == dashed:
            seen.append(_normal(match.group(2)))
            if args["state"] == "present" and len(seen) == 1:
                kept.append(line if seen[0] == value else "%s=%s\n" % (name, value))
        else:
            kept.append(line)
    if args["state"] == "present" and not seen:
        if kept and not kept[-1].endswith("\n"):
            kept[-1] += "\n"
        kept.append("%s=%s\n" % (name, value))
    new = "".join(kept)
    result = {"changed": False, "name": name, "diff": []}
    runtime = "/proc/sys/" + dashed.replace(".", "/") if "/" not in name else "/proc/sys/" + name
    must_set = False
    if args["sysctl_set"] and args["state"] == "present":
        try:
            with open(runtime) as file:
                must_set = _normal(file.read()) != value
        except OSError as problem:
            if not args["ignoreerrors"]:
                said = "The kernel has no readable setting '%s': %s." % (name, problem.strerror)
                raise StepFailed(said) from None
        must_set = must_set and run.is_new_state("sysctl " + name, value)
    if new != text:
        result.update(put_content(run, path, new.encode("utf-8", "surrogateescape"), {}))
    if must_set:
        result["changed"] = True
        result["diff"] = result["diff"] + state_diff(run, "sysctl", ["%s=%s" % (name, value)])
        if not run.check:
            _set(runtime, name, value, args)
    if result["changed"] and args["reload"] and new != text and not run.check:
        flags = ["-e"] if args["ignoreerrors"] else []
        code, _, err = execute([tool("sysctl"), *flags, "-p", path], env=plain_environment())
        if code != 0 and not args["ignoreerrors"]:
            raise StepFailed("sysctl cannot load %s: %s" % (path, err.strip()))
    return result


def _set(runtime, name, value, args):
    try:
        with open(runtime, "w") as file:
            file.write(value + "\n")
    except OSError as problem:
        if not args["ignoreerrors"]:
            raise StepFailed("'%s' cannot be set to '%s': %s." % (name, value, problem.strerror)) from None


def _name_now(name):
    """Give the running system a name."""
    import socket

    said = ""
    if os.path.isdir("/run/systemd/system") and find_tool("hostnamectl"):
        code, out, err = execute([tool("hostnamectl"), "set-hostname", name], env=plain_environment())
        if code == 0:
            return
        said = " hostnamectl says: %s" % (err or out).strip()
    try:
        socket.sethostname(name)  # in a container systemd may not be asked
    except OSError as problem:
        raise StepFailed("The host's name cannot be set: %s.%s" % (problem.strerror, said)) from None


def do_hostname(run, args):
    import socket

    name, changes, diffs = args["name"], [], []
    path = "/etc/hostname"
    old = (run.read(path) or b"").decode(errors="replace").strip()
    now = socket.gethostname()
    if now != name and run.is_new_state("hostname", name):
        changes.append("now")
        diffs += state_diff(run, "host name", ["%s -> %s" % (now, name)])
        if not run.check:  # before the file: where this is not possible, nothing is changed
            _name_now(name)
    if old != name:
        part = put_content(run, path, (name + "\n").encode(), {})
        changes.insert(0, "permanent")
        diffs += part["diff"]
    short, _, domain = name.partition(".")
    facts = {
        "ansible_hostname": short,
        "ansible_nodename": name,
        "ansible_fqdn": name,
        "ansible_domain": domain,
    }
    return {"changed": bool(changes), "name": name, "ansible_facts": facts, "diff": diffs}


def do_reboot_now(run, args):
    """Start the reboot so that this answer still gets away; `reboot` on the control side waits for it."""
    import shlex
    import subprocess

    argv = (
        shlex.split(args["command"]) if args.get("command") else [tool("shutdown"), "-r", "now", args["msg"]]
    )
    argv[0] = tool(argv[0])
    wait = "sleep %d; " % max(1, args["delay"])
    line = wait + " ".join(shlex.quote(word) for word in argv)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True, **quiet)
    return {"changed": True}


def do_boot_id(run, args):
    import shlex

    if args.get("command"):
        return {"changed": False, "boot_id": must(shlex.split(args["command"])).strip()}
    if os.path.exists("/proc/self/ns/pid") and os.readlink("/proc/self/ns/pid") != INITIAL_NAMESPACE:
        raise StepFailed(
            "It is a container, whose kernel is another machine's. Restart that machine, or give a "
            "boot_time_command whose output a restart changes."
        )
    return {"changed": False, "boot_id": asks(["cat", "/proc/sys/kernel/random/boot_id"])[1].strip()}
