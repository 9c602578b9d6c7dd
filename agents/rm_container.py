"""A task inside a container image, by the runtime that the host has: podman, apptainer or enroot.

The options have the names and meaning of Pyxis'. The runtime is started as the job's user, without rights of
root, and everything that it starts stays in the job's control group. `command` is a pure function.
"""

import contextlib
import os
import re
import stat

import rm_facts

RUNTIMES = ("podman", "apptainer", "enroot")  # the first that a host has is taken
# of the job's environment, what is the image's own business: where its programs and libraries lie
OF_THE_IMAGE = frozenset(
    ("PATH", "HOME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH",
     "RM_STEPS", "RM_BIN", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
     "DBUS_SESSION_BUS_ADDRESS")
)  # fmt: skip
# where podman keeps what runs, in its own words: the first such folder is written down in the user's files,
# and asked for again by each podman that finds no other, also on machines without rm
RUN = "/tmp/podman-run-%d"
RUN_TRIES = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# enroot starts files: an image of a registry becomes one first, once for each user
_ENROOT = """set -e
image=$1 from=$2; shift 2
if ! [ -e "$image" ]; then
    mkdir -p "${image%/*}"
    enroot import -o "$image.$$" -- "$from" >&2
    mv "$image.$$" "$image"
fi
exec "$@"
"""
# a container that was killed with its job still runs in podman's books, and keeps the user from starting more
# until podman looks again. That stops those that do run: nobody may have begun one since it failed.
# A systemd of the user's must not hear of it: podman would be moved there, out of the job's control group and
# its fence, wherever the host began with systemd (podman 4), or podman's own settings say so.
_PODMAN = """export DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null
stuck() { "$podman" unshare true 2>&1 >/dev/null | grep -q "system migrate"; }
podman=$1; shift
! stuck || (flock -w 20 9; ! stuck || "$podman" system migrate >&2) 9<"${HOME:-/}"
exec "$@"
"""


class ContainerError(Exception):
    """A sentence about what the runtime of this host cannot do."""


def found():
    """(runtime, path of its program) of this host; two empty words when it has none."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    for name in RUNTIMES:
        for path in [os.path.join(folder, name) for folder in folders] + [rm_facts.program(name)]:
            if path and os.access(path, os.X_OK):
                return name, path
    return "", ""


def runc(root=""):
    """Path of what podman starts containers by where crun refuses the host's control groups, which
    are of both versions; "" for podman's own choice. `root` is put before the kernel's files (tests)."""
    mixed = os.path.exists(root + "/sys/fs/cgroup/unified/cgroup.controllers")
    return rm_facts.program("runc") if mixed else ""


def keep_folder(user):
    """The folder RUN is the user's: by root, in the mounts of the job, before the runtime begins. Somebody
    else who took its name would keep all containers of the user from starting here."""
    path = RUN % user.uid
    for _ in range(RUN_TRIES):
        with contextlib.suppress(OSError):  # somebody takes it again; or podman says what is wrong
            with contextlib.suppress(FileNotFoundError):
                if _is_folder_of(path, user.uid):
                    return
                os.rename(path, "%s.%s" % (path, os.urandom(8).hex()))
            _make_as(user, path)
            return


def _make_as(user, path):
    """Make the folder as the user: whoever may exchange what lies in the directory gets nothing of root's."""
    mine = os.geteuid(), os.getegid()
    if mine[0] != 0:
        os.mkdir(path, 0o700)
        return
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        os.mkdir(path, 0o700)
    finally:
        os.seteuid(mine[0])
        os.setegid(mine[1])


def with_folder(environ):
    """The runtime finds a folder for what runs: by the user. A login has one on hosts where the
    user has logged in; a job mostly names the one of the machine that it was submitted on."""
    path = RUN % os.getuid()
    with contextlib.suppress(OSError):
        if _is_folder_of(environ.get("XDG_RUNTIME_DIR", ""), os.getuid()):
            return
    with contextlib.suppress(OSError):
        if _is_folder_of(path, os.getuid()):
            environ["XDG_RUNTIME_DIR"] = path


def _is_folder_of(path, uid):
    """Is it one of this user's? Whoever may write to it otherwise, the user has let in. Raises OSError."""
    about = os.lstat(path)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == uid


def checked(container):
    """A complete container of a launch request, {} for none; ValueError says what is wrong."""
    if not container:
        return {}
    keys = ("image", "workdir", "mounts", "name")
    image, workdir, mounts, name = (container.get(key) or "" for key in keys)
    mounts = [list(mount) for mount in mounts or []]
    words = [image, workdir, *(word for mount in mounts for word in mount)]
    if not all(isinstance(word, str) and "\0" not in word for word in [*words, name]) or not (image or name):
        raise ValueError("a container has an image, and words without NUL bytes")
    if re.match("(docker://)*-", image) or not all(len(mount) == 3 for mount in mounts):
        raise ValueError("an image is no option, and a mount has a source, a target and flags")
    if any(not path.startswith("/") or set(path) & set(":,") for m in mounts for path in m[:2]):
        raise ValueError("a mount has absolute paths without colons and commas")
    if workdir and not workdir.startswith("/"):
        raise ValueError("the workdir of a container is an absolute path")
    found = {"image": image, "workdir": workdir, "mounts": mounts}
    return dict(found, name=name) if name else found


def passes_signals(runtime):
    """Does the runtime stay, and pass signals on to the task? Others become it."""
    return runtime == "podman"


def command(runtime, program, container, name, own, argv, environ, gpus, is_directory=False, runc="",
            streams="", options=()):  # fmt: skip
    """The words that run `argv` in the container.

    `name` is what the container is called, `own` the folders and files of rm that the task sees under their
    own paths, as mounts; `environ` what the task is to have; `gpus` its GPUs, by UUID or index;
    `is_directory`: the image is a folder of the host; `runc`: what podman is to start it by, if said;
    `streams`: "input" if the task has one, "terminal" if that is a terminal; `options` further ones of
    podman's.

    Raises:
        ContainerError: this runtime cannot.
    """
    mounts = [(source, target, flags) for source, target, flags in container["mounts"]] + list(own)
    names = sorted(key for key in environ if key not in OF_THE_IMAGE and _NAME.match(key))
    build = {"podman": _podman, "apptainer": _apptainer, "enroot": _enroot}[runtime]
    words = build(program, container, name, mounts, names, gpus, is_directory, environ)
    if runc and runtime == "podman":  # a user's container stays in the caller's group then by itself
        words.remove("--cgroups=disabled")  # which it does not know
        words[1:1] = ["--runtime", runc]
    if runtime == "podman" and streams:  # others pass what they have
        at = words.index("run") + 1
        words[at:at] = ["--interactive", "--tty"] if streams == "terminal" else ["--interactive"]
    if runtime == "podman":
        at = words.index("run") + 1
        words[at:at] = options
        words = unstuck(program, *words)
    return words + list(argv)


def unstuck(program, *words):
    """The words of a command of podman, for when it takes a killed container for one that runs."""
    return ["/bin/sh", "-c", _PODMAN, "sh", program, *words]


def _flags(text, known):
    return [flag for flag in text.split("+") if flag in known]


def _podman(program, container, name, mounts, names, gpus, is_directory, environ):
    image = container["image"]
    words = [
        program, "--cgroup-manager=cgroupfs", "run", "--rm", "--replace", "--name", name, "--init",
        "--cgroups=disabled", "--network=host", "--log-driver=none", "--security-opt=label=disable",
        "--entrypoint=", "--volume", "/dev/shm:/dev/shm",
    ]  # fmt: skip
    for source, target, flags in mounts:
        options = _flags(flags, ("ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave"))
        words += ["--volume", ":".join([source, target] + ([",".join(options)] if options else []))]
    for key in names:
        words += ["--env", key]
    for gpu in gpus:
        words += ["--device", "nvidia.com/gpu=" + gpu]
    if container["workdir"]:
        words += ["--workdir", container["workdir"]]
    if is_directory:
        return [*words, "--rootfs", image]
    return [*words, podman_image(image)]


def podman_image(image):
    """As podman calls it."""
    if not image.startswith("/"):
        return _reference(image, "podman")
    if not image.endswith((".tar", ".tar.gz", ".tgz")):
        raise ContainerError("podman runs images of registries, archives (.tar) and folders; %s is none"
                             % image)  # fmt: skip
    return "docker-archive:" + image


def _apptainer(program, container, name, mounts, names, gpus, is_directory, environ):
    # a container with a name is a folder, in which changes stay
    writable = "--writable" if container.get("name") else "--writable-tmpfs"
    words = [program, "exec", "--no-home", "--no-mount", "cwd", writable]
    for source, target, flags in mounts:
        words += ["--bind", ":".join([source, target, *_flags(flags, ("ro",))[:1]])]
    if gpus:
        words.append("--nv")
    words += ["--pwd", container["workdir"] or "/"]
    return [*words, apptainer_image(container["image"])]


def apptainer_image(image):
    """As apptainer calls it."""
    return image if image.startswith("/") else "docker://" + _reference(image, "apptainer")


def _enroot(program, container, name, mounts, names, gpus, is_directory, environ):
    image, home = container["image"], environ.get("HOME") or "/"
    if is_directory:
        raise ContainerError("enroot runs images of registries and files (.sqsh); %s is a folder" % image)
    words = [program, "start", "--root", "--rw"]
    for source, target, flags in mounts:
        known = _flags(flags, ("ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave"))
        bind = [] if {"bind", "rbind"} & set(known) else ["rbind"]
        words += ["--mount", "%s:%s:none:%s" % (source, target, ",".join(["x-create=auto", *bind, *known]))]
    for key in names:
        words += ["--env", key]
    if gpus:
        words += ["--env", "NVIDIA_VISIBLE_DEVICES=" + ",".join(gpus)]
    file, origin = (image, "") if container.get("name") else enroot_image(image, home)
    words += [file]
    if container["workdir"]:
        words += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', container["workdir"]]
    if container.get("name"):  # it is there
        return words
    return ["/bin/sh", "-c", _ENROOT, "sh", file, origin, *words]


def enroot_image(image, home):
    """The file of an image, and where that is fetched from if it is not there."""
    if image.startswith("/"):
        return image, ""
    plain = image[len("docker://") :] if image.startswith("docker://") else image
    file = "%s/.cache/rm-images/%s.sqsh" % (home, re.sub(r"[^A-Za-z0-9._-]", "+", plain))
    return file, "docker://" + plain


def _reference(image, runtime):
    """Pyxis' REGISTRY#IMAGE as others write it."""
    plain = image[len("docker://") :] if image.startswith("docker://") else image
    if "@" in plain.split("#")[0] and "#" in plain:
        login = {"podman": "podman login", "apptainer": "apptainer registry login"}[runtime]
        raise ContainerError("%s takes no user in the name of an image (%s): log in with `%s`"
                             % (runtime, image, login))  # fmt: skip
    return plain.replace("#", "/", 1)
