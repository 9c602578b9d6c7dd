"""`timezone`: by timedatectl, or where that cannot be asked by /etc/localtime and /etc/timezone."""

import os
import re

from rm_steps_base import StepFailed, execute, find_tool, must, plain_environment, state_diff, tool
from rm_steps_write import put_content

ZONES, LOCAL, NAME = "/usr/share/zoneinfo", "/etc/localtime", "/etc/timezone"


def _by_systemd():
    return bool(find_tool("timedatectl")) and execute([tool("timedatectl")], env=plain_environment())[0] == 0


def _now(systemd):
    if systemd:
        out = must([tool("timedatectl"), "status"])
        zone = re.search(r"^\s*Time ?zone\s*:\s*(\S+)", out, re.MULTILINE)
        clock = re.search(r"^\s*RTC in local TZ\s*:\s*(\S+)", out, re.MULTILINE)
        local = clock is not None and clock.group(1) == "yes"
        return {"name": zone.group(1) if zone else "", "hwclock": "local" if local else "UTC"}
    target = os.path.realpath(LOCAL)
    return {"name": target[len(ZONES) + 1 :] if target.startswith(ZONES + "/") else ""}


def do_timezone(run, args):
    systemd = _by_systemd()
    now, told, diff = _now(systemd), [], []
    if args["name"] is not None and not os.path.isfile("%s/%s" % (ZONES, args["name"])):
        raise StepFailed('given timezone "%s" is not available' % args["name"])
    for key, verb in (("name", "set-timezone"), ("hwclock", "set-local-rtc")):
        value = args[key]
        if value is None:
            continue
        if not systemd and key == "hwclock":
            raise StepFailed("'hwclock' needs timedatectl, which does not run on this host.")
        if now[key] == value or not run.is_new_state("timezone " + key, value):
            continue
        diff += state_diff(run, "timezone", ["%s: %s -> %s" % (key, now[key], value)])
        word = {"local": "yes", "UTC": "no"}[value] if key == "hwclock" else value
        told.append("executed `timedatectl %s %s`" % (verb, word) if systemd else "linked %s" % LOCAL)
        if run.check:
            continue
        if systemd:
            must([tool("timedatectl"), verb, word])
        else:
            aside = LOCAL + ".rm-new"
            if os.path.lexists(aside):
                os.unlink(aside)
            os.symlink("%s/%s" % (ZONES, value), aside)
            os.rename(aside, LOCAL)
            if os.path.exists(NAME):
                put_content(run, NAME, (value + "\n").encode(), {})
    return {"changed": bool(told), "msg": "\n".join(told), "diff": diff}
