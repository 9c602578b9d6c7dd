"""Resource limits of a user's tasks: those of a login on this host (limits.conf), and above them rm.toml's.

/etc/security/limits.conf and limits.d are read here, by the rules of pam_limits(8), instead of through
libpam: a session of PAM runs all modules that a host has configured, which may ask a network service, make a
home directory or start a session manager, for each task and for as long as they like.
"""

import contextlib
import grp
import os
import re
import resource

CONFIG = "/etc/security/limits.conf"
FOLDER = "/etc/security/limits.d"
UNLIMITED = resource.RLIM_INFINITY
# name in limits.conf: (resource, unit)
ITEMS = {
    "core": ("CORE", 1024), "data": ("DATA", 1024), "fsize": ("FSIZE", 1024), "memlock": ("MEMLOCK", 1024),
    "nofile": ("NOFILE", 1), "rss": ("RSS", 1024), "stack": ("STACK", 1024), "cpu": ("CPU", 60),
    "nproc": ("NPROC", 1), "as": ("AS", 1024), "locks": ("LOCKS", 1), "sigpending": ("SIGPENDING", 1),
    "msgqueue": ("MSGQUEUE", 1), "nice": ("NICE", 1), "rtprio": ("RTPRIO", 1), "rttime": ("RTTIME", 1),
}  # fmt: skip


def resource_of(item):
    """The number of a resource by its name; None when this system has none of it."""
    return getattr(resource, "RLIMIT_" + ITEMS[item][0], None) if item in ITEMS else None


def lines(config=CONFIG, folder=FOLDER):
    """The words of each line of limits.conf and then limits.d that says something."""
    paths, found = [config], []
    with contextlib.suppress(OSError):
        paths += sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".conf"))
    for path in paths:
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            found += filter(None, (line.partition("#")[0].split() for line in file))
    return found


def of_login(lines, user, uid, gids):
    """{(item, "soft"|"hard"): value} that a login of the user gets, whose own group is the first of `gids`.

    A line for the user beats one for a group, that beats `*`; among equals the last one counts. Wildcards and
    groups do not bind root.
    """
    groups, found = None, {}
    for words in lines:
        domain = words[0]
        if domain.startswith("@") and groups is None:
            groups = set(_names(gids))
        weight = _weight(domain, user, uid, gids, groups)
        if not weight or (uid == 0 and domain != user):
            continue
        if words[1:] == ["-"]:  # no limits at all
            found.update({(item, kind): (weight, UNLIMITED) for item in ITEMS for kind in ("soft", "hard")})
            continue
        if len(words) < 4 or words[1] not in ("soft", "hard", "-"):
            continue
        item, value = words[2], _value(words[2], words[3])
        if value is None:
            continue
        for kind in ("soft", "hard") if words[1] == "-" else (words[1],):
            if weight >= found.get((item, kind), (0, 0))[0]:
                found[item, kind] = (weight, value)
    return {key: value for key, (_, value) in found.items()}


def _names(gids):
    for gid in gids:
        with contextlib.suppress(KeyError):
            yield grp.getgrgid(gid).gr_name


def _weight(domain, user, uid, gids, groups):
    """How closely a line's domain names the user; 0: not at all."""
    if domain == user:
        return 3
    if domain == "*":
        return 1
    ids = re.fullmatch(r"(@?)(\d*):(\d*)", domain)
    if ids and (ids.group(2) or ids.group(3)):
        own, weight = (gids, 2) if ids.group(1) else ([uid], 3)
        if not ids.group(2):  # `:max` is that one alone, and any of the user's groups
            return weight if int(ids.group(3)) in own else 0
        highest = int(ids.group(3)) if ids.group(3) else 1 << 32
        return weight if int(ids.group(2)) <= own[0] <= highest else 0  # of groups the first
    return 2 if domain.startswith("@") and domain[1:] in groups else 0


def _value(item, word):
    if item not in ITEMS:
        return None
    if word in ("unlimited", "infinity", "-1") and item != "nice":
        return UNLIMITED
    if not re.fullmatch(r"-?\d+", word):
        return None
    if item == "nice":
        return 20 - int(word)  # as the kernel counts: 1 (nice 19) to 40 (nice -20)
    return int(word) * ITEMS[item][1] if int(word) >= 0 else None


def impose(login, own):
    """Set them for this process: a login's, and over them `own`: [[item, soft, hard], …], -1 = unlimited.
    The names of those that could not be set."""
    wanted = {}
    for (item, kind), value in login.items():
        wanted.setdefault(item, {})[kind] = value
    for item, soft, hard in own:
        wanted[item] = {"soft": UNLIMITED if soft < 0 else soft, "hard": UNLIMITED if hard < 0 else hard}
    refused = []
    for item, kinds in wanted.items():
        number = resource_of(item)
        if number is None:
            continue
        soft, hard = resource.getrlimit(number)
        hard = kinds.get("hard", hard)
        soft = kinds.get("soft", soft)
        if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
            soft = hard
        if item == "nofile" and hard == UNLIMITED:  # as far as the kernel lets it be
            hard = _most_files()
            soft = hard if soft == UNLIMITED else min(soft, hard)
        try:
            resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):
            refused.append(item)
    return refused


def _most_files():
    with open("/proc/sys/fs/nr_open") as file:
        return int(file.read())
