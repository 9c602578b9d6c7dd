"""Whether a text matches a regular expression, found out in a process of its own: some expressions take
hours for some texts, and Python's `re` keeps every other thread waiting meanwhile, the leader's too."""

from __future__ import annotations

import json
import subprocess
import sys
import time

WITHIN_S = 5.0
PROGRAM = "import json, re, sys; sys.exit(0 if re.fullmatch(*json.load(sys.stdin)) else 1)"


class Fits:
    """Whether a pattern matches the whole of a text. All that is asked may take WITHIN_S together; what takes
    longer does not match, or cannot be told. The text may be a secret: it goes to standard input."""

    def __init__(self) -> None:
        self._left_s = WITHIN_S

    def __call__(self, pattern: str, text: str) -> bool:
        if self._left_s <= 0:
            return False
        asked = json.dumps([pattern, text]).encode()
        began_s = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", PROGRAM],
                input=asked,
                capture_output=True,
                timeout=self._left_s,
            )
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._left_s -= time.monotonic() - began_s
        return done.returncode == 0
