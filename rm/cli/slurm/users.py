"""The accounts of this machine as Slurm's commands show and take them: ids for names, and names for ids."""

from __future__ import annotations

import pwd

from rm.units import number_of


def entry_of(user: str) -> pwd.struct_passwd | None:
    """None: this machine does not know the user."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def named_by(word: str) -> str | None:
    """The name of the user whom the word names, or whose id it is; None: there is none."""
    try:
        number = number_of(word)
        return (pwd.getpwnam(word) if number is None else pwd.getpwuid(number)).pw_name
    except (KeyError, OverflowError):
        return None


def group_of(user: str) -> str | None:
    """The name of the user's group, or its number where that has none; None: the user is not known."""
    entry = entry_of(user)
    if entry is None:
        return None
    import grp

    try:
        return grp.getgrgid(entry.pw_gid).gr_name
    except KeyError:
        return str(entry.pw_gid)
