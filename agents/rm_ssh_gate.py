"""The door of a host's sshd: users come in only while a job of theirs runs here, and belong to it.

    rm_ssh_gate.py pam [--exempt=GROUP,GROUP]          for pam_exec, in sshd's account and session parts
    rm_ssh_gate.py keys USER [--exempt=GROUP,GROUP]    for AuthorizedKeysCommand, where sshd does without PAM
    rm_ssh_gate.py order FILE                          whether such a part of PAM starts the gate safely
    rm_ssh_gate.py settings FILE                       whether such settings of sshd lead past the gate
    rm_ssh_gate.py service FILE                        whether with them sshd reads another part of PAM

Root, and members of one of the groups, pass. Others need a running job on this host; their connection is
moved into the control groups of the newest one: it counts against that job's limits, can open the same
devices and ends with it. playbooks/ssh_gate.yml sets both up; docs/ssh-gate.md says what it promises.
"""

import contextlib
import glob
import grp
import os
import pwd
import re
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_cgroup import DEFAULT_STATE
from rm_files import read_json
from rm_spool import Folder

KEYS_BYTES = 1 << 20
PAM_FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")
PAM_LINE = re.compile(
    r"-?(auth|account|password|session)[ \t]+(\[[^]\\]*\]|[^ \t[]+)[ \t]+([^ \t[][^ \t]*)(.*)", re.IGNORECASE
)
PAM_INCLUDE = re.compile(r"@include[ \t]+([^ \t[][^ \t]*).*", re.IGNORECASE)
PAM_ACTION = re.compile(r"=\s*(done|[0-9]+)")  # libpam takes blanks before it, and needs none behind it
# the playbook's own line: root comes in also where the program is missing
ROOT_PASSES = ("success=1 default=ignore", "pam_succeed_if.so", ["quiet", "uid", "eq", "0"])
INCLUDE_DEPTH = 16  # of files that include each other
# it gives PAM the variables of the user's record, which users of systemd-homed change themselves
HOME_MODULE = "pam_systemd_home.so"
READS_USERS_ENVIRONMENT = re.compile(r"\buser_readenv=(?!0\b)")
SSHD_FOLDER = "/etc/ssh"  # what sshd_config includes is named from there
PROGRAM = "/rm_ssh_gate.py"
SSHD_LINE = re.compile(r'[ \t\r]*=?[ \t\r]*"?([^ \t\r="]*)"?[ \t\r]*=?[ \t\r]*(.*?)[ \t\r\f]*')
SSHD_WORD = re.compile(r"""(?:[^ \t"'\\]|\\[^\t]?|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""")
SSHD_QUOTED = re.compile(r"""\\(["'\\ ])|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
SSHD_ESCAPED = re.compile(r"""\\(["'\\])""")
WAYS_IN = {  # what settings decide how a user comes in, and what the gate's own block says of them
    "authenticationmethods": ["publickey"],
    "authorizedkeyscommand": None,  # that starts this program
    "authorizedkeysfile": ["none"],
    "trustedusercakeys": ["none"],
}
MOVE_SESSIONS = ("pam_systemd.so", "pam_elogind.so", "pam_cgroup.so", "pam_cgfs.so")


class Refused(Exception):
    """A sentence for the user."""


def exempt(user, groups):
    """Does the user pass without a job?"""
    if user.pw_uid == 0:
        return True
    names = set()
    for gid in os.getgrouplist(user.pw_name, user.pw_gid):
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(gid).gr_name)
    return bool(names & set(groups))


def running_jobs(uid, state=DEFAULT_STATE):
    """The control groups of the user's jobs that run here, the newest first."""
    found = []
    jobs = os.path.join(state, "jobs")
    for name in os.listdir(jobs) if os.path.isdir(jobs) else ():
        job, _, attempt = name.partition(".")
        if not (job.isdigit() and attempt.isdigit()):
            continue
        folder = Folder(os.path.join(jobs, name), int(job), int(attempt))
        meta = read_json(folder.at("meta.json")) or {}
        if meta.get("uid") == uid and meta.get("state") == "running" and folder.alive():
            started = [task.get("started_us") or 0 for task in meta.get("tasks", {}).values()]
            found.append((max(started, default=0), folder.job, meta.get("cgroup", "")))
    return [path for _, _, path in sorted(found, reverse=True)]


def hierarchies():
    """[(controllers, mount point)] of the control groups; no controllers: version 2."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split()[:3]
            where = before.split()[4]
            if kind == "cgroup2":
                found.append((set(), where))
            elif kind == "cgroup":
                found.append((set(options.split(",")), where))
    return found


def groups_beside(path):
    """The folders, of all hierarchies, of the groups that the job's processes in the group `path` are in."""
    mounted = hierarchies()
    with open(os.path.join(path, "cgroup.procs")) as file:
        pids = file.read().split()
    for pid in pids:
        try:
            with open("/proc/%s/cgroup" % pid) as file:
                lines = file.read().splitlines()
        except OSError:
            continue  # it has just ended
        found = []
        for line in lines:
            _, controllers, inside = line.split(":", 2)
            wanted = set(filter(None, controllers.split(",")))
            if os.path.basename(inside) != os.path.basename(path):
                continue  # a hierarchy in which the job has no group of its own
            places = [at for has, at in mounted if (wanted and wanted <= has) or (not wanted and not has)]
            found += [folder for folder in (at + inside for at in places[:1]) if os.path.isdir(folder)]
        if found:
            return found
    raise FileNotFoundError(path)


def adopt(pid, path):
    """Move the process into the control groups of the job whose group of version 2 is `path`."""
    for folder in groups_beside(path):
        with open(os.path.join(folder, "cgroup.procs"), "w") as file:
            file.write("%d" % pid)


def pass_through(user, pid, state=DEFAULT_STATE):
    """Move the process `pid` into the newest running job of the user; 0 moves nothing."""
    host = os.uname().nodename
    jobs = running_jobs(user.pw_uid, state)
    if not jobs:
        raise Refused("rm: %s has no job that runs on %s. Submit one (rmx submit), and log in while it runs."
                      % (user.pw_name, host))  # fmt: skip
    for path in jobs if pid else ():
        with contextlib.suppress(OSError):  # it ended meanwhile, or there are no control groups
            adopt(pid, path)
            return
    if pid:
        raise Refused("rm: the connection cannot be made part of a job of %s on %s." % (user.pw_name, host))


def own_keys(user):
    """The user's authorized_keys, read with the user's rights; nothing where others could have written it."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.initgroups(user.pw_name, user.pw_gid)
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            places = [user.pw_dir, os.path.join(user.pw_dir, ".ssh")]
            file = os.path.join(places[1], "authorized_keys")
            for place in [*places, file]:
                about = os.stat(place)
                if about.st_uid not in (0, user.pw_uid) or about.st_mode & 0o022:
                    os._exit(1)
            if stat.S_ISREG(os.stat(file).st_mode):
                with open(file, "rb") as keys, os.fdopen(write_end, "wb") as out:
                    out.write(keys.read(KEYS_BYTES))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def unclear(path, line):
    return Refused(
        "rm: %s: this line cannot be understood: %s. Let a type, a control, a module and its arguments stand "
        "on one line, or on lines of which each but the last ends in \\." % (path, line.strip())
    )


def put_together(path):
    """The lines of a file of PAM, without comments, those that go on behind a backslash as one.

    Source: _pam_assemble_line() of libpam 1.5, _pam_line_assemble() of 1.6. Raises Refused of what these two
    read differently: blanks behind the backslash, and a blank line or a comment before the line's end."""
    with open(path, errors="replace", newline="\n") as file:
        lines = file.read().split("\n")
    begun = ""
    for line in lines:
        words, comment, _ = line.partition("#")
        goes_on = words.endswith("\\") and not comment
        if (begun and not words.strip()) or (words.rstrip().endswith("\\") and not goes_on):
            raise unclear(path, begun + line)
        if goes_on:
            begun += words[:-1] + " "
            continue
        whole, begun = (begun + words).strip(" \t"), ""
        if whole:
            yield whole
    if begun:
        raise unclear(path, begun)


def stacked(path, folders=PAM_FOLDERS, depth=0):
    """(type, control, module, arguments) of each line of a service's file of PAM, and of those that it
    includes. The control is "" of a line that decides within a substack alone, None of one that no jump
    counts."""
    for words in put_together(path):
        found, include = PAM_LINE.fullmatch(words), PAM_INCLUDE.fullmatch(words)
        if found:
            kind, control, module, arguments = found.groups()
        elif include:
            kind, control, module = "", "include", include.group(1)
        else:
            raise unclear(path, words)
        kind, control = kind.lower(), control.lower().strip("[]")  # as PAM takes them
        if control not in ("include", "substack"):
            yield kind, control, os.path.basename(module), arguments
            continue
        places = [os.path.join(folder, module) for folder in folders]
        for place in [one for one in places if os.path.exists(one)][:1] if depth < INCLUDE_DEPTH else ():
            counted = ""
            for included in stacked(place, folders, depth + 1):
                if not kind or included[0] == kind:
                    yield (included[0], counted, *included[2:]) if control == "substack" else included
                    counted = None


def passed_over(sessions, gate):
    """The module of a line from which PAM may go on behind the line `gate`; "" for none."""
    for at, (_, control, module, arguments) in enumerate(sessions[:gate]):
        if (control, module, arguments.split()) == ROOT_PASSES:
            continue
        between = sum(1 for line in sessions[at + 1 : gate] if line[1] is not None)
        actions = PAM_ACTION.findall(control or "")
        jumps = [int(action) for action in actions if action.isdigit()]
        if control == "sufficient" or "done" in actions or any(count > between for count in jumps):
            return module
    return ""


def check_order(path, folders=PAM_FOLDERS):
    """Raise Refused where root would start the gate's program with variables that its user wrote, LD_PRELOAD
    among them: pam_exec gives PAM's environment to its programs. Refused, too, where something takes the
    connection out of the job after the gate has put it there."""
    lines = list(stacked(path, folders))
    sessions = [line for line in lines if line[0] == "session"]
    ours = [at for at, line in enumerate(sessions) if "rm_ssh_gate.py" in line[-1]]
    if not ours:
        return
    if any("type=open_session" not in sessions[at][-1].split() for at in ours):
        raise Refused(
            "rm: the gate's line of the session part lacks type=open_session: at the end of a connection "
            "root would start it with what the user wrote into ~/.pam_environment."
        )
    earlier = [line for line in lines if line[0] in ("auth", "account")] + sessions[: ours[-1]]
    if any(READS_USERS_ENVIRONMENT.search(line[-1]) for line in earlier):
        raise Refused(
            "rm: a line before the gate's reads ~/.pam_environment (user_readenv=1): users would run "
            "programs as root. Take user_readenv=1 out of sshd's part of PAM, and of what it includes, or "
            "take the gate off (rm_ssh_gate_state=absent) and set it up again."
        )
    if any(module == HOME_MODULE for _, _, module, _ in lines):
        raise Refused(
            "rm: %s stands in sshd's part of PAM: users of systemd-homed set variables with which root would "
            "start the gate's program. Keep no users by systemd-homed here, and take that line out."
            % HOME_MODULE
        )
    ending = passed_over(sessions, ours[0])
    if ending:
        raise Refused(
            "rm: the line of %s before the gate's can end sshd's session part, or jump over the gate: "
            "connections would be in no job. Let it neither be sufficient nor say done or so high a number."
            % ending
        )
    for _, _, module, _ in sessions[ours[0] :]:
        if module in MOVE_SESSIONS:
            raise Refused(
                "rm: %s comes after the gate, and takes connections out of the jobs. Take it out of sshd's "
                "session part, or put it before what reads ~/.pam_environment." % module
            )


def unquoted(part):
    return part.group(1) or SSHD_ESCAPED.sub(r"\1", part.group()[1:-1])


def words_of(text):
    """The words of a value of sshd's settings, without quotes and comment.

    Source: argv_split() of OpenSSH 9.2."""
    found = []
    for word in SSHD_WORD.findall(text):
        if word.startswith("#"):
            break
        found.append(SSHD_QUOTED.sub(unquoted, word))
    return found


def settings(path, folder=SSHD_FOLDER, depth=0, outer=()):
    """(blocks, keyword, words) of each line of sshd's settings, and of the files that it includes. The blocks
    are the words of the Match lines that must all hold: a file that a block includes narrows it down, and
    the end of a file ends the last block in it."""
    with open(path, errors="replace", newline="\n") as file:
        lines = file.read().split("\n")
    blocks = outer
    for line in lines:
        keyword, value = SSHD_LINE.fullmatch(line).groups()
        if keyword.startswith("#"):
            continue
        keyword, words = keyword.lower(), words_of(value)
        if keyword == "match":
            blocks = (*outer, words)
        elif keyword != "include":
            yield blocks, keyword, words
        elif depth < INCLUDE_DEPTH:
            for found in [one for each in words for one in sorted(glob.glob(os.path.join(folder, each)))]:
                yield from settings(found, folder, depth + 1, blocks)


def is_for(block, users):
    return [word.lower() for word in block[:1]] == ["user"] and block[1:] == [users]


def check_settings(path, folder=SSHD_FOLDER):
    """Raise Refused where users could come in past the gate, whose settings stand at the end: of several
    Match blocks the first that says something counts."""
    for blocks, keyword, words in settings(path, folder):
        if keyword not in WAYS_IN or not blocks or any(is_for(block, "root") for block in blocks):
            continue
        if len(blocks) == 1 and is_for(blocks[0], "*,!root"):
            if keyword == "authorizedkeyscommand" and any(word.endswith(PROGRAM) for word in words):
                return
            if words == WAYS_IN[keyword]:
                continue
        raise Refused(
            "rm: `Match %s` in sshd's settings says %s before the gate does: whom it is for would log in "
            "without a job. Take that out, or let sshd use PAM (UsePAM yes)."
            % (" ".join(blocks[-1]), keyword)
        )


def check_service(path, folder=SSHD_FOLDER):
    """Raise Refused where sshd asks another service's part of PAM than the one that the gate stands in."""
    for blocks, keyword, words in settings(path, folder):
        if keyword == "pamservicename" and words != ["sshd"]:
            where = " in `Match %s`" % " ".join(blocks[-1]) if blocks else ""
            raise Refused(
                "rm: sshd's settings name %s as PAMServiceName%s: its part of PAM lacks the gate, and "
                "users would log in without a job. Take that out, or name sshd."
                % (" ".join(words) or "nothing", where)
            )


def checked(check, path):
    try:
        check(path)
    except OSError as error:
        why = (error.filename, os.strerror(error.errno))
        raise Refused("rm: %s cannot be read: %s. Name a file that root can read." % why) from None


CHECKS = {"order": check_order, "settings": check_settings, "service": check_service}


def account_of(name):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Refused("rm: there is no account %s here." % name) from None


def pam(groups):
    user = account_of(os.environ.get("PAM_USER", ""))
    kind = os.environ.get("PAM_TYPE", "")
    if exempt(user, groups):
        return
    if kind not in ("account", "open_session"):
        raise Refused("rm: this program is for the account and session parts of PAM.")
    # pam_exec is a child of the sshd of this one connection, whose processes all follow
    pass_through(user, os.getppid() if kind == "open_session" else 0)


def keys(name, groups):
    user = account_of(name)
    text = own_keys(user)
    if text and not exempt(user, groups):
        pass_through(user, os.getppid())
    sys.stdout.buffer.write(text)


def main(arguments):
    groups = []
    for word in [word for word in arguments if word.startswith("--exempt=")]:
        groups += filter(None, word[len("--exempt=") :].split(","))
        arguments.remove(word)
    try:
        if arguments == ["pam"]:
            pam(groups)
        elif len(arguments) == 2 and arguments[0] == "keys":
            keys(arguments[1], groups)
        elif len(arguments) == 2 and arguments[0] in CHECKS:
            checked(CHECKS[arguments[0]], arguments[1])
        else:
            sys.stderr.write(__doc__)
            return 2
    except Refused as refused:
        # pam_exec passes standard output on to the user; sshd would take it for a key
        (sys.stdout if arguments == ["pam"] else sys.stderr).write("%s\n" % refused)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
