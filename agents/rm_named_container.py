"""Containers with a name, which later steps of a job find again with what earlier ones changed in them.

Source: --container-name of Pyxis with container_scope=job. Here such a container is a folder with the files
of its image, below the place where podman keeps the user's images: each task runs in a container of its own
over that folder. The first step that names it on a host fills it; it is removed when the job has ended there.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import time

import rm_container

MARK = "containers"  # a file in the attempt's folder: containers with names may lie on this host
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
REMOVE_S = 120.0
# 1 podman, 2 the attempt's folder, 3 the name, 4 the image, 5 whether that is a folder; says where it lies.
# What attempts left behind whose supervisor was killed is removed by the user's next container with a name.
_FILL = """set -e
podman=$1 attempt=$2 name=$3 image=$4 folder=$5
own() { if [ "$(id -u)" = 0 ]; then "$@"; else "$podman" unshare "$@"; fi; }
top=$("$podman" info --format '{{.Store.GraphRoot}}')/rm
home=$top/${attempt##*/}
at=$home/$name
mkdir -p "$home"
exec 9>"$at.lock"
flock 9
if ! [ -d "$at" ]; then
    if [ -z "$image" ]; then
        echo "there is no container $name yet on $(uname -n): give --container-image as well" >&2
        exit 1
    fi
    for old in "$top"/*; do [ -d "${attempt%/*}/${old##*/}" ] || own rm -rf "$old"; done
    own rm -rf "$at.new"
    mkdir "$at.new"
    if [ "$folder" = yes ]; then
        own cp -dR --preserve=mode,timestamps,links "$image/." "$at.new"
    else
        made=$("$podman" create "$image" true)
        "$podman" inspect -f '{{range .Config.Env}}{{println .}}{{end}}' "$made" | sed '/^$/d' >"$at.env"
        "$podman" inspect --format '{{.Config.WorkingDir}}' "$made" >"$at.dir"
        "$podman" export "$made" | own tar -xpf - --numeric-owner -C "$at.new"
        "$podman" rm "$made" >/dev/null
    fi
    mv -T "$at.new" "$at"
fi
echo "$at"
"""
_REMOVE = """podman=$1 attempt=$2
export DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null
at=$("$podman" info --format '{{.Store.GraphRoot}}')/rm/${attempt##*/}
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
        raise ValueError("--container-name needs podman, and this host has %s" % runtime)
    image, is_folder = container["image"], "yes" if os.path.isdir(container["image"]) else "no"
    if image and is_folder == "no":
        image = rm_container.podman_image(image)
    fill = ["/bin/sh", "-c", _FILL, "sh", program, folder.path, name, image, is_folder]
    words = rm_container.unstuck(program, *fill)
    done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environ, check=False)
    at = done.stdout.decode(errors="surrogateescape").strip()
    if done.returncode or not at.startswith("/"):
        raise ValueError("the container %s cannot be had" % name)
    options = ["--env-file", at + ".env"] if os.path.exists(at + ".env") else []
    workdir = container["workdir"]
    with contextlib.suppress(OSError), open(at + ".dir") as file:
        workdir = workdir or file.read().strip()
    return dict(container, image=at, workdir=workdir), options


def remove(folder, group, user):
    """Those of the attempt on this host, in its control group and as its user; when nothing else of it runs.
    What is left after REMOVE_S stays until the user's next one."""
    if not os.path.exists(folder.at(MARK)):
        return
    _, program = rm_container.found()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            group.join()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            if os.getuid() == 0:
                os.initgroups(user.name, user.gid)
                os.setgid(user.gid)
                os.setuid(user.uid)
            os.chdir("/")
            environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": user.home, "USER": user.name}
            os.execve("/bin/sh", ["/bin/sh", "-c", _REMOVE, "sh", program, folder.path], environ)
        finally:
            os._exit(1)
    until = time.monotonic() + REMOVE_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() >= until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        select.select([], [], [], 0.02)
