"""The text of --mail-type: of which events of a job somebody is mailed.

Source: sbatch(1) of Slurm 22.05, --mail-type and --mail-user.
"""

from __future__ import annotations

import re

from rm.errors import UsageError
from rm.hints import did_you_mean

BEGIN, END, FAIL, REQUEUE, INVALID = "BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND"
LIMIT, ARRAY_TASKS = "TIME_LIMIT", "ARRAY_TASKS"
SHARES = (50, 80, 90)  # of the time limit, in percent
EVENTS = (BEGIN, END, FAIL, REQUEUE, INVALID, LIMIT, *(f"{LIMIT}_{share}" for share in SHARES), ARRAY_TASKS)
_ALL = (BEGIN, END, FAIL, REQUEUE, INVALID)
TEXT_MAX = 1_000  # characters
NOTHING = frozenset({"NONE", "STAGE_OUT"})  # no burst buffers: nothing is ever staged out
# Atoms of RFC 5322, section 3.2.3, with RFC 6532's letters: mail programs read other forms as comments,
# groups or several addresses. No "?": with it one could be an encoded word (RFC 2047) of such a form. Several
# dots in a row and one before the @ are no RFC's: mobile phones have such addresses, and mail programs take
# them.
_ATOM = r"[\w!#$%&'*+/=^`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_LOCAL, _DOMAIN = rf"{_ATOM}(?:\.+{_ATOM})*", rf"{_LABEL}(?:\.{_LABEL})*"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}(?:@|\Z)){_LOCAL}(?:\.*@(?=.{{1,253}}\Z){_DOMAIN}\.?)?\Z")


def parse(text: str) -> str:
    """The events in their own order, with commas; "" for none.

    Raises:
        UsageError: a word is no event, or there are very many.
    """
    if len(text) > TEXT_MAX:
        raise UsageError(f"A list of events has {len(text)} characters, and may have {TEXT_MAX}.")
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    chosen: set[str] = set()
    for word in words:
        if word not in (*EVENTS, "ALL", *NOTHING):
            known = (*EVENTS, "ALL", "NONE")
            raise UsageError(
                f"'{word[:80]}' is no event to be mailed of.",
                did_you_mean(word, known) or f"Choose from {', '.join(known)}.",
            )
        chosen.update(_ALL if word == "ALL" else () if word in NOTHING else (word,))
    return "" if "NONE" in words else ",".join(word for word in EVENTS if word in chosen)


def is_address(text: str) -> bool:
    """Is it an address, or a user of the mail server's?"""
    return _ADDRESS.match(text) is not None


def mailbox(address: str) -> str:
    """As mail programs take it: without a dot at the end of its domain (RFC 5321, section 4.1.2)."""
    return address.removesuffix(".") if "@" in address else address
