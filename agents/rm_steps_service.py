"""`service`, `systemd`, `service_facts`: services run or rest, now and after the next boot."""

import os
import re

from rm_steps_base import StepFailed, asks, find_tool, must, state_diff, tool

RUNNING = ("active", "activating", "reloading")


class Systemd:
    """Units, by systemctl."""

    name = "systemd"

    def __init__(self, args):
        self.args = args
        scope = args.get("scope") or "system"
        self.base = [tool("systemctl")] + ([] if scope == "system" else ["--" + scope])
        if scope == "user" and "XDG_RUNTIME_DIR" not in os.environ:
            os.environ["XDG_RUNTIME_DIR"] = "/run/user/%d" % os.getuid()

    def reload(self, run):
        for flag, verb in (("daemon_reload", "daemon-reload"), ("daemon_reexec", "daemon-reexec")):
            if self.args.get(flag) and not run.check:
                must([*self.base, verb])

    def look(self, unit):
        """The unit's properties; LoadState says whether there is such a unit."""
        code, out = asks([*self.base, "show", unit])
        if code != 0:
            raise StepFailed("systemctl cannot be asked about '%s' (%d): is systemd running?" % (unit, code))
        self.status = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        return self.status.get("LoadState") not in ("not-found", None)

    def running(self, unit):
        return self.status.get("ActiveState") in RUNNING

    def settled(self, unit):
        """Neither on its way up nor down."""
        return self.status.get("ActiveState") not in ("activating", "deactivating")

    def enabled(self, unit):
        code, out = asks([*self.base, "is-enabled", unit])
        said = out.strip().splitlines()
        return code == 0 and bool(said) and said[0] not in ("alias", "indirect-disabled", "enabled-runtime")

    def masked(self, unit):
        return self.status.get("LoadState") == "masked" or self.status.get("UnitFileState") == "masked"

    def act(self, verb, unit):
        flags = ["--no-block"] if self.args.get("no_block") and verb not in ("mask", "unmask") else []
        flags += ["--force"] if self.args.get("force") and verb in ("enable", "disable") else []
        must([*self.base, *flags, verb, unit])

    def result(self):
        return {"status": self.status}


class SysV:
    """Scripts in /etc/init.d, and the tools that link them to runlevels."""

    name = "sysvinit"

    def __init__(self, args):
        self.args = args

    def reload(self, run):
        for name in ("daemon_reload", "daemon_reexec", "no_block"):
            if self.args.get(name):
                raise StepFailed("'%s' is for systemd, which does not run on this host." % name)

    def look(self, unit):
        self.script = "/etc/init.d/" + unit.replace(".service", "")
        return os.access(self.script, os.X_OK)

    def running(self, unit):
        if self.args.get("pattern"):
            return self.args["pattern"] in asks([tool("ps"), "axww", "-o", "args"])[1]
        code, out = asks([self.script, "status", *self._arguments()])
        if code in (0, 3):
            text = out.lower()
            return code == 0 and not re.search(r"not running|is stopped|dead but|inactive", text)
        return False

    def settled(self, unit):
        return True

    def enabled(self, unit):
        import glob

        return bool(glob.glob("/etc/rc[2-5].d/S[0-9]*" + os.path.basename(self.script)))

    def masked(self, unit):
        return False

    def _arguments(self):
        import shlex

        return shlex.split(self.args.get("arguments") or "")

    def act(self, verb, unit):
        name = os.path.basename(self.script)
        if verb in ("enable", "disable"):
            if find_tool("update-rc.d"):
                if verb == "enable":
                    must([tool("update-rc.d"), name, "defaults"])
                must([tool("update-rc.d"), name, verb])
            else:
                must([tool("chkconfig"), name, "on" if verb == "enable" else "off"])
            return
        if verb in ("mask", "unmask"):
            raise StepFailed("Only systemd can mask a service.")
        if verb == "restart" and self.args.get("sleep"):
            import time

            must([self.script, "stop", *self._arguments()])
            time.sleep(self.args["sleep"])
            verb = "start"
        must([self.script, verb, *self._arguments()])

    def result(self):
        return {}


def systemd_runs():
    return os.path.isdir("/run/systemd/system")


def chosen(args):
    if args.get("systemd_only") or args.get("use") in ("systemd", "systemd_service"):
        return Systemd(args)
    return Systemd(args) if systemd_runs() else SysV(args)


def do_service(run, args):
    host, unit, changes = chosen(args), args["name"], []
    host.reload(run)
    if unit is None:
        return {"changed": False, "name": None}
    result = {"name": unit, "changed": False}
    known = host.look(unit)
    if not known and args.get("masked") is not True:
        if args.get("state") is None and args.get("enabled") is None and args.get("masked") is None:
            return dict(result, **host.result())
        if not run.check:
            said = "Could not find the requested service %s: host" % unit
            raise StepFailed(said if host.name == "systemd" else "There is no service '%s' here." % unit)
        wanted = ["%s: %s" % (k, args[k]) for k in ("enabled", "state") if args.get(k) is not None]
        said = "There is no service '%s' yet; it is taken to come before." % unit
        return dict(result, changed=True, might_run=True, msg=said, diff=state_diff(run, unit, wanted))

    def act(verb, unit_state):
        if run.is_new_state("service %s %s" % (unit, unit_state[0]), unit_state[1]):
            changes.append(verb)
            if not run.check:
                host.act(verb, unit)

    if args.get("masked") is not None and host.masked(unit) != args["masked"]:
        act("mask" if args["masked"] else "unmask", ("masked", args["masked"]))
    if args.get("enabled") is not None:
        result["enabled"] = args["enabled"]
        if host.enabled(unit) != args["enabled"]:
            act("enable" if args["enabled"] else "disable", ("enabled", args["enabled"]))
    state = args.get("state")
    if state is not None:
        result["state"] = "started" if state in ("restarted", "reloaded") else state
        running = host.running(unit)
        if state == "started" and not running:
            act("start", ("running", True))
        elif state == "stopped" and (running or not host.settled(unit)):
            act("stop", ("running", False))
        elif state in ("restarted", "reloaded"):
            changes.append(state[:-2] if running else "start")
            if not run.check:
                host.act({"restarted": "restart", "reloaded": "reload"}[state] if running else "start", unit)
        if not run.check and host.name == "systemd" and changes:
            host.look(unit)  # as it is now, which the result shows
    return dict(
        result, changed=bool(changes), diff=state_diff(run, "service " + unit, changes), **host.result()
    )


def do_service_facts(run, args):
    found = {}
    if systemd_runs() and find_tool("systemctl"):
        program, quiet = tool("systemctl"), ["--no-pager", "--no-legend", "--plain"]
        _, files = asks([program, "list-unit-files", "--type", "service", *quiet])
        _, units = asks([program, "list-units", "--type", "service", "--all", *quiet])
        for line in files.splitlines():
            words = line.split()
            if len(words) >= 2:
                one = {"name": words[0], "state": "unknown", "status": words[1], "source": "systemd"}
                found[words[0]] = dict(one, state="inactive" if words[1] != "enabled" else "stopped")
        for line in units.splitlines():
            words = line.lstrip("●*x ").split(None, 4)
            if len(words) >= 4 and words[0].endswith(".service"):
                name, load, active, sub = words[:4]
                state = "running" if sub == "running" else "failed" if active == "failed" else "stopped"
                status = "not-found" if load == "not-found" else "failed" if active == "failed" else None
                one = found.setdefault(name, {"name": name, "status": "unknown", "source": "systemd"})
                one["state"] = state
                one["status"] = status or one["status"]
    elif os.path.isdir("/etc/init.d"):
        for name in sorted(os.listdir("/etc/init.d")):
            path = "/etc/init.d/" + name
            if os.access(path, os.X_OK) and os.path.isfile(path) and find_tool("service"):
                code, _ = asks([path, "status"], timeout_s=10)
                state = "running" if code == 0 else "stopped"
                found[name] = {"name": name, "state": state, "source": "sysv"}
    return {"changed": False, "ansible_facts": {"services": found}}
