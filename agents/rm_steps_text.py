"""`lineinfile`, `blockinfile` and `replace`: parts of text files."""

import os
import re

from rm_steps_base import StepFailed, absolute
from rm_steps_write import fix_attributes, put_content


def _opened(run, args):
    """(path, old content): links are followed, None when there is no such file."""
    path = absolute(args["path"])
    if run.kind(path) == "link":
        path = os.path.realpath(path)
    if run.kind(path) == "directory":
        raise StepFailed("%s is a directory." % path)
    return path, run.read(path)


def make_way(run, path):
    """`create` makes the directories above the file, too."""
    from rm_steps_file import do_file

    above = os.path.dirname(path)
    if run.kind(above) == "absent":
        do_file(run, {"path": above, "state": "directory"})


def do_lineinfile(run, args):
    path, old = _opened(run, args)
    if old is None:
        if args["state"] == "absent":
            return {"changed": False, "msg": "file not present", "found": 0}
        if not args["create"]:
            raise StepFailed("%s does not exist; 'create' would make it." % path, rc=257)
        make_way(run, path)
    lines = lines_of((old or b"").decode("utf-8", "surrogateescape"))
    regexp = re.compile(args["regexp"]) if args["regexp"] is not None else None
    search = args["search_string"]

    def matches(text):
        if regexp is not None:
            return regexp.search(text)
        if search is not None:
            return search in text
        return args["line"] == text.rstrip("\r\n") if args["state"] == "absent" else None

    if args["state"] == "absent":
        kept = [one for one in lines if not matches(one.rstrip("\r\n"))]
        found, lines = len(lines) - len(kept), kept
        said = "%d line(s) removed" % found if found else ""
    else:
        found = None
        lines, said = _with_line(args, lines, matches)
    data = "".join(lines).encode("utf-8", "surrogateescape")
    return _finish(run, path, data, args, said, found)


def _finish(run, path, data, args, said, found=None):
    result = put_content(run, path, data, args)
    result["msg"] = said
    if result["changed"] and not said:
        result["msg"] = "ownership, perms or SE linux context changed"
    result["backup"] = result.get("backup_file", "")
    if found is not None:
        result["found"] = found
    return result


def lines_of(text):
    """Lines with their ends; only a line feed ends one."""
    lines = text.split("\n")
    return [one + "\n" for one in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _with_line(args, lines, matches):
    line, first = args["line"].rstrip("\r\n"), args["firstmatch"]
    hits = [i for i, one in enumerate(lines) if matches(one.rstrip("\r\n"))]
    new, at = line, None
    if hits:
        at = hits[0] if first else hits[-1]
        match = matches(lines[at].rstrip("\r\n"))
        new = match.expand(line) if args["backrefs"] and hasattr(match, "expand") else line
    after, before = args["insertafter"], args["insertbefore"]
    pattern = before or (after if after != "EOF" else None)
    pattern = None if pattern == "BOF" else pattern
    place = None
    for i, one in enumerate([] if hits else lines):
        if one.rstrip("\r\n") == line:
            at = i
        elif pattern and re.search(pattern, one.rstrip("\r\n")):
            place = i if before else i + 1
            if first:
                break
    if at is not None:
        if lines[at] == new + "\n":
            return lines, ""
        return [*lines[:at], new + "\n", *lines[at + 1 :]], "line replaced"
    if args["backrefs"]:
        return lines, ""
    if "BOF" in (after, before):
        return [line + "\n", *lines], "line added"
    at = len(lines) if place is None else place
    if place is not None and after and at < len(lines) and lines[at].rstrip("\r\n") == line:
        return lines, ""
    if at and not lines[at - 1].endswith("\n"):
        lines = [*lines[: at - 1], lines[at - 1] + "\n", *lines[at:]]
    return [*lines[:at], line + "\n", *lines[at:]], "line added"


def do_blockinfile(run, args):
    path, old = _opened(run, args)
    block = args["block"] or ""
    present = args["state"] == "present" and block != ""
    if old is None:
        if not args["create"]:
            raise StepFailed("%s does not exist; 'create' would make it." % path, rc=257)
        if not present and args["state"] == "absent":
            return {"changed": False, "msg": "File %s not present" % path}
        make_way(run, path)
    lines = lines_of((old or b"").decode("utf-8", "surrogateescape"))
    begin, end = (
        args["marker"].replace("{mark}", args[name]) + "\n" for name in ("marker_begin", "marker_end")
    )
    new = []
    if present:
        text = block if block.endswith("\n") else block + "\n"
        new = [begin, *lines_of(text), end]
    starts = [i for i, one in enumerate(lines) if one.rstrip("\r\n") == begin[:-1]]
    ends = [i for i, one in enumerate(lines) if one.rstrip("\r\n") == end[:-1]]
    if starts and ends:  # the last pair, whichever way round, as Ansible replaces it
        low, high = sorted((starts[-1], ends[-1]))
        lines = lines[:low] + lines[high + 1 :]
        at = low
    else:
        at = _block_place(args, lines)
    if new:
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        if args["prepend_newline"] and at and lines[at - 1].strip():
            new.insert(0, "\n")
        if args["append_newline"] and at < len(lines) and lines[at].strip():
            new.append("\n")
    data = "".join([*lines[:at], *new, *lines[at:]]).encode("utf-8", "surrogateescape")
    unchanged = old is not None and old == data
    done = "Block inserted" if new else "Block removed"
    said = "" if unchanged else done if old is not None else "File created"
    return _finish(run, path, data, args, said)


def _block_place(args, lines):
    after, before = args["insertafter"], args["insertbefore"]
    if before is None and after is None:
        after = "EOF"
    if "BOF" in (after, before):
        return 0
    pattern = before if before is not None else after
    if pattern != "EOF":
        found = re.compile(pattern)
        places = [i for i, one in enumerate(lines) if found.search(one.rstrip("\r\n"))]
        if places:
            return places[-1] + (0 if before is not None else 1)
    return len(lines)


def do_replace(run, args):
    path, old = _opened(run, args)
    if old is None:
        raise StepFailed("%s does not exist." % path, rc=257)
    try:
        text = old.decode(args["encoding"])
    except (UnicodeDecodeError, LookupError):
        raise StepFailed("%s is not text in the encoding %s." % (path, args["encoding"])) from None
    low, high = 0, len(text)
    after, before = args["after"], args["before"]
    if after or before:
        pattern = r"%s(?P<part>.*?)%s" % (after, before) if after and before else (
            r"%s(?P<part>.*)" % after if after else r"(?P<part>.*)%s" % before
        )  # fmt: skip
        match = re.search(pattern, text, re.DOTALL)
        if match is None:
            said = "Pattern for before/after params did not match the given file: %s" % pattern
            return {"changed": False, "msg": said}
        low, high = match.span("part")
    part, count = re.subn(args["regexp"], args["replace"], text[low:high], count=0, flags=re.MULTILINE)
    if not count or part == text[low:high]:
        changes = []
        fix_attributes(run, path, args, changes)
        return {"changed": bool(changes), "msg": "", "rc": 0}
    data = (text[:low] + part + text[high:]).encode(args["encoding"])
    return dict(_finish(run, path, data, args, "%d replacements made" % count), rc=0)
