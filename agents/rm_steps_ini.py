"""`ini_file`, `yum_repository`: options in files of sections."""

import os
import re

from rm_steps_aside import followed
from rm_steps_base import StepFailed, absolute, content_diff
from rm_steps_text import make_way
from rm_steps_write import fix_attributes, put_content

NO_SECTION = "\0"  # what stands above the first header


class Option:
    """How the lines of one option look; `inactive` ones are commented out."""

    def __init__(self, name, args):
        self.name, self.args = name, args
        tail = re.escape(name or "") + r"[ \t]*(?:=|$)[ \t]*(.*)"
        self._any = re.compile(r"[ \t]*([#;]?)[ \t]*" + tail)
        self._active = re.compile(r"()[ \t]*" + tail)

    def match(self, line, active=False):
        """Of a line of this option: its comment sign and its value."""
        return (self._active if active else self._any).match(line)

    def line(self, value):
        if value is None:
            return self.name + "\n"
        return "%s%s%s\n" % (self.name, "=" if self.args["no_extra_spaces"] else " = ", value)

    def same(self, old, new):
        """Do two lines say the same? Only with `ignore_spaces` may they be written differently."""
        if self.args["ignore_spaces"]:
            before, after = self.match(old), self.match(new)
            if not before.group(1):
                return before.group(2) == after.group(2)
        return old == new


def _chosen(lines, section, conditions, args):
    """Where the section's lines are, header first; None when there is no such section."""
    header, start = re.compile(r"\[\s*%s\s*\]" % re.escape(section.strip())), None
    for at in range(len(lines) + 1):
        ends = at == len(lines) or lines[at].startswith("[")
        if ends and start is not None:
            if _holds(lines[start:at], conditions, args):
                return start, at
            start = None
        if at < len(lines) and header.match(lines[at]):
            start = at
    return None


def _holds(lines, conditions, args):
    for one in conditions:
        option = Option(one["option"], args)
        found = [option.match(line) for line in lines]
        if not any(match and (not one["values"] or match.group(2) in one["values"]) for match in found):
            return False
    return True


def _set(lines, option, values, args, said):
    """The section's lines with these values of the option; what was done comes to `said`."""
    values, done, bare = list(values), set(), False
    active = not args["modify_inactive_option"]

    def put(at, value):
        new = option.line(value)
        if not option.same(lines[at], new):
            lines[at] = new
            said.append("option changed")
        done.add(at)

    for at, line in enumerate(lines):
        match = option.match(line, active)
        if match is None:
            continue
        value = match.group(2)
        if value in values:
            values.remove(value)
            bare = bare or (not value and args["allow_no_value"])
            put(at, None if not value and args["allow_no_value"] else value)
        elif not values and args["allow_no_value"]:
            bare = True
            put(at, None)
            break
    if args["exclusive"] and not args["allow_no_value"]:
        others = [at for at, line in enumerate(lines) if at not in done and option.match(line, active)]
        for at in others:
            if values:
                put(at, values.pop(0))
        surplus = [at for at in others if at not in done and at > 0]
        if surplus:
            said.append("option changed")
        lines = [line for at, line in enumerate(lines) if at not in surplus]
    missing = values or ([None] if args["allow_no_value"] and not bare else [])
    if missing:
        at = len(lines)
        while at > 1 and re.match(r"[ \t]*([#;].*)?$", lines[at - 1]):
            at -= 1
        lines[at:at] = [option.line(value) for value in missing]
        said.append("option added")
    return lines


def _dropped(lines, option, args):
    """The section's lines without the option, or without some of its values."""

    def goes(line):
        match = option.match(line, active=True)
        return match and (args["exclusive"] or match.group(2) in args["values"])

    return [line for line in lines if not goes(line)]


def _edited(lines, args, said):
    section, name, values = args["section"] or "", args["option"], args["values"]
    option = Option(name, args)
    lines = ["[%s]" % NO_SECTION, *lines]
    place = _chosen(lines, section or NO_SECTION, args["section_has_values"], args)
    if place is not None:
        start, end = place
        inside = lines[start:end]
        if args["state"] == "present":
            inside = _set(inside, option, values, args, said) if name else inside
        elif name:
            inside = _dropped(inside, option, args)
            if len(inside) != end - start:
                said.append("option changed")
        else:
            inside = []
            said.append("section removed")
        return [*lines[:start], *inside, *lines[end:]][1:]
    if args["state"] == "absent":
        return lines[1:]
    new, values = ["[%s]\n" % section], list(values)
    for one in args["section_has_values"]:
        if one["option"] != name:
            other = Option(one["option"], args)
            bare = [None] if args["allow_no_value"] and not one["values"] else []
            new += [other.line(value) for value in one["values"] or bare]
        elif not args["exclusive"]:
            values += [value for value in one["values"] if value not in values]
    mine = (values or ([None] if args["allow_no_value"] else [])) if name else []
    said.append("section and option added" if mine else "only section added")
    return lines[1:] + new + [option.line(value) for value in mine]


def _lines_of(text):
    """Lines with their ends; only a line feed ends one."""
    lines = text.split("\n")
    return [one + "\n" for one in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def do_ini_file(run, args):
    path = absolute(args["path"])
    if args["follow"] and run.kind(path) == "link":
        path = followed(path)
    old, said = run.read(path), []
    if old is None and not args["create"]:
        raise StepFailed("Destination %s does not exist!" % path, rc=257)
    text = (old or b"").decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
    lines = _lines_of(text)
    if not lines:
        lines = ["\n"]
    elif not lines[-1].endswith("\n"):
        lines[-1] += "\n"
        said.append("OK")
    new = _edited(lines, args, said)
    result = {"changed": bool(said), "path": path, "msg": said[-1] if said else "OK", "diff": []}
    if said:
        make_way(run, path)
        kept = put_content(run, path, "".join(new).encode("utf-8", "surrogateescape"), args)
        result.update({key: kept[key] for key in ("backup_file", "diff") if key in kept})
    elif old is not None:
        changes = []
        fix_attributes(run, path, args, changes)
        result["changed"] = bool(changes)
    return result


# -- yum_repository -----------------------------------------------------------------------------


def do_yum_repository(run, args):
    import configparser
    import io

    if not run.is_directory(args["reposdir"]):
        raise StepFailed("Repo directory '%s' does not exist." % args["reposdir"])
    path = os.path.join(absolute(args["reposdir"]), args["file"] + ".repo")
    old, name = run.read(path), args["name"]
    known = configparser.RawConfigParser()
    try:
        known.read_string((old or b"").decode())
    except (configparser.Error, UnicodeDecodeError) as problem:
        raise StepFailed("%s is not a file of repositories: %s" % (path, problem)) from None
    before = {section: dict(known.items(section)) for section in known.sections()}
    known.remove_section(name)
    if args["state"] == "present":
        known.add_section(name)
        for option, value in sorted(args["options"].items()):
            known.set(name, option, value)
    after = {section: dict(known.items(section)) for section in known.sections()}
    result = {"changed": False, "repo": name, "state": args["state"], "diff": []}
    if before != after:
        result["changed"] = True
        out = io.StringIO()
        known.write(out)
        data = out.getvalue().encode() if after else None
        result["diff"] = content_diff(run, path, old, data)
        if data is None:
            run.plan(path, "absent")
            if not run.check:
                os.remove(path)
        else:
            put_content(run, path, data, args)
    elif old is not None:
        changes = []
        fix_attributes(run, path, args, changes)
        result["changed"] = bool(changes)
    return result
