"""sbcast inside a job of rm: a file of this host becomes a file of each host of the job.

    sbcast [-fp] SOURCE DEST

A program of the job. A step with one task on each host takes the file from its standard input, writes it
beside DEST, and names it DEST once it is whole.

Source: sbcast(1) of Slurm 22.05. What only tunes the transfer there is passed over.
"""

import getopt
import os
import shutil
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

FLAGS = {"-f": "--force", "-p": "--preserve", "-j": "--jobid", "-v": "--verbose", "-V": "--version"}
LONGS = ("force", "preserve", "jobid=", "verbose", "version", "help", "usage")
TUNING = ("fanout=", "size=", "timeout=", "exclude=")  # and --compress, whose value is behind = alone
VARIABLES = {"SBCAST_FORCE": "--force", "SBCAST_PRESERVE": "--preserve", "SBCAST_SEND_LIBS": "--send-libs"}
RECEIVE = "--receive"  # the first word of the tasks
CREATE, REPLACE, OF_HOST = "create", "replace", "of_host"  # the last: its name ends with the host's
OF_PROGRAMS = ("SLURM_BCAST", "SLURM_TASK_PROLOG", "SLURM_TASK_EPILOG")
BLOCK_BYTES = 1 << 20


class Wrong(Exception):
    """The message is a sentence."""


def main(words):
    try:
        if words[:1] == [RECEIVE]:
            receive(sys.stdin.buffer, *words[1:])
            return 0
        options, paths = parsed(words, os.environ)
        if {"--version", "--help", "--usage"} & options.keys():
            sys.stdout.write("sbcast [-fp] SOURCE DEST: rm's; docs/slurm-commands.md says what differs\n")
            return 0
        return send(options, paths, os.environ)
    except OSError as error:
        return told("%s: %s" % (error.filename or "It", error.strerror), words)
    except Wrong as error:
        return told(error, words)


def told(error, words):
    where = " on %s" % os.environ.get("SLURMD_NODENAME", "") if words[:1] == [RECEIVE] else ""
    sys.stderr.write("sbcast: error%s: %s\n" % (where, error))
    return 1


def parsed(words, environ):
    """({option: text}, [source, destination])."""
    words = [word for word in words if not word.startswith("-C") and word.partition("=")[0] != "--compress"]
    longs = [*LONGS, *TUNING]
    asked = [word for word in words if word.startswith("--send-libs")]
    words = [word for word in words if word not in asked]
    try:
        found, paths = getopt.gnu_getopt(words, "fF:j:ps:t:vV", longs)
    except getopt.GetoptError as error:
        raise Wrong("%s; this sbcast is rm's." % error) from None
    options = {name: "" for variable, name in VARIABLES.items() if is_on(environ.get(variable, ""))}
    options.update((FLAGS.get(name, name), value) for name, value in found)
    if asked:
        options["--send-libs"] = asked[-1].partition("=")[2]
        if options["--send-libs"] == "no":
            del options["--send-libs"]
    if "--send-libs" in options:
        raise Wrong("--send-libs is not supported: the libraries of a program are not looked up.")
    if len(paths) != 2 and not {"--version", "--help", "--usage"} & options.keys():
        raise Wrong("Need two file names, have %d names." % len(paths))
    return options, paths


def is_on(text):
    return text.lower() not in ("", "0", "no", "false")


def send(options, paths, environ):
    """The code of the step that takes the file everywhere."""
    job, hosts = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_NNODES", "")
    asked = options.get("--jobid", job).partition(".")[0]
    if not job or not hosts.isdecimal():
        raise Wrong("Command only valid from within a job of rm.")
    if asked != job:
        raise Wrong("It sends to the hosts of its own job, %s, and not to those of job %s." % (job, asked))
    source, target = paths
    if target.endswith("/"):
        target += os.path.basename(source)
    target = os.path.join(os.getcwd(), target)
    with open(source, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Wrong("%s: it is no regular file." % source)
        words = step_words(int(hosts), target, about, REPLACE if "--force" in options else CREATE)
        if "--preserve" in options:
            words += [str(about.st_atime_ns), str(about.st_mtime_ns)]
        os.dup2(file.fileno(), 0)
        os.execvpe("srun", words, without_own(environ))


def without_own(environ):
    """What of srun's input variables is for the program of the user, and not for this step."""
    return {name: value for name, value in environ.items() if name not in OF_PROGRAMS}


def step_words(hosts, target, about, how):
    """srun's, for the step that takes a file with the status `about` to `hosts`: their names, or how many."""
    count = str(hosts if isinstance(hosts, int) else len(hosts))
    named = [] if isinstance(hosts, int) else ["--nodelist=" + ",".join(hosts)]
    return ["srun", "--quiet", "--overlap", "--nodes=" + count, "--ntasks=" + count, *named,
            "--ntasks-per-node=1", "--input=all", "--output=all", "--error=all", "--kill-on-bad-exit=0",
            "--job-name=sbcast", "--chdir=/", "sbcast", RECEIVE, target, "%o" % (about.st_mode & 0o777),
            how, str(about.st_size)]  # fmt: skip


def receive(stream, target, mode, how, size, *times_ns):
    """What comes becomes the file; nobody sees a part of it under its name, also where the source could not
    be read to its end."""
    if how == OF_HOST:
        target += os.environ["RM_HOST"]
    part = "%s.sbcast-%d" % (target, os.getpid())
    if how == CREATE and os.path.lexists(target):
        raise Wrong("%s: File exists; --force replaces it." % target)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(stream, file, BLOCK_BYTES)
            if file.tell() != int(size):
                raise Wrong("%s: %d bytes came of %s; the source cannot be read, or was changed." % (
                    target, file.tell(), size))  # fmt: skip
            os.fchmod(file.fileno(), int(mode, 8))
        if times_ns:
            os.utime(part, ns=(int(times_ns[0]), int(times_ns[1])))
        if how == CREATE:
            os.link(part, target, follow_symlinks=False)
            os.unlink(part)
        else:
            os.replace(part, target)
    except BaseException as error:
        if os.path.lexists(part):
            os.unlink(part)
        if isinstance(error, OSError):
            raise Wrong("%s: %s" % (target, error.strerror)) from None
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
