"""How srun lays tasks out over hosts: --distribution, and files that list hosts.

Source: srun(1) of Slurm 22.05. Pure, but for `with_files`, which reads the files.
"""

import re

from rm_step_plan import HOSTS_MAX, expanded

INSIDE = ("block", "cyclic", "fcyclic", "*")  # over sockets and cores, to which rm binds by --cpu-bind alone
KNOWN = "block, cyclic, plane=SIZE, arbitrary, each of the first two with ,Pack or ,NoPack"


class Unknown(ValueError):
    """The message is a sentence."""


def asked_of(text, size_of_job, nodelist):
    """What rm_step_plan.layout is asked for: `text` is the option's, `size_of_job` the plane of the job as
    text, `nodelist` the hosts in the order in which they were named. Raises Unknown."""
    found = {"distribution": "block", "plane": 0, "pack": False, "each_on": []}
    first, *more = text.split(",")
    first, *inside = first.split(":")
    way, equals, size = first.lower().partition("=")
    bad = [word for word in more if word.lower() not in ("pack", "nopack")]
    bad += [word for word in inside if word.lower() not in INSIDE] + inside[2:]
    if way == "plane" and not (inside or more):
        size = size if equals else size_of_job
        if not re.fullmatch(r"0*[1-9]\d{0,4}", size, re.ASCII):
            raise Unknown("--distribution=%.80s names no size: write plane=SIZE." % text)
        return dict(found, distribution="plane", plane=int(size))
    if equals or way not in ("block", "cyclic", "arbitrary", "*", "") or bad:
        raise Unknown("--distribution=%.80s is not supported: %s." % (text, KNOWN))
    if way == "arbitrary":  # without a list it is block
        return dict(found, each_on=list(nodelist))
    found["pack"] = bool(more) and more[-1].lower() == "pack" and way != "cyclic"
    return dict(found, distribution="cyclic" if way == "cyclic" else "block")


def without_effect(text):
    """What of the option is passed over, as a sentence, or ""."""
    first = text.split(",")[0]
    if any(word != "*" for word in first.split(":")[1:]):
        return "Of --distribution=%.80s only %s has an effect: tasks are bound by --cpu-bind." % (
            text, first.split(":")[0],
        )  # fmt: skip
    return ""


def with_files(values, environ):
    """The options, with hosts where they named a file of hosts. Raises Unknown."""
    named = values.get("nodelist") or values.get("nodefile")
    if not named and environ.get("SLURM_HOSTFILE"):  # it overrides every other distribution
        hosts = ",".join(_hosts_in(environ["SLURM_HOSTFILE"]))
        return dict(values, nodelist=hosts, distribution="arbitrary")
    files = {key: values[key] for key in ("nodelist", "exclude") if "/" in values.get(key, "")}
    if values.get("nodefile"):
        files["nodelist"] = values["nodefile"]
    return dict(values, **{key: ",".join(_hosts_in(file)) for key, file in files.items()})


def _hosts_in(path):
    """A host in each line, or several with commas between them; `name*3` is three times that host."""
    try:
        with open(path) as file:
            text = file.read(1 << 20)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise Unknown("The file of hosts %.200s cannot be read: %s." % (path, why)) from None
    found = []
    for line in text.splitlines():
        for word in re.split(r"[,\s]+(?![^\[]*\])", line.partition("#")[0].strip()):
            name, _, times = word.partition("*")
            if name and (not times or (times.isdecimal() and len(times) < 6)):
                found += expanded(name) * int(times or 1)
            elif word:
                raise Unknown("The file of hosts %.200s names '%.80s', which is no host." % (path, word))
            if len(found) > HOSTS_MAX:
                raise Unknown("The file of hosts %.200s names more than %d." % (path, HOSTS_MAX))
    if not found:
        raise Unknown("The file of hosts %.200s names none." % path)
    return found
