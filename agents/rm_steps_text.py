"""`lineinfile`, `blockinfile` and `replace`: parts of text files."""

import io
import os
import re

from rm_steps_aside import followed
from rm_steps_base import StepFailed, absolute
from rm_steps_write import fix_attributes, put_content


def _opened(run, args):
    """(path, old content): links are followed, None when there is no such file."""
    path = absolute(args["path"])
    if run.kind(path) == "link":
        path = followed(path)
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
    rows = io.BytesIO(old or b"").readlines()
    if args["state"] == "absent":
        matches = _matcher(args) or (lambda row: row.rstrip(b"\r\n") == _bytes(args["line"]))
        kept = [row for row in rows if not matches(row)]
        found, rows = len(rows) - len(kept), kept
        said = "%d line(s) removed" % found if found else ""
    else:
        found = None
        rows, said = _with_line(args, rows)
    return _finish(run, path, b"".join(rows), args, said, found)


def _bytes(text):
    return text.encode("utf-8", "surrogateescape")


def _matcher(args):
    """What of a whole row, with its end, `regexp` or `search_string` finds; None without either. Patterns are
    of bytes, as Ansible's are."""
    if args["regexp"] is not None:
        return re.compile(_bytes(args["regexp"])).search
    if args["search_string"] is not None:
        return lambda row: _bytes(args["search_string"]) in row
    return None


def _finish(run, path, data, args, said, found=None):
    result = put_content(run, path, data, args)
    result["msg"] = said
    if result["changed"] and not said:
        result["msg"] = "ownership, perms or SE linux context changed"
    result["backup"] = result.get("backup_file", "")
    if found is not None:
        result["found"] = found
    return result


def _with_line(args, rows):
    line, first = _bytes(args["line"]), args["firstmatch"]
    whole = line if line.endswith(b"\n") else line + b"\n"
    matches = _matcher(args)
    hits = [i for i, row in enumerate(rows) if matches and matches(row)]
    at = None
    if hits:
        at = hits[0] if first else hits[-1]
        if args["backrefs"]:
            whole = matches(rows[at]).expand(line)
            whole += b"" if whole.endswith(b"\n") else b"\n"
    after, before = args["insertafter"], args["insertbefore"]
    pattern = after if after not in (None, "BOF", "EOF") else before if before not in (None, "BOF") else None
    place = None
    for i, row in enumerate([] if hits else rows):
        if row.rstrip(b"\r\n") == line:
            at = i
        elif pattern is not None and re.search(_bytes(pattern), row):
            place = i + 1 if after else i
            if first:
                break
    if at is not None:
        if rows[at] == whole:
            return rows, ""
        return [*rows[:at], whole, *rows[at + 1 :]], "line replaced"
    if args["backrefs"]:
        return rows, ""
    if "BOF" in (after, before):
        return [line + b"\n", *rows], "line added"
    at = len(rows) if place is None else place
    if place is not None and after and at < len(rows) and rows[at].rstrip(b"\r\n") == line:
        return rows, ""
    if at and not rows[at - 1].endswith(b"\n"):  # Ansible adds the line to that one after `insertafter`
        rows = [*rows[: at - 1], rows[at - 1] + b"\n", *rows[at:]]
    return [*rows[:at], line + b"\n", *rows[at:]], "line added"


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
    rows = (old or b"").splitlines(True)
    begin, end = (
        _bytes(args["marker"].replace("{mark}", args[name])) + b"\n"
        for name in ("marker_begin", "marker_end")
    )
    new = []
    if present:
        text = block if block.endswith("\n") else block + "\n"
        new = [begin, *_bytes(text).splitlines(True), end]
    starts, ends = ([i for i, row in enumerate(rows) if row == marker] for marker in (begin, end))
    if starts and ends:  # the last pair, whichever way round, as Ansible replaces it
        at, last = sorted((starts[-1], ends[-1]))
        del rows[at : last + 1]
    else:
        at = _block_place(args, rows, old or b"")
    if at and not rows[at - 1].endswith(b"\n"):
        rows[at - 1] += b"\n"
    if args["state"] == "present" and args["prepend_newline"] and at and rows[at - 1] != b"\n":
        rows.insert(at, b"\n")
        at += 1
    rest = rows[at:]
    if args["state"] == "present" and args["append_newline"] and rest and rest[0] != b"\n":
        rest.insert(0, b"\n")
    data = b"".join([*rows[:at], *new, *rest])
    unchanged = old is not None and old == data
    done = "Block inserted" if new else "Block removed"
    said = "" if unchanged else done if old is not None else "File created"
    return _finish(run, path, data, args, said)


def _block_place(args, rows, whole):
    """The number of the row before which a new block goes. A pattern with `(?m)` is sought in the `whole`
    content, another one in rows with their ends, of which the last counts."""
    after, before = args["insertafter"], args["insertbefore"]
    if before == "BOF" and after is None:
        return 0
    pattern = after if after is not None else before
    if pattern is None or after == "EOF":
        return len(rows)
    sought = re.compile(_bytes(pattern))
    if sought.flags & re.MULTILINE:
        found = sought.search(whole)
        if found is None:
            return len(rows)
        if after:  # a match that takes the last line's end is followed by no line
            return min(len(rows), whole.count(b"\n", 0, found.end()) + 1)
        return whole.count(b"\n", 0, found.start())
    places = [i for i, row in enumerate(rows) if sought.search(row)]
    if not places:
        return len(rows)
    return places[-1] + (1 if after is not None else 0)


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
