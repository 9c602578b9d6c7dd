"""Whether a text matches a regular expression, found out in a process of its own: some expressions take
hours for some texts, and Python's `re` keeps every other thread waiting meanwhile, the leader's too."""

from __future__ import annotations

import json
import subprocess
import sys

WITHIN_S = 5.0
PROGRAM = "import json, re, sys; sys.exit(0 if re.fullmatch(*json.load(sys.stdin)) else 1)"


def fits(pattern: str, text: str) -> bool:
    """The whole text; one that takes longer than WITHIN_S does not. The text may be a secret: it goes to
    standard input."""
    asked = json.dumps([pattern, text]).encode()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM], input=asked, capture_output=True, timeout=WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
