"""`wait_for`: until a port answers or is silent, a path is there or gone, a text appears, or time is over."""

import os
import re
import socket
import time

from rm_steps_base import StepFailed
from rm_steps_write import described


def _path_state(args, found):
    """(reached, groups): the state of a path, with `search_regex` of its content."""
    path, there = args["path"], args["state"] in ("present", "started")
    if not args.get("search_regex"):
        return os.path.exists(path) == there, {}
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return not there, {}
    match = re.search(args["search_regex"], text, re.MULTILINE)
    if match and there:
        found.update(match_groups=list(match.groups()), match_groupdict=match.groupdict())
    return bool(match) == there, {}


def _answers(args):
    """Does the port answer, and with the wanted text where one is asked for?"""
    try:
        link = socket.create_connection((args["host"], args["port"]), args["connect_timeout"])
    except OSError:
        return False
    with link:
        if not args.get("search_regex"):
            return True
        link.settimeout(args["connect_timeout"])
        text = b""
        try:
            while len(text) < 1 << 20:
                piece = link.recv(4096)
                text += piece
                if re.search(args["search_regex"].encode(), text, re.MULTILINE):
                    return True
                if not piece:
                    break
        except OSError:
            pass
        return False


_TCP_OPEN = {"01", "02", "03", "04", "05", "08", "09", "0B"}  # established to closing, as drained counts


def _connections(args):
    """How many TCP connections this host has at the port, those of excluded hosts not counted."""
    excluded = set()
    for name in args.get("exclude_hosts") or ():
        excluded.update(info[4][0] for info in socket.getaddrinfo(name, None))
    count = 0
    for file, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(file) as lines:
                rows = [line.split() for line in lines.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            local, remote, state = row[1], row[2], row[3]
            if state in _TCP_OPEN and int(local.rpartition(":")[2], 16) == args["port"]:
                raw = bytes.fromhex(remote.rpartition(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                count += socket.inet_ntop(family, words) not in excluded
    return count


def do_wait_for(run, args):
    began = time.monotonic()
    state = args["state"]
    what = args["path"] or "%s:%s" % (args["host"], args["port"])
    if run.check:
        return {"changed": False, "skipped": True, "might_run": True, "msg": "might wait for " + what}
    time.sleep(args["delay"])
    found = {"state": state, "port": args["port"], "path": args["path"], "search_regex": args["search_regex"]}
    if args["path"] is None and args["port"] is None and state != "drained":
        time.sleep(max(0, args["timeout"] - args["delay"]))
        return dict(found, changed=False, elapsed=int(time.monotonic() - began))
    while True:
        if args["path"] is not None:
            reached, _ = _path_state(args, found)
        elif state == "drained":
            reached = _connections(args) == 0
        else:
            reached = _answers(args) == (state in ("present", "started"))
        elapsed = time.monotonic() - began
        if reached:
            found.setdefault("match_groups", [])
            found.setdefault("match_groupdict", {})
            if args["path"] is not None and os.path.exists(args["path"]):
                found.update(described(run, args["path"]))
            return dict(found, changed=False, elapsed=int(elapsed))
        if elapsed >= args["timeout"]:
            said = "Timeout when waiting for %s: it is not %s after %d s." % (what, state, args["timeout"])
            raise StepFailed(args["msg"] or said, elapsed=int(elapsed))
        time.sleep(min(args["sleep"], max(0.05, args["timeout"] - elapsed)))
