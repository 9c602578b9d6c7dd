"""Which program a shell did not find, by what it wrote: it ends with exit code 127 then."""

from __future__ import annotations

import re
from collections.abc import Iterable

NOT_FOUND = 127
_SAID = (
    re.compile(r"(?:^|: )line \d+: (?:exec: )?(.+): (?:command not found|not found)$"),  # bash
    re.compile(r"command not found: (.+)$"),  # zsh
    re.compile(r": (?:\d+: )?(?:exec: )?([^:]+): not found$"),  # dash, busybox, ksh
    re.compile(r": \d+: (?:exec: )?([^:/]+): Permission denied$"),  # dash: a folder of PATH cannot be read
    re.compile(r"(?:^|/)env: ['‘](.+)['’]: No such file or directory$"),
    re.compile(r"^([^ :]+): Command not found\.$"),  # csh
)


def missing_program(lines: Iterable[str]) -> str:
    """The program that the last such line names; "" without one."""
    found = ""
    for line in lines:
        for said in _SAID:
            if (match := said.search(line.rstrip())) is not None:
                found = match[1]
                break
    return found
