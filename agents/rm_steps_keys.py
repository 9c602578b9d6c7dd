"""`authorized_key`: who may log in to an account by SSH keys."""

import os
import re

from rm_steps_aside import refuse_led_away
from rm_steps_base import StepFailed, expanded, state_diff
from rm_steps_file import do_file
from rm_steps_write import fix_attributes, put_content

_TYPES = re.compile(
    r"(?:^|[\s,])((?:sk-)?(?:ssh-(?:rsa|dss|ed25519|xmss)|ecdsa-sha2-\S+|ssh-ed25519)(?:-cert-v\d+)?"
    r"(?:@openssh\.com)?)\s+(\S+)\s*(.*)$"
)


class Key:
    def __init__(self, line):
        self.line = line
        match = _TYPES.search(line)
        if match is None:
            raise ValueError(line)
        self.kind, self.blob, self.comment = match.groups()
        self.options = line[: match.start(1)].strip()

    def text(self):
        return " ".join(word for word in (self.options, self.kind, self.blob, self.comment) if word)


def keys_of(text):
    """[Key or other line]: comments and what cannot be read stay as they are."""
    found = []
    for line in text.splitlines():
        try:
            found.append(line if line.lstrip().startswith("#") or not line.strip() else Key(line.strip()))
        except ValueError:
            found.append(line)
    return found


def do_authorized_key(run, args):
    import pwd

    try:
        who = pwd.getpwnam(args["user"])
    except KeyError:
        if run.check and args["user"] in run.planned["users"]:
            return {"changed": True, "user": args["user"], "msg": "the user does not exist yet"}
        raise StepFailed("There is no user '%s' on this host." % args["user"]) from None
    text = args["key"]
    if re.match(r"(https?|file|ftp)://", text):
        from rm_steps_web import content_of

        text = content_of(text, {"validate_certs": args["validate_certs"]}).decode("utf-8", "replace")
    wanted = [one for one in keys_of(text) if isinstance(one, Key)]
    strange = [one for one in keys_of(text) if isinstance(one, str) and one.strip() and one[0] != "#"]
    if strange or (not wanted and not args["exclusive"]):
        raise StepFailed("invalid key specified: %s" % (strange[0] if strange else "there is none")[:100])
    for one in wanted:
        one.options = args["key_options"] if args["key_options"] is not None else one.options
        one.comment = args["comment"] if args["comment"] is not None else one.comment
    path = expanded(args["path"] or os.path.join(who.pw_dir, ".ssh", "authorized_keys"))
    folder = os.path.dirname(path)
    linked = os.path.islink(folder)
    # lines that are no keys are kept: who makes the file a link would get a copy of any file
    diverted = refuse_led_away(path + "/", who.pw_uid)
    if diverted or (linked and (args["manage_dir"] or not args["path"])):
        _refuse_another_s(folder, who)
    if args["follow"] and os.path.islink(path):
        path = os.path.realpath(path)
    old = run.read(path)
    lines = keys_of((old or b"").decode("utf-8", "surrogateescape"))
    if args["state"] == "absent":
        gone = {one.blob for one in wanted}
        kept = [one for one in lines if isinstance(one, str) or one.blob not in gone]
    else:
        kept, there = [], {}
        by_blob = {one.blob: one for one in wanted}
        for one in lines:
            if isinstance(one, str):
                kept += [] if args["exclusive"] else [one]
            elif one.blob in by_blob:
                mine = by_blob[one.blob]
                same = (one.options, one.comment) == (mine.options, mine.comment)
                if one.blob not in there:
                    kept.append(one if same else mine)
                there[one.blob] = True
            elif not args["exclusive"]:
                kept.append(one)
        kept += [one for one in by_blob.values() if one.blob not in there]
    new = "".join((one if isinstance(one, str) else _line(one)) + "\n" for one in kept)
    result = {"changed": False, "keyfile": path, "diff": []}
    result.update({k: args[k] for k in ("user", "key", "state", "exclusive", "key_options", "comment")})
    if new.encode("utf-8", "surrogateescape") != (old or b""):
        owner = {"owner": str(who.pw_uid), "group": str(who.pw_gid)}
        if args["manage_dir"] and not run.is_directory(os.path.dirname(folder)):
            raise StepFailed("The directory %s does not exist." % os.path.dirname(folder))
        if args["manage_dir"] and not linked:
            do_file(run, dict(owner, path=folder, state="directory", mode=0o700, follow=False))
        if run.kind(os.path.dirname(path)) == "absent":
            do_file(run, {"path": os.path.dirname(path), "state": "directory"})
        put = put_content(run, path, new.encode("utf-8", "surrogateescape"), dict(owner, mode=0o600))
        result.update(changed=True, diff=put["diff"])
    elif args["manage_dir"] and old is not None and not run.check:
        changes = []
        fix_attributes(run, path, {"owner": str(who.pw_uid), "group": str(who.pw_gid)}, changes)
        result.update(changed=bool(changes), diff=state_diff(run, path, changes))
    return result


def _refuse_another_s(folder, who):
    """A user who makes his `.ssh` a link would get what it leads to: root's own `.ssh`, or all of /etc. Of
    what is not there yet the directory counts that it is made in."""
    there = os.path.join(os.getcwd(), folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if os.stat(there).st_uid != who.pw_uid:
        told = "%s leads by a link to what is not %s's; 'path' may name the file where it really is."
        raise StepFailed(told % (folder, who.pw_name))


def _line(key):
    return key.line if key.text() == " ".join(key.line.split()) else key.text()
