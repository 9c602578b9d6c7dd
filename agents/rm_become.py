"""From a forked child to the user's task: cgroup, user, directory, streams, and then exec.

Runs between fork and exec in a process of its own. What it has to say (where it is, why it failed) goes to a
pipe that exec closes: end of file without a failure means that the task runs.
"""

import contextlib
import ctypes
import errno
import json
import os
import re
import signal
import stat

import rm_container
import rm_cores
import rm_gpu_near
import rm_mpi
from rm_fence import limits_not_set

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC
MARK = "RM_SCHEDULE"  # its value, a path in the spool, marks the job's processes
FOUND_BY = (MARK, "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST")
prctl = ctypes.CDLL(None, use_errno=True).prctl
NEVER_BEGUN = 53  # no signal: Slurm's number for what failed before the task began


def umask_of(environ):
    """Of whoever submitted the job, by which its files are made."""
    try:
        return int(environ.get("SLURM_UMASK", "022"), 8) & 0o777
    except ValueError:
        return 0o022


def become_task(folder, group, request, user, fence, task, environ, printed, said):
    """In the forked child: become the task. Never returns; says on `said` what went wrong, and where it is if
    that is not where it was to be. `environ` is of `task_environment`. `printed` takes the output of a task
    that named no file for it (rm_capture.py), else None."""
    try:
        os.setsid()
        group.enter()
        leave_files(said, printed, *fence.views())
        if request["container"].get("name"):
            import rm_named_container  # which imports this file

            rm_named_container.mark(folder)
        environ["SLURM_TASK_PID"] = str(os.getpid())
        spool = os.path.dirname(folder.path)
        os.umask(umask_of(environ))
        if fence.has_view:
            _open_outside(request, user, task, printed, spool, said)
            fence.enter_view()
        alone = bool(request["batch"])  # it has what all tasks here have together
        tasks = request["tasks"]
        refused = fence.bind_task() if alone else fence.bind_task(tasks.index(task), len(tasks))
        if refused:
            _tell(said, {"note": limits_not_set(refused)})
        if not alone and rm_gpu_near.is_asked(environ):
            task = _with_near_gpus(request, task, fence, environ)
        if request["container"]:
            rm_container.keep_folder(user)
        if os.getuid() == 0:
            if user.groups is None:
                os.initgroups(user.name, user.gid)
            else:
                os.setgroups(user.groups)
            os.setgid(user.gid)
            os.setuid(user.uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # cleared by setuid, so it comes after
        wanted = {"chdir": wanted_directory(request, user)}
        enter_directory(request, user, lambda words: words == wanted or _tell(said, words))
        if fence.has_view:
            _open_devices_again(task, spool)
        else:
            _open_streams(task, printed, spool)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD,
                       signal.SIGXFSZ):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)
        script = folder.at("script")
        if request["container"]:
            _enter_container(folder, request, task, [script, *request["args"]], environ)
        try:
            os.execve(script, [script, *request["args"]], environ)
        except OSError as error:
            raise _Refused(_exec_sentence(request["script"], error), code=error.errno) from None
    except _Refused as refused:
        _tell(said, {"failure": str(refused), "end": refused.end})
    except BaseException as error:
        host = os.uname().nodename
        _tell(said, {"failure": "The task could not be started as %s on %s: %s" % (user.name, host, error)})
    finally:
        os._exit(1)


def leave_files(*kept):
    """Close what this process has open beside its streams, but for the descriptors `kept`. Before a path is
    followed that a user named: by /proc/self/fd it would lead to what root has opened, and by a directory
    there out of the job's own mounts."""
    signal.set_wakeup_fd(-1)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # the descriptor that listed them is closed already
                os.close(fd)


def _enter_container(folder, request, task, argv, environ):
    """Become the runtime of containers that this host has, which runs the task."""
    container, host = request["container"], os.uname().nodename
    runtime, program = rm_container.found()
    if not runtime:
        raise _Refused("%s has no runtime of containers: install podman, apptainer or enroot." % host)
    for name in ("RM_STEPS", "RM_BIN"):
        environ.pop(name, None)
    if runtime != "apptainer":  # which passes it on to the task
        rm_container.with_folder(environ)
    agents = os.path.dirname(os.path.abspath(__file__))
    own = [(folder.path, folder.path, "rw"), (agents, agents, "ro")]
    name, options = "rm-%d-%d-%d" % (folder.job, folder.attempt, task["rank"]), []
    try:
        if container.get("name"):
            import rm_named_container  # which imports this file

            container, options = rm_named_container.filled(runtime, program, container, folder, environ)
        words = rm_container.command(runtime, program, container, name, own, argv, environ, task["gpus"],
                                     os.path.isdir(container["image"]), rm_container.runc(),
                                     options=options)  # fmt: skip
        os.execve(words[0], words, environ)
    except (rm_container.ContainerError, ValueError) as error:
        raise _Refused("%s, on %s." % (str(error), host)) from None
    except OSError as error:
        raise _Refused("%s of %s cannot be run: %s." % (program, host, os.strerror(error.errno))) from None


class _Refused(Exception):
    """Why a task cannot begin, and how it ends therefore."""

    def __init__(self, sentence, code=1, number=0):
        super().__init__(sentence)
        self.end = code, number


def _no_file(sentence):
    """Of a task whose input or output cannot be opened: it ends with Slurm's 0:53."""
    return _Refused(sentence, 0, NEVER_BEGUN)


def _tell(said, words):
    os.write(said, json.dumps(words).encode() + b"\n")


def findable(environ):
    """With what a process is found by first: of a long environment the beginning alone may be read."""
    return {**{name: environ[name] for name in FOUND_BY if name in environ}, **environ}


def task_environment(folder, request, user, task, hides_gpus):
    """The environment of one task, but for its process id: what the daemon gave, and what only this host
    knows. `hides_gpus`: the driver sees the job's GPUs only."""
    agents = os.path.dirname(os.path.abspath(__file__))
    environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    environ.update(request["env"])
    environ.update(task["env"])
    environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name, SHELL=user.shell)
    environ[MARK] = folder.at("schedule.json")
    if request["port"]:
        environ["MASTER_PORT"] = str(request["port"])
    environ["RM_REPORTS"] = folder.reports(task["rank"])
    programs = folder.programs(request["batch"])
    environ["PATH"] = programs + ":" + environ["PATH"]
    environ["RM_BIN"] = programs  # for login shells, which set PATH anew: playbooks/tasks/agents.yml
    if request["batch"]:
        environ["RM_STEPS"] = folder.at("steps")
        environ = {**rm_mpi.environment(folder, programs), **environ}
    environ["PYTHONPATH"] = ":".join(filter(None, [agents, environ.get("PYTHONPATH", "")]))
    environ.update(SLURM_JOB_UID=str(user.uid), SLURM_JOB_GID=str(user.gid))
    environ["CUDA_VISIBLE_DEVICES"] = ",".join(_named_for_cuda(request, task, hides_gpus))
    if task["gpus"] and all(gpu.isdigit() for gpu in task["gpus"]):
        environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # else CUDA numbers them by speed
    return findable(environ)


def _with_near_gpus(request, task, fence, environ):
    """The task, with the GPUs that are near the processors that it was bound to; so does `environ` say."""
    tasks = request["tasks"]
    at, count = tasks.index(task), len(tasks)
    usable = os.sched_getaffinity(0)
    cpus = [rm_cores.share(fence.cores, n, count) if fence.cores else usable for n in range(count)]
    gpus = rm_gpu_near.narrowed([other["gpus"] for other in tasks], cpus)
    local, alike = rm_gpu_near.local_rank(gpus, at)
    task = dict(task, gpus=gpus[at])
    environ.update(LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(alike))
    environ["CUDA_VISIBLE_DEVICES"] = ",".join(_named_for_cuda(request, task, fence.hides_gpus))
    return task


def _named_for_cuda(request, task, hides_gpus):
    """The task's GPUs; where the driver sees no others than the job's, it numbers these from 0."""
    gpus = task["gpus"]
    if not hides_gpus or not all(gpu.isdigit() for gpu in gpus):
        return gpus
    seen = sorted({int(gpu) for other in request["tasks"] for gpu in other["gpus"]})
    return [str(seen.index(int(gpu))) for gpu in gpus]


def _open_outside(request, user, task, printed, spool, said):
    """Open the streams before the job's own mounts hide what they name: a log in /tmp is the host's."""
    os.initgroups(user.name, user.gid)
    os.setegid(user.gid)
    os.seteuid(user.uid)
    enter_directory(request, user, lambda words: _tell(said, {"opened_in": words["chdir"]}))
    _open_streams(task, printed, spool)
    os.seteuid(0)
    os.setegid(0)


def wanted_directory(request, user):
    return request["chdir"] or user.home


def enter_directory(request, user, tell):
    wanted = wanted_directory(request, user)
    try:
        os.chdir(wanted)
        tell({"chdir": wanted})
        return
    except OSError as error:
        host, reason = os.uname().nodename, os.strerror(error.errno)
    if request["chdir_required"]:
        raise _Refused("The working directory %s cannot be entered on %s by %s: %s."
                       % (wanted, host, user.name, reason))  # fmt: skip
    for instead in (user.home, "/"):
        try:
            os.chdir(instead)
        except OSError:
            continue
        note = "%s cannot be entered on %s (%s); the job runs in %s there." % (wanted, host, reason, instead)
        tell({"chdir": instead, "note": note})
        return


def _open_streams(task, printed, spool):
    """Output and errors: to the supervisor, or to the files that the user named; input from such a file, or
    none."""
    if task["input"]:
        os.dup2(_open_input(task["input"], spool), 0)
    else:
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    os.dup2(_open_output(task["output"], spool) if printed is None else printed, 1)
    merged = not task["error"] or task["error"] == task["output"]
    os.dup2(1 if merged else _open_output(task["error"], spool), 2)


def _open_devices_again(task, spool):
    """Among the job's own mounts: what was opened outside of them is a file or a pipe, never a device that is
    closed to the job."""
    for fd, path in ((0, task["input"]), (1, task["output"]), (2, task["error"] or task["output"])):
        mode = os.fstat(fd).st_mode
        if path and not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            os.dup2(_open_input(path, spool) if fd == 0 else _open_output(path, spool, 0), fd)


def _open_input(path, spool):
    """Open a file as the user; a pipe waits for its writer only when the task reads it. A directory is none:
    it would lead out of the job's own mounts."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if is_below(fd, spool):
            raise OSError(errno.EPERM, "it lies in the spool of rm")
        os.set_blocking(fd, True)
        return fd
    except OSError as error:
        raise _no_file("The input %s cannot be read on %s: %s."
                       % (path, os.uname().nodename, os.strerror(error.errno))) from None  # fmt: skip


def _open_output(path, spool, made=os.O_CREAT):
    """Open a file of the user's as the user, to append: it was emptied before (rm_named.py), and others may
    write to it. Nothing below the spool is one, by any path."""
    try:
        fd = os.open(path, APPEND | made | os.O_NONBLOCK, 0o666)  # a pipe that nobody reads must not keep us
        if is_below(fd, spool):
            raise OSError(errno.EPERM, "it lies in the spool of rm")
        os.set_blocking(fd, True)
        return fd
    except OSError as error:
        why = error.strerror
        if error.errno == errno.ENXIO:
            why = "it is a pipe that nobody reads, or a device that is not there"
        raise _no_file("The output file %s cannot be written on %s: %s; give another one by --output."
                       % (os.path.abspath(path), os.uname().nodename, why)) from None  # fmt: skip


def is_below(fd, directory):
    """Does the open file lie there, by any path?"""
    return (os.path.realpath("/proc/self/fd/%d" % fd) + "/").startswith(os.path.realpath(directory) + "/")


def _exec_sentence(script, error):
    """Why the script cannot be run. Everybody may read this: it shows at most a plain path of the script."""
    first, host = script.split("\n", 1)[0], os.uname().nodename
    if first[:2] != "#!":
        return "The script has no interpreter line; begin it with one such as #!/bin/sh."
    named = re.fullmatch(r"#!\s*(/[\w.+/-]{1,200})(?:\s.*)?", first)
    which = " (%s)" % named.group(1) if named else ""
    if isinstance(error, FileNotFoundError):
        return "The interpreter that the script names in its first line%s is not on %s." % (which, host)
    return "The script cannot be run on %s%s: %s." % (host, which, os.strerror(error.errno))
