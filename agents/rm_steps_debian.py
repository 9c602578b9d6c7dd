"""`alternatives`, `debconf`: choices that Debian's tools keep."""

import os
import re

from rm_steps_base import StepFailed, asks, must, plain_environment, state_diff, tool


class Alternatives:
    """What `update-alternatives --display NAME` says."""

    def __init__(self, name):
        self.program = tool("update-alternatives")
        code, out = asks([self.program, "--display", name])
        out = out if code == 0 else ""

        def found(pattern):
            match = re.search(pattern, out, re.MULTILINE)
            return match.group(1) if match else None

        self.mode = found(r"\s-\s(?:status\sis\s)?(\w*)(?:\smode|\.)$")
        self.current = found(r"^\s*link currently points to (.*)$")
        self.link = found(r"^\s*link \w+ is (.*)$")
        links = dict(re.findall(r"^\s*(?:slave|follower) (\S+) is (.*)$", out, re.MULTILINE))
        self.known = {}
        rows = r"^(/.*)\s-\s(?:family\s(\S+)\s)?priority\s(\d+)((?:\s+(?:slave|follower).*)*)"
        for path, family, priority, rest in re.findall(rows, out, re.MULTILINE):
            inner = re.findall(r"^\s+(?:slave|follower) (.*): (.*)$", rest, re.MULTILINE)
            subcommands = [{"name": n, "path": p, "link": links.get(n)} for n, p in inner if p != "(null)"]
            self.known[path] = {"priority": int(priority), "family": family, "subcommands": subcommands}


def do_alternatives(run, args):
    seen, name, path, state = Alternatives(args["name"]), args["name"], args["path"], args["state"]
    family, commands, told = args["family"], [], []
    planned = run.planned["states"].setdefault("alternatives " + name, {}) if run.check else {}
    there = path in seen.known or bool(planned.get(path))
    if state == "absent":
        if there and planned.get(path) is not False:
            commands.append(["--remove", name, path])
            told.append("Remove alternative '%s' from '%s'." % (path, name))
            planned[path] = False
    else:
        if path is not None and not planned.get(path) and _differs(args, seen.known.get(path)):
            commands.append(_install(args, seen))
            told.append("Install alternative '%s' for '%s'." % (path, name))
            planned[path] = True
        current = planned.get("current", seen.current)
        same = path is not None and current == path
        same = same or (current in seen.known and seen.known[current]["family"] == family)
        if state == "selected" and not same:
            wanted = path if path is not None else family
            commands.append(["--set", name, wanted])
            told.append("Set alternative '%s' for '%s'." % (wanted, name))
            planned["current"] = wanted
        if state == "auto" and planned.get("mode", seen.mode) == "manual":
            commands.append(["--auto", name])
            told.append("Set alternative to auto for '%s'." % name)
            planned["mode"] = "auto"
    for words in commands if not run.check else ():
        must([seen.program, *words])
    return {"changed": bool(commands), "msg": " ".join(told), "diff": state_diff(run, "alternatives", told)}


def _differs(args, known):
    """Is the path to be installed, or installed anew?"""
    if known is None:
        return True
    if args["priority"] is not None and known["priority"] != args["priority"]:
        return True
    wanted = args["subcommands"]
    return wanted is not None and not (
        all(one in wanted for one in known["subcommands"])
        and all(one in known["subcommands"] for one in wanted)
    )


def _install(args, seen):
    path, link = args["path"], args["link"] or seen.link
    if not os.path.exists(path):
        raise StepFailed("Specified path %s does not exist" % path)
    if not link:
        raise StepFailed("Needed to install the alternative, but unable to do so as we are missing the link")
    known = seen.known.get(path, {})
    priority = args["priority"] if args["priority"] is not None else known.get("priority", 50)
    words = ["--install", link, args["name"], path, str(priority)]
    words += ["--family", args["family"]] if args["family"] is not None else []
    for one in args["subcommands"] or ():
        words += ["--slave", one["link"], one["name"], one["path"]]
    return words


# -- debconf ------------------------------------------------------------------------------------


def _selections(package):
    found = {}
    for line in must([tool("debconf-show"), package]).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found[key.strip("*").strip()] = value.strip()
    return found


def _password(package, question):
    for line in must([tool("debconf-get-selections")]).splitlines():
        fields = line.split("\t")
        if line.startswith(package) and fields[1:3] == [question, "password"]:
            return fields[3] if len(fields) > 3 else ""
    return ""


def do_debconf(run, args):
    package, question, kind, value = args["name"], args["question"], args["vtype"], args["value"]
    before = _selections(package)
    if question is None:
        return {"changed": False, "msg": "", "current": before}
    several = isinstance(value, list)
    old = before.get(question)
    if old is not None and kind == "password":
        old = _password(package, question)
    if old is not None:
        old = old.lower() if kind == "boolean" else old
        old = sorted(one.strip() for one in old.split(",")) if several else old
    text = ", ".join(value) if several else value
    key = "debconf %s %s" % (package, question)
    if old == value or not run.is_new_state(key, text):
        return {"changed": False, "msg": "", "current": before}
    if not run.check:
        flags = ["-u"] if args["unseen"] else []
        line = "%s %s %s %s" % (package, question, kind, text)
        must([tool("debconf-set-selections"), *flags], stdin=line + "\n", env=plain_environment())
    shown = "(hidden)" if kind == "password" else text
    diff = state_diff(run, package, ["%s: %s" % (question, shown)])
    hidden = {question: before.get(question, "")}
    return {"changed": True, "msg": "", "current": {question: text}, "previous": hidden, "diff": diff}
