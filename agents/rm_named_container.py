"""Containers with a name, which later steps of a job find again with what earlier ones changed in them.

Source: --container-name of Pyxis with container_scope=job. Here such a container is a folder with the files
of its image: below the place where podman keeps the user's images, below apptainer's cache, or as a
container of enroot's. Each task runs in a container of its own over that folder. The first step that names it
on a host fills it; it is removed when the job has ended there.
"""

import contextlib
import os
import select
import signal
import subprocess
import time

import rm_container
from rm_become import PR_SET_PDEATHSIG, prctl
from rm_cgroup import send
from rm_srun_container import NAME

MARK = "containers"  # a file in the attempt's folder: containers with names may lie on this host
REMOVE_S, REST_S = 120.0, 10.0
_BEGIN = """set -e
need_image() {
    [ -z "$image" ] || return 0
    echo "there is no container $name yet on $(uname -n): give --container-image as well" >&2
    exit 1
}
"""
# 1 podman, 2 the attempt's folder, 3 the name, 4 the image, 5 whether that is a folder; says where it lies.
# Each host has a folder of its own, since hosts may share the user's files; no name begins with a dot. Others
# may not enter it: who can open a lock can hold it.
# What attempts left behind whose supervisor was killed is removed by the user's next container with a name.
_FILL = (
    _BEGIN
    + """podman=$1 attempt=$2 name=$3 image=$4 folder=$5
own() { if [ "$(id -u)" = 0 ]; then "$@"; else "$podman" unshare "$@"; fi; }
top=$("$podman" info --format '{{.Store.GraphRoot}}')/rm/$(uname -n)
home=$top/${attempt##*/}
at=$home/$name
of=$home/.$name
mkdir -p "$home"
chmod 700 "$top"
exec 9>"$of.lock"
flock 9
if ! [ -d "$at" ]; then
    need_image
    for old in "$top"/*; do [ -d "${attempt%/*}/${old##*/}" ] || own rm -rf "$old"; done
    own rm -rf "$of.new"
    mkdir "$of.new"
    if [ "$folder" = yes ]; then
        own cp -dR --preserve=mode,timestamps,links "$image/." "$of.new"
    else
        made=$("$podman" create "$image" true)
        "$podman" inspect -f '{{range .Config.Env}}{{println .}}{{end}}' "$made" | sed '/^$/d' >"$of.env"
        "$podman" inspect --format '{{.Config.WorkingDir}}' "$made" >"$of.dir"
        "$podman" export "$made" | own tar -xpf - --numeric-owner -C "$of.new"
        "$podman" rm "$made" >/dev/null
    fi
    mv -T "$of.new" "$at"
fi
echo "$at"
"""
)
# the same of apptainer, which makes such folders itself
_FILL_APPTAINER = (
    _BEGIN
    + """apptainer=$1 attempt=$2 name=$3 image=$4
top=${APPTAINER_CACHEDIR:-$HOME/.apptainer/cache}/rm/$(uname -n)
home=$top/${attempt##*/}
at=$home/$name
mkdir -p "$home"
chmod 700 "$top"
exec 9>"$home/.$name.lock"
flock 9
if ! [ -d "$at" ]; then
    need_image
    for old in "$top"/*; do
        [ -d "${attempt%/*}/${old##*/}" ] || { chmod -R u+rwX "$old"; rm -rf "$old"; }
    done
    rm -rf "$home/.$name.new"
    "$apptainer" build --sandbox "$home/.$name.new" "$image" >&2
    mv -T "$home/.$name.new" "$at"
fi
echo "$at"
"""
)
_REMOVE_APPTAINER = """attempt=$2
at=${APPTAINER_CACHEDIR:-$HOME/.apptainer/cache}/rm/$(uname -n)/${attempt##*/}
[ ! -d "$at" ] || { chmod -R u+rwX "$at"; rm -rf "$at"; }
"""
# and of enroot, which has names itself: rm+HOST+ATTEMPT+NAME; 4 the image's file, 5 where it is fetched from
_FILL_ENROOT = (
    _BEGIN
    + """enroot=$1 attempt=$2 name=$3 image=$4 origin=$5
ours=rm+$(uname -n)+
at=$ours${attempt##*/}+$name
mkdir -p "$HOME/.cache/rm-images"
chmod 700 "$HOME/.cache/rm-images"
exec 9>"$HOME/.cache/rm-images/.$ours.lock"
flock 9
if ! "$enroot" list | grep -qxF "$at"; then
    need_image
    "$enroot" list | while read -r old; do
        case $old in
        "$ours"*) rest=${old#"$ours"}; [ -d "${attempt%/*}/${rest%%+*}" ] || "$enroot" remove -f "$old" ;;
        esac
    done
    if ! [ -e "$image" ]; then
        "$enroot" import -o "$image.$$" -- "$origin" >&2
        mv "$image.$$" "$image"
    fi
    "$enroot" create --name "$at" -- "$image" >&2
fi
echo "/$at"
"""
)
_REMOVE_ENROOT = """enroot=$1 attempt=$2
"$enroot" list | while read -r old; do
    case $old in "rm+$(uname -n)+${attempt##*/}+"*) "$enroot" remove -f "$old" ;; esac
done
"""
_REMOVE = """podman=$1 attempt=$2
export DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null
at=$("$podman" info --format '{{.Store.GraphRoot}}')/rm/$(uname -n)/${attempt##*/}
[ ! -d "$at" ] || if [ "$(id -u)" = 0 ]; then rm -rf "$at"; else "$podman" unshare rm -rf "$at"; fi
"""


def mark(folder):
    """Before the first of them: by the agents' user, in the attempt's folder."""
    with contextlib.suppress(OSError):
        os.close(os.open(folder.at(MARK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def filled(runtime, program, container, folder, environ):
    """The container of a step, with the folder of its name for its image, and further options of podman's.
    By the job's user; ValueError says why it cannot be had."""
    name = container["name"]
    if not NAME.match(name):
        raise ValueError("'%.80s' is no name of a container" % name)
    if runtime != "podman":
        return _filled_by_other(runtime, program, container, folder, environ), []
    image, is_folder = container["image"], "yes" if os.path.isdir(container["image"]) else "no"
    if image and is_folder == "no":
        image = rm_container.podman_image(image)
    fill = ["/bin/sh", "-c", _FILL, "sh", program, folder.path, name, image, is_folder]
    words = rm_container.unstuck(program, *fill)
    at = _run(words, name, environ)
    home, _, _ = at.rpartition("/")
    beside = "%s/.%s" % (home, name)
    options = ["--env-file", beside + ".env"] if os.path.exists(beside + ".env") else []
    workdir = container["workdir"]
    with contextlib.suppress(OSError), open(beside + ".dir") as file:
        workdir = workdir or file.read().strip()
    return dict(container, image=at, workdir=workdir), options


def _filled_by_other(runtime, program, container, folder, environ):
    """The same by apptainer or enroot, which read the image's settings where it runs."""
    name, image, home = container["name"], container["image"], environ.get("HOME") or "/"
    if runtime == "apptainer":
        source = rm_container.apptainer_image(image) if image else ""
        words = ["/bin/sh", "-c", _FILL_APPTAINER, "sh", program, folder.path, name, source]
        return dict(container, image=_run(words, name, environ))
    if os.path.isdir(image):
        raise ValueError("enroot makes containers of images of registries and files (.sqsh)")
    file, origin = rm_container.enroot_image(image, home) if image else ("", "")
    words = ["/bin/sh", "-c", _FILL_ENROOT, "sh", program, folder.path, name, file, origin]
    return dict(container, image=_run(words, name, environ)[1:])


def _run(words, name, environ):
    """What the program says last: where the container lies."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environ, check=False)
    at = done.stdout.decode(errors="surrogateescape").strip()
    if done.returncode or not at.startswith("/"):
        raise ValueError("the container %s cannot be had" % name)
    return at


def removal(runtime, program, attempt_folder):
    """The words that remove all of an attempt on this host."""
    script = {"podman": _REMOVE, "apptainer": _REMOVE_APPTAINER, "enroot": _REMOVE_ENROOT}[runtime]
    return ["/bin/sh", "-c", script, "sh", program, attempt_folder]


def remove(attempt):
    """Those of the attempt on this host, when nothing else of it runs. podman reads the user's settings and
    may start his programs, so it has no more rights than a task, and nothing of it is left afterwards. Those
    that are left after REMOVE_S stay until the user's next one."""
    if not os.path.exists(attempt.folder.at(MARK)):
        return
    runtime, program = rm_container.found()
    if not runtime:
        return
    pid = os.fork()
    if pid == 0:
        _become(attempt, removal(runtime, program, attempt.folder.path))
    until = time.monotonic() + REMOVE_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() >= until:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        select.select([], [], [], 0.02)
    until = time.monotonic() + REST_S
    while not _none_left() and time.monotonic() < until:  # podman leaves a process that keeps its namespaces
        attempt.group.kill()
        send(attempt.processes(), signal.SIGKILL)
        select.select([], [], [], 0.02)


def _none_left():
    """Take the ends of children, to which all that the attempt started comes; True where none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _become(attempt, argv):
    """In the child: as a task of the attempt, in its control group, its mounts and behind its fence."""
    user = attempt.user
    try:
        os.setsid()
        attempt.group.move()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        if attempt.fence.has_view:
            attempt.fence.enter_view()
        attempt.fence.bind_task()
        rm_container.keep_folder(user)
        if os.getuid() == 0:
            os.initgroups(user.name, user.gid)
            os.setgid(user.gid)
            os.setuid(user.uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.chdir("/")
        environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": user.home, "USER": user.name}
        rm_container.with_folder(environ)
        os.execve(argv[0], argv, environ)
    finally:
        os._exit(1)
