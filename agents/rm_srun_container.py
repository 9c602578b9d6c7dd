"""What srun's options say of the container of a step's tasks.

The options are Pyxis', as a job's are (rm_container.py), which says what they mean. srun starts often:
nothing is loaded here of what runs a container (rm_step_container.py).
"""

import os
import re

OPTIONS = ("container-image", "container-name", "container-mounts", "container-workdir")
MOUNTS_MAX = 64
FLAGS = ("ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
IMAGE = re.compile(r"(/[^\0\n]*|(docker://)?(?!docker://)[A-Za-z0-9$][\w.\-/:@#$]*)\Z", re.ASCII)


def asked_of(values, chdir):
    """The container of srun's options, {} for none; `chdir`: where a relative path of an image begins.
    ValueError is a sentence."""
    image, name = values.get("container-image", ""), values.get("container-name", "")
    if name and not NAME.match(name):
        raise ValueError("--container-name is '%.80s': write a word of letters, digits and ._-" % name)
    if not image and not name:
        other = next((name for name in OPTIONS if values.get(name)), "")
        if other:
            raise ValueError("--%s needs --container-image or --container-name." % other)
        return {}
    if values.get("mpi") == "pmi2":
        raise ValueError("--mpi=pmi2 does not reach into a container.")
    if image.startswith("."):
        image = os.path.normpath(os.path.join(chdir, image))
    if image and not IMAGE.match(image):
        raise ValueError("'%.80s' is no image: write [REGISTRY#]IMAGE[:TAG], or a path." % image)
    workdir = values.get("container-workdir", "")
    if workdir and not workdir.startswith("/"):
        raise ValueError("--container-workdir is '%.80s': write an absolute path of the container." % workdir)
    words = [word for word in values.get("container-mounts", "").split(",") if word]
    if len(words) > MOUNTS_MAX:
        raise ValueError("%d mounts are too many: at most %d can be made." % (len(words), MOUNTS_MAX))
    found = {"image": image, "workdir": workdir, "mounts": [_mount(word) for word in words]}
    if "container-mount-home" in values:
        home = os.environ.get("HOME", "")
        found["mounts"].append(_mount("%s:%s" % (home, home)))
    return dict(found, name=name) if name else found


def _mount(text):
    source, *rest = text.split(":")
    target, flags = (*rest, "", "")[:2]
    target = target or source
    if len(rest) > 2 or not (source.startswith("/") and target.startswith("/")):
        raise ValueError("'%.160s' is no mount: write SRC:DST, or SRC:DST:ro, of absolute paths." % text)
    unknown = [flag for flag in flags.split("+") if flag and flag not in FLAGS]
    if unknown:
        raise ValueError("The flag '%.40s' of the mount '%.160s' is not supported." % (unknown[0], text))
    return [source, target, flags]
