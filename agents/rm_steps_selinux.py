"""`selinux`, `seboolean`, `seport`: SELinux's state, switches and ports, by the host's own tools."""

import os
import re

from rm_steps_base import StepFailed, asks, find_tool, must, state_diff, tool
from rm_steps_write import put_content

MOUNT = "/sys/fs/selinux"


def _runtime():
    """enforcing, permissive or disabled."""
    try:
        with open(MOUNT + "/enforce") as file:
            return "enforcing" if file.read().strip() == "1" else "permissive"
    except OSError:
        return "disabled"


def _set_line(text, key, value):
    line = "%s=%s" % (key, value)
    new, count = re.subn("^%s=.*$" % key, line, text, flags=re.MULTILINE)
    return new if count else text + ("" if not text or text.endswith("\n") else "\n") + line + "\n"


def do_selinux(run, args):
    path, state = args["configfile"], args["state"]
    data = run.read(path)
    if data is None:
        raise StepFailed("Unable to find file %s: install a policy of SELinux." % path)
    text = data.decode("utf-8", "surrogateescape")
    found = dict(re.findall(r"^(SELINUX|SELINUXTYPE)=(.*?)\s*$", text, re.MULTILINE))
    policy, now, told = args["policy"] or found.get("SELINUXTYPE"), _runtime(), []
    result = {"configfile": path, "policy": policy, "state": state, "reboot_required": False, "warnings": []}
    new = text
    if policy != found.get("SELINUXTYPE"):
        if not os.path.isdir("/etc/selinux/%s/policy" % policy) and not run.check:
            raise StepFailed("Policy %s does not exist in /etc/selinux/" % policy)
        said = "Running SELinux policy changed from '%s' to '%s'"
        told.append(said % (found.get("SELINUXTYPE"), policy))
        new = _set_line(new, "SELINUXTYPE", policy)
    if state != now:
        if now == "disabled" or state == "disabled":
            result["reboot_required"] = True
            result["warnings"].append("SELinux state change will take effect next reboot")
        temporarily = "permissive" if state == "disabled" and now == "enforcing" else None
        wanted = temporarily or (state if "disabled" not in (now, state) else None)
        if wanted and run.is_new_state("selinux", wanted):
            told.append("SELinux state changed from '%s' to '%s'" % (now, wanted))
            if not run.check:
                must([tool("setenforce"), "1" if wanted == "enforcing" else "0"])
    if state != found.get("SELINUX"):
        told.append("Config SELinux state changed from '%s' to '%s'" % (found.get("SELINUX"), state))
        new = _set_line(new, "SELINUX", state)
    diff = []
    if new != text:
        diff = put_content(run, path, new.encode("utf-8", "surrogateescape"), {})["diff"]
    if args["update_kernel_param"]:
        told += _kernel(run, state != "disabled")
    diff += state_diff(run, "selinux", told) if told and not diff else []
    return dict(result, changed=bool(told), msg=", ".join(told), diff=diff)


def _kernel(run, wanted):
    """`selinux=0` on the kernel's command line, by grubby; what was done."""
    lines = re.findall(r'^args="(.*)"$', must([tool("grubby"), "--info=ALL"]), re.MULTILINE)
    off = ["selinux=0" in line.split() for line in lines]
    now = None if any(off) and not all(off) else not any(off)
    if now == wanted or not run.is_new_state("selinux kernel", wanted):
        return []
    if not run.check:
        must([tool("grubby"), "--update-kernel=ALL", "--remove-args" if wanted else "--args", "selinux=0"])
    words = ("disabled", "enabled") if wanted else ("enabled", "disabled")
    before = "<inconsistent>" if now is None else words[0]
    return ["Kernel SELinux state changed from '%s' to '%s'" % (before, words[1])]


def _needs_selinux(args):
    if _runtime() == "disabled" and not args["ignore_selinux_state"]:
        raise StepFailed("SELinux is disabled on this host.")


def do_seboolean(run, args):
    _needs_selinux(args)
    name, state, persistent = args["name"], args["state"], args["persistent"]
    result = {"changed": False, "name": name, "persistent": persistent, "state": state}
    code, out = asks([tool("getsebool"), name])
    match = re.search(r"-->\s*(on|off|active|inactive)", out)
    if code != 0 or match is None:
        raise StepFailed("SELinux boolean %s does not exist." % name)
    current = [match.group(1) in ("on", "active")]
    if persistent:
        listed = must([tool("semanage"), "boolean", "-l", "-n"])
        stored = re.search(r"^%s\s+\(\s*\w+\s*,\s*(\w+)\s*\)" % re.escape(name), listed, re.MULTILINE)
        current.append(stored is not None and stored.group(1) == "on")
    if all(one == state for one in current) or not run.is_new_state("seboolean " + name, [state, persistent]):
        return result
    if not run.check:
        must([tool("setsebool"), *(["-P"] if persistent else []), name, "on" if state else "off"])
    return dict(result, changed=True, diff=state_diff(run, name, ["on" if state else "off"]))


def _ports(local):
    """(type, proto) -> ports and ranges."""
    out = must([tool("semanage"), "port", "-l", "-n", *(["-C"] if local else [])])
    found = {}
    for line in out.splitlines():
        words = line.split(None, 2)
        if len(words) == 3:
            found.setdefault((words[0], words[1]), []).extend(one.strip() for one in words[2].split(","))
    return found


def do_seport(run, args):
    _needs_selinux(args)
    if not find_tool("semanage"):
        raise StepFailed("This host has no semanage: install policycoreutils-python-utils.")
    proto, kind, changed = args["proto"], args["setype"], []
    known = _ports(args["local"])
    mine, every = known.get((kind, proto), []), {}
    for (other, protocol), ports in (known if not args["local"] else _ports(False)).items():
        if protocol == proto:
            every.update(dict.fromkeys(ports, other))
    flags = [] if args["reload"] else ["-N"]
    for port in args["ports"]:
        wanted = args["state"] == "present"
        if (port in mine) == wanted or not run.is_new_state("seport %s/%s %s" % (port, proto, kind), wanted):
            continue
        changed.append("%s/%s %s %s" % (port, proto, "is" if wanted else "is no", kind))
        if not run.check:
            verb = ["-m" if port in every else "-a", "-t", kind] if wanted else ["-d"]
            must([tool("semanage"), "port", *verb, "-p", proto, *flags, port])
    result = {"changed": bool(changed), "ports": args["ports"], "proto": proto, "setype": kind}
    return dict(result, state=args["state"], diff=state_diff(run, "ports", changed))
