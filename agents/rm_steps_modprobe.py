"""`modprobe`: kernel modules that are loaded, now and after the next boot."""

import os
import re
import shlex

from rm_steps_base import StepFailed, execute, plain_environment, state_diff, tool
from rm_steps_write import put_content

LOADS, OPTIONS = "/etc/modules-load.d", "/etc/modprobe.d"
LOADED, BUILT_IN = "/proc/modules", "/lib/modules/%s/modules.builtin"


def _loaded(name):
    with open(LOADED, encoding="utf-8") as file:
        if any(line.startswith(name.replace("-", "_") + " ") for line in file):
            return True
    try:
        with open(BUILT_IN % os.uname().release, encoding="utf-8") as file:
            return any(line.rstrip().endswith("/%s.ko" % name) for line in file)
    except OSError:
        return False


class Folder:
    """The lines of a directory's files that say something of a module."""

    def __init__(self, run, path, pattern):
        self.run, self.path, self.pattern = run, path, re.compile(pattern)
        planned = [p for p, kind in run.planned["paths"].items() if kind == "file"]
        there = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else []
        names = {p for p in [*there, *planned] if os.path.dirname(p) == path}
        self.files = {p: run.read(p) for p in sorted(names) if run.kind(p) == "file"}

    def found(self):
        texts = [data.decode("utf-8", "replace") for data in self.files.values() if data is not None]
        return [match for text in texts for match in map(self.pattern.match, text.splitlines()) if match]

    def disable(self):
        """Comment these lines out; the diffs."""
        diffs = []
        for path, data in self.files.items():
            lines = (data or b"").decode("utf-8", "surrogateescape").splitlines(True)
            new = "".join("#" + one if self.pattern.match(one.rstrip("\n")) else one for one in lines)
            new = new.encode("utf-8", "surrogateescape")
            if new != data:
                diffs += put_content(self.run, path, new, {})["diff"]
        return diffs

    def write(self, name, text):
        return put_content(self.run, os.path.join(self.path, name + ".conf"), text.encode(), {})["diff"]


def do_modprobe(run, args):
    name, state, params = args["name"], args["state"], args["params"]
    result = {"changed": False, "name": name, "params": params, "state": state, "diff": []}
    loaded = _loaded(name)
    if loaded != (state == "present") and run.is_new_state("modprobe " + name, state):
        words = [name, *shlex.split(params)] if state == "present" else ["-r", name]
        dry = ["-n"] if run.check else []
        code, out, err = execute([tool("modprobe"), *dry, *words], env=plain_environment())
        if code != 0:
            said = (err or out).strip() or "modprobe failed (%d)" % code
            raise StepFailed(said, rc=code, stdout=out, stderr=err)
        if run.check or _loaded(name) == (state == "present"):
            result["changed"] = True
            result["diff"] = state_diff(run, name, ["loaded" if state == "present" else "unloaded"])
    if args["persistent"] != "disabled":
        diffs = _persist(run, args)
        result["changed"] = result["changed"] or diffs is not None
        result["diff"] = result["diff"] + (diffs or [])
    return result


def _persist(run, args):
    """The diffs; None where nothing is to do."""
    name, wanted = args["name"], args["params"].split()
    quoted = re.escape(name)
    loads = Folder(run, LOADS, r" *%s *(?:[#;].*)?\Z" % quoted)
    options = Folder(run, OPTIONS, r"options %s (\w+=\S+) *(?:[#;].*)?\Z" % quoted)
    diffs, changed = [], False
    given = {match.group(1) for match in options.found()}
    if args["persistent"] == "present":
        if not loads.found():
            changed, diffs = True, diffs + loads.write(name, name + "\n")
        if given != set(wanted):
            changed, diffs = True, diffs + options.disable()
            text = "".join("options %s %s\n" % (name, one) for one in wanted)
            diffs += options.write(name, text or "\n")
    else:
        if loads.found():
            changed, diffs = True, diffs + loads.disable()
        if given:
            changed, diffs = True, diffs + options.disable()
    return diffs if changed else None
