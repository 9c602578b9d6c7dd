"""`group`, `user` and `getent`: the host's accounts, by the tools of shadow-utils."""

import os
import tempfile

from rm_steps_aside import followed, refuse_led_away
from rm_steps_base import StepFailed, asks, execute, must, plain_environment, state_diff, tool
from rm_steps_write import account, put_content

# what `password_expire_…` is called, the option of chage, the field of /etc/shadow
_AGES = (("min", "-m", 3), ("max", "-M", 4), ("warn", "-W", 5), ("account_disable", "-I", 6))


def do_group(run, args):
    import grp

    name = args["name"]
    try:
        seen = grp.getgrnam(name)
    except KeyError:
        seen = None
    if args["state"] == "absent":
        argv = ["groupdel", name] if seen else None
    elif seen is None:
        argv = ["groupadd"] + (["-r"] if args["system"] else [])
        argv += ["-g", str(args["gid"])] if args["gid"] is not None else []
        argv += (["-o"] if args.get("non_unique") else []) + [name]
    elif args["gid"] is not None and seen.gr_gid != args["gid"]:
        argv = ["groupmod", "-g", str(args["gid"])] + (["-o"] if args.get("non_unique") else []) + [name]
    else:
        argv = None
    result = {"name": name, "state": args["state"], "system": args["system"], "changed": False}
    if seen is not None and args["state"] == "present":
        result["gid"] = seen.gr_gid
    planned = run.check and planned_state(run, "groups", name)
    if planned == args["state"] or (argv is None and not planned):
        return result
    if run.check:
        plan_account(run, "groups", name, args["state"])
        argv = argv or ["groupdel" if args["state"] == "absent" else "groupadd"]
    else:
        must([tool(argv[0]), *argv[1:]])
        if args["state"] == "present":
            result["gid"] = grp.getgrnam(name).gr_gid
    return dict(result, changed=True, diff=state_diff(run, "group " + name, [argv[0]]))


def planned_state(run, kind, name):
    """present or absent, as check mode would have made it by now; else None. `kind`: users or groups."""
    planned = run.planned[kind]
    return "present" if name in planned else "absent" if "-" + name in planned else None


def plan_account(run, kind, name, state):
    """Remember in check mode that this account or group would be there by now, or gone."""
    others = [one for one in run.planned[kind] if one not in (name, "-" + name)]
    run.planned[kind] = [*others, name if state == "present" else "-" + name]


def _shadow(name):
    """(password hash, expiry in days) of an account, as far as we may read it; else (None, None)."""
    fields = _shadow_fields(name)
    return (fields[1], fields[7]) if fields else (None, None)


def _shadow_fields(name):
    """An account's line of /etc/shadow; [] where there is none, or we may not read it."""
    try:
        with open("/etc/shadow", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.rstrip("\n").split(":")
                if fields[0] == name:
                    return fields
    except OSError:
        pass
    return []


def _ages(run, args, seen):
    """Options of chage for what differs of the password's age, in days."""
    old = _shadow_fields(args["name"]) if seen else []
    found = []
    for name, flag, field in _AGES:
        wanted = args.get("password_expire_" + name)
        if wanted is None or (len(old) > field and old[field] == str(wanted)):
            continue
        if run.is_new_state("user %s password_expire_%s" % (args["name"], name), wanted):
            found += [flag, str(wanted)]
    return found


def _password_change(args, seen):
    """The entry for /etc/shadow that the account should get, None when it stays."""
    wanted = args.get("password")
    if any(one == ":" or ord(one) < 32 or ord(one) == 127 for one in wanted or ""):
        # chpasswd reads NAME:HASH lines: the rest of this one would be another account's
        raise StepFailed(
            "The password of %s holds a ':' or a control character: no hash does." % args["name"]
        )
    old = _shadow(args["name"])[0] if seen else None
    if seen and args.get("update_password") == "on_create":
        wanted = None
    if wanted is not None and old is not None and old.lstrip("!") == wanted.lstrip("!"):
        wanted = None
    lock = args.get("password_lock")
    base = wanted if wanted is not None else (old if seen else "*")
    if lock is not None and base is not None:
        locked = base if base.startswith("!") else "!" + base
        target = locked if lock else base.lstrip("!")
        return target if target != old and target != "" else None
    return wanted


def _wanted_groups(run, args, seen, name):
    """Supplementary groups to set, None when they are right."""
    import grp

    if args["groups"] is None:
        return None
    for group in args["groups"]:
        account(run, group, "group")
    primary = grp.getgrgid(seen.pw_gid).gr_name if seen and _has_gid(seen.pw_gid) else None
    own = {g.gr_name for g in grp.getgrall() if name in g.gr_mem} - {primary}
    wanted = {grp.getgrgid(int(g)).gr_name if str(g).isdigit() else g for g in args["groups"]} - {primary}
    wanted |= own if args["append"] else set()
    return None if seen and own == wanted else sorted(wanted)


def _has_gid(number):
    import grp

    try:
        grp.getgrgid(number)
    except KeyError:
        return False
    return True


def _flags(run, args, seen):
    """Options of useradd or usermod for what differs."""
    name, flags = args["name"], []
    if args["group"]:
        number = account(run, args["group"], "group")
        if seen is None or number != seen.pw_gid:
            flags += ["-g", args["group"]]
    groups = _wanted_groups(run, args, seen, name)
    if groups is not None and (groups or seen):
        flags += ["-G", ",".join(groups)]
    for value, flag, old in (
        (args["uid"], "-u", seen and seen.pw_uid),
        (args["comment"], "-c", seen and seen.pw_gecos),
        (args["shell"], "-s", seen and seen.pw_shell),
        (args["home"], "-d", seen and seen.pw_dir),
    ):
        if value is not None and value != old:
            flags += [flag, str(value)]
            if flag == "-d" and seen and args.get("move_home"):
                flags.append("-m")
            if flag == "-u" and args.get("non_unique"):
                flags.append("-o")
    if args.get("expires") is not None:
        import time

        day = "" if args["expires"] < 0 else str(int(args["expires"] // 86400))
        if seen is None or (_shadow(name)[1] or "") != day:
            flags += ["-e", day and time.strftime("%Y-%m-%d", time.gmtime(args["expires"]))]
    return flags


def do_user(run, args):
    import grp
    import pwd

    name = args["name"]
    result = {"name": name, "state": args["state"], "changed": False}
    try:
        seen = pwd.getpwnam(name)
    except KeyError:
        seen = None
    planned = planned_state(run, "users", name) if run.check else None
    if args["state"] == "absent":
        if (planned or ("absent" if seen is None else "present")) == "absent":
            return result
        result.update(force=args["force"], remove=args["remove"])
        flags = (["-r"] if args["remove"] else []) + (["-f"] if args["force"] else [])
        if run.check:
            plan_account(run, "users", name, "absent")
        else:
            must([tool("userdel"), *flags, name])
        return dict(result, changed=True, diff=state_diff(run, "user " + name, ["removed"]))
    if planned == "absent":
        seen = None
    elif planned == "present" and seen is None:
        changes = ["password's age"] if _ages(run, args, None) else []
        return dict(result, changed=bool(changes), diff=state_diff(run, "user " + name, changes))
    password = _password_change(args, seen)
    flags = _flags(run, args, seen)
    argv = []
    if seen is None:
        flags += (["-r"] if args["system"] else []) + ["-m" if args["create_home"] else "-M"]
        flags += ["-k", args["skeleton"]] if args.get("skeleton") and args["create_home"] else []
        flags += ["-K", "UMASK=" + args["umask"]] if args.get("umask") and args["create_home"] else []
        if args["group"] is None:
            try:
                grp.getgrnam(name)
                flags += ["-N"]  # as useradd would refuse to make the group once more
            except KeyError:
                pass
        argv = ["useradd", *flags, name]
    elif flags:
        argv = ["usermod", *flags, name]
    ages = _ages(run, args, seen)
    changes = ([" ".join(argv)] if argv else []) + (["password"] if password is not None else [])
    changes += ["password's age"] if ages else []
    if not run.check:
        if argv:
            must([tool(argv[0]), *argv[1:]])
        if password is not None:  # over standard input: argument lists are public
            must([tool("chpasswd"), "-e"], stdin="%s:%s\n" % (name, password))
        if ages:
            must([tool("chage"), *ages, name])
    elif changes and seen is None:
        plan_account(run, "users", name, "present")
        plan_account(run, "groups", args["group"] or name, "present")
    _home(run, args, seen, changes)
    _ssh_key(run, args, result, changes)
    try:
        now = pwd.getpwnam(name)
        result.update(uid=now.pw_uid, group=now.pw_gid, home=now.pw_dir, shell=now.pw_shell)
        result.update(comment=now.pw_gecos)
    except KeyError:
        pass  # only planned
    if seen is not None:
        result.update(append=args["append"], move_home=bool(args.get("move_home")))
    elif run.check:
        result.update(system=name)  # as Ansible's
    else:
        result.update(system=args["system"], create_home=args["create_home"])
    if args["groups"] is not None:
        result["groups"] = ",".join(args["groups"])
    if args.get("password") is not None:
        result["password"] = "NOT_LOGGING_PASSWORD"
    result["diff"] = state_diff(run, "user " + name, changes)
    return dict(result, changed=bool(changes))


def _home(run, args, seen, changes):
    """An existing account whose home is missing gets one, as Ansible's `create_home` does."""
    if seen is None or not args["create_home"] or args.get("move_home"):
        return
    home = args["home"] or seen.pw_dir
    if os.path.exists(home):
        return
    changes.append("home " + home)
    if run.check:
        return
    import shutil

    skeleton = args.get("skeleton") or "/etc/skel"
    if os.path.isdir(skeleton):
        shutil.copytree(skeleton, home, symlinks=True)
    else:
        os.makedirs(home)
    for top, directories, files in os.walk(home):
        for one in [top, *(os.path.join(top, n) for n in directories + files)]:
            os.chown(one, seen.pw_uid, seen.pw_gid, follow_symlinks=False)
    os.chmod(home, 0o755 & ~(int(args["umask"], 8) if args.get("umask") else 0o022))


def _ssh_key(run, args, result, changes):
    if not args.get("generate_ssh_key"):
        return
    import pwd

    try:
        who = pwd.getpwnam(args["name"])
    except KeyError:
        changes.append("ssh key")
        return  # only planned
    path = os.path.join(who.pw_dir, args["ssh_key_file"] or ".ssh/id_%s" % args["ssh_key_type"])
    if not os.path.exists(path):
        changes.append("ssh key " + path)
        places = {".pub": followed(path + ".pub"), "": followed(path)}  # last what says that both are there
        if run.check:
            return
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            os.makedirs(folder, 0o700)
            os.chown(folder, who.pw_uid, who.pw_gid, follow_symlinks=False)
        # ssh-keygen writes to where a link leads: where no other user can make one
        with tempfile.TemporaryDirectory() as private:
            made = os.path.join(private, "key")
            comment = args["ssh_key_comment"] or "ansible-generated on " + os.uname().nodename
            argv = [tool("ssh-keygen"), "-q", "-t", args["ssh_key_type"], "-C", comment, "-f", made]
            argv += ["-b", str(args["ssh_key_bits"])] if args["ssh_key_bits"] else []
            _keygen(argv, args.get("ssh_key_passphrase"))
            for ending, place in places.items():
                with open(made + ending, "rb") as file:
                    data, mode = file.read(), os.fstat(file.fileno()).st_mode & 0o777
                put_content(
                    run, place, data, {"owner": str(who.pw_uid), "group": str(who.pw_gid), "mode": mode}
                )
    result["ssh_key_file"] = path
    if os.path.exists(path + ".pub"):
        refuse_led_away(path + ".pub/")
        with open(path + ".pub", encoding="utf-8") as file:
            result["ssh_public_key"] = file.read().strip()
        result["ssh_fingerprint"] = asks([tool("ssh-keygen"), "-l", "-f", path + ".pub"])[1].strip()


def _keygen(argv, passphrase):
    """A passphrase goes over standard input, which ssh-keygen reads where it has no terminal and nothing that
    asks for it: arguments are seen by everybody on the host."""
    if passphrase is None:
        must([*argv, "-N", ""])
        return
    if "\n" in passphrase or "\0" in passphrase:
        raise StepFailed("A passphrase has no line break and no zero byte.")
    asking = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE")
    env = {name: value for name, value in plain_environment().items() if name not in asking}
    code, out, err = execute(argv, env=env, stdin=(passphrase + "\n") * 2, preexec=os.setsid)
    if code != 0:
        raise StepFailed("ssh-keygen failed (%d): %s" % (code, (err or out).strip()[-2000:]), rc=code)


def do_getent(run, args):
    database, key = args["database"], args["key"]
    argv = [tool("getent")] + (["-s", args["service"]] if args.get("service") else []) + [database]
    code, out = asks([*argv, *([key] if key else [])])
    separator = args["split"]
    if separator is None and database in ("passwd", "shadow", "group", "gshadow"):
        separator = ":"
    facts, name = {}, "getent_" + database
    if code == 0:
        for line in out.splitlines():
            fields = line.split(separator)
            if fields:
                facts[fields[0]] = fields[1:]
        return {"changed": False, "ansible_facts": {name: facts}}
    planned = run.planned["users"] + run.planned["groups"]
    if code == 2 and run.check and key in planned and "-" + key not in planned:
        said = "'%s' does not exist yet" % key
        return {"changed": False, "ansible_facts": {name: {key: None}}, "might_run": True, "msg": said}
    if code == 2 and not args["fail_key"]:
        said = "One or more supplied key could not be found in the database."
        return {"changed": False, "ansible_facts": {name: {key: None}}, "msg": said}
    whys = {1: "there is no database '%s'" % database, 2: "it holds no '%s'" % key, 3: "it cannot be listed"}
    raise StepFailed("getent %s failed: %s." % (database, whys.get(code, "exit code %d" % code)))
