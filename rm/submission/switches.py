"""--switches=COUNT[@TIME]: below how few leaves a job's hosts shall be, and how long it waits for that."""

from __future__ import annotations

import re
from typing import Any

from rm import units
from rm.errors import Refusal, UsageError

ENDLESS_US = 3650 * units.DAY_US
_FORM = re.compile(r"(\d{1,9})(?:@(.+))?\Z", re.S)


def switches(text: str) -> dict[str, Any]:
    """The fields of a specification. A time of 0 waits for nothing; UNLIMITED waits as long as it takes.

    Raises:
        UsageError: the text is no count, or what follows the @ is no time.
    """
    match = _FORM.match(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(
            f"--switches is '{text[:80]}'.",
            "Write COUNT[@TIME], such as 1@30:00; COUNT is 1 or more.",
            Refusal.BAD_NUMBER,
        )
    spec: dict[str, Any] = {"switches": int(match[1])}
    if match[2] is not None:
        try:
            wait_us = units.parse_time_limit_us(match[2])
        except UsageError as error:
            raise UsageError(f"--switches={text[:80]}: {error.what}", error.hint) from None
        endless_us = 0 if re.match(r"[0:-]+\Z", match[2]) else ENDLESS_US
        spec["switches_wait_us"] = endless_us if wait_us is None else wait_us
    return spec
