"""What dpkg says about packages: out of its own file where that is plain, else by dpkg-query, which reads all
of that file into its memory first and takes twenty times as long."""

import mmap
import os
import re

from rm_steps_base import asks, tool

STATUS = "/var/lib/dpkg/status"
UPDATES = "/var/lib/dpkg/updates"  # what an unfinished dpkg has yet to put into STATUS
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_FORM = "${db:Status-Status}\t${Version}\t${Package}\t${binary:Package}\t${Architecture}\n"


def packages(names):
    """[status, version, name, name as dpkg shows it, architecture] of each package that has one of the names,
    which may be patterns or end in an architecture."""
    found = _installed(names)
    if found is None:
        _, out = asks([tool("dpkg-query"), "-W", "-f", _FORM, *names])
        found = [line.split("\t") for line in out.splitlines()]
    return found


def _installed(names):
    """The same of plain names that are all installed; None where that is not so, or cannot be seen."""
    found = []
    try:
        if "DPKG_ADMINDIR" in os.environ or "DPKG_ROOT" in os.environ or os.listdir(UPDATES):
            return None
        with open(STATUS, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for name in names:
                stanzas = list(_stanzas(text, name)) if _NAME.fullmatch(name) else []
                if not any(one[0] == "installed" for one in stanzas):
                    return None
                found += stanzas
    except (OSError, ValueError):  # as where there is no dpkg, or its file is empty
        return None
    return found


def _stanzas(text, name):
    field, at = b"Package: %s\n" % name.encode(), 0
    while (at := text.find(field, at)) >= 0:
        if at == 0 or text[at - 1 : at] == b"\n":
            first, end = text.rfind(b"\n\n", 0, at) + 2, text.find(b"\n\n", at)
            first = first if first > 1 else 0
            fields = _fields(text[first : end if end >= 0 else len(text)].decode("utf-8", "replace"))
            architecture = fields.get("Architecture", "")
            status = fields.get("Status", "").split(" ")[-1]
            yield [status, fields.get("Version", ""), name, name, architecture]
        at += len(field)


def _fields(stanza):
    lines = (line.partition(": ") for line in stanza.split("\n") if not line.startswith(" "))
    return {name: value for name, _, value in lines}
