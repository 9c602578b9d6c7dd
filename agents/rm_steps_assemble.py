"""`assemble`: a file is made of the files of a directory."""

import codecs
import os
import re

from rm_steps_aside import followed
from rm_steps_base import StepFailed, absolute, digest, unpacked
from rm_steps_write import put_content


def _parts(run, args):
    """The contents, by name."""
    if "files" in args:
        return {name: unpacked(text) for name, text in args["files"].items()}
    source = absolute(args["src"])
    kind = run.kind(source)
    if kind == "absent":
        raise StepFailed("Source (%s) does not exist" % source)
    if not run.is_directory(source):
        raise StepFailed("Source (%s) is not a directory" % source)
    planned = {p for p, k in run.planned["paths"].items() if os.path.dirname(p) == source}
    there = {os.path.join(source, name) for name in os.listdir(source)} if os.path.isdir(source) else set()
    files = [path for path in there | planned if run.kind(path) in ("file", "link")]
    return {os.path.basename(path): run.read(path) for path in files if not os.path.isdir(path)}


def do_assemble(run, args):
    parts, regexp = _parts(run, args), re.compile(args["regexp"]) if args["regexp"] else None
    mark = codecs.escape_decode(args["delimiter"].encode())[0] if args["delimiter"] else b""
    if mark and not mark.endswith(b"\n"):
        mark += b"\n"
    chosen = [name for name in sorted(parts) if not regexp or regexp.search(name)]
    data, last = b"", None
    for name in chosen:
        if args["ignore_hidden"] and name.startswith("."):
            continue
        if last is not None:
            data += b"" if last.endswith(b"\n") else b"\n"
            data += mark
        last = parts[name] or b""
        data += last
    dest = absolute(args["dest"])
    if args["follow"] and run.kind(dest) == "link":
        dest = followed(dest)
    result = put_content(run, dest, data, args)
    return dict(result, msg="OK", src=args["src"], checksum=digest(data))
