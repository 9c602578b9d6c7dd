"""Options of the program ssh, as inventories give them (`ansible_ssh_common_args`): which are harmless."""

from __future__ import annotations

import shlex

# what neither runs a program here nor reads a file of one's choice
_PLAIN = frozenset(
    {
        "addressfamily", "batchmode", "bindaddress", "bindinterface", "checkhostip", "ciphers",
        "clearallforwardings", "compression", "connectionattempts", "connecttimeout", "controlmaster",
        "controlpath", "controlpersist", "forwardagent", "forwardx11", "gssapiauthentication",
        "gssapidelegatecredentials", "hashknownhosts", "hostkeyalgorithms", "hostname", "hostkeyalias",
        "identitiesonly", "ipqos", "kbdinteractiveauthentication", "kexalgorithms", "loglevel", "macs",
        "numberofpasswordprompts", "passwordauthentication", "port", "preferredauthentications", "proxyjump",
        "pubkeyacceptedalgorithms", "pubkeyauthentication", "rekeylimit", "serveralivecountmax",
        "serveraliveinterval", "stricthostkeychecking", "tcpkeepalive", "updatehostkeys", "user",
        "userknownhostsfile", "globalknownhostsfile", "visualhostkey",
    }
)  # fmt: skip
_FLAGS = frozenset("46AaCkqTtvXxY")
_WITH_VALUE = {"J": "proxyjump", "l": "user", "p": "port", "c": "ciphers", "m": "macs", "o": ""}


def words_of(text: str) -> list[str]:
    """The words of such a text; raises ValueError where a quotation mark is not closed."""
    return shlex.split(text)


def outside_program(text: str) -> str:
    """The first option of the text that could run a program on this machine, name a file of it, or that
    nobody knows; "" where there is none. A host to jump by is a name, never an option."""
    try:
        words = words_of(text)
    except ValueError as problem:
        return str(problem)
    left = iter(words)
    for word in left:
        if word[:1] != "-" or len(word) < 2:
            return word or "''"  # an empty word is the host for ssh, which then goes on with its options
        if set(word[1:]) <= _FLAGS:
            continue
        option = _WITH_VALUE.get(word[1])
        if option is None:
            return word
        value = word[2:] or next(left, "")
        shown = f"{word} {value}" if not word[2:] else word
        if not option:
            option, _, value = value.replace("=", " ", 1).strip().partition(" ")
            option, value = option.lower(), value.strip(" =")
        if option not in _PLAIN or (option == "proxyjump" and not is_jump(value)):
            return shown
    return ""


def is_jump(text: str) -> bool:
    """Is this `[user@]host[:port]`, or several with commas, and nothing that ssh reads as an option?"""
    hops = [hop.removeprefix("ssh://").rpartition("@") for hop in text.split(",")]
    return all(
        place.strip("[]") and not place.lstrip("[").startswith("-") and not user.startswith("-")
        and place.isprintable()
        and not set(place + user) & set(" \t\"'`$;|&<>()\\%")
        for user, _, place in hops
    )  # fmt: skip
