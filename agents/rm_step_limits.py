"""The soft limits of resources that a script has set by `ulimit`: srun passes its own on to its tasks.

Source: slurm.conf(5), PropagateResourceLimits; srun(1), --propagate.
"""

import contextlib
import resource

NAMES = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


def named(propagate):
    """Those that a value of --propagate names; "" is all. Raises ValueError for a word that is none."""
    words = [word.strip().upper() for word in propagate.split(",")]
    if words in ([""], ["ALL"]):
        return NAMES
    if words == ["NONE"]:
        return ()
    for word in words:
        if word not in NAMES:
            raise ValueError(
                "--propagate=%s: %s is none of ALL, NONE, %s." % (propagate, word, ", ".join(NAMES))
            )
    return words


def own(names):
    """The soft limits of this process: {name: limit}, -1 = none."""
    return {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0] for name in names}


def take(limits):
    """Make them this process's, as far as its hard limits allow."""
    for name in NAMES:
        soft = limits.get(name)
        if not isinstance(soft, int):
            continue
        number = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY and (soft < 0 or soft > hard):
            soft = hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (soft, hard))
