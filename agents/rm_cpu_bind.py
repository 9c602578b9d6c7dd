"""srun --cpu-bind: which of the job's processors each task of a step runs on. Source: srun(1) of Slurm 22.05.

Pure: `asked_of` reads the option in srun, `chosen` is for one task, on its host.
"""

import re

from rm_cores import share

DIVIDE = ("cores", "threads")
WAYS = ("", "none", "no", "rank", *DIVIDE)
LISTED = ("map_cpu", "mask_cpu")
MOST = 4096  # entries of a list, and times of one
DIGITS = 1024  # of a mask


def asked_of(text, whole):
    """What tasks are asked for: {"how", "cpus", "verbose"}; ValueError is a sentence about the text. `whole`:
    has the step all processors that the job has on its hosts?"""
    how, cpus, verbose = "", [], False
    words = text.split(",")
    while words:
        word, colon, first = words.pop(0).strip().partition(":")
        word = word.lower()
        if colon and word in LISTED:
            how, entries = word, [first, *words]
            cpus, words = _listed(word, entries), []
        elif not colon and word in ("verbose", "v", "quiet", "q"):
            verbose = word[0] == "v"
        elif not colon and word in WAYS:
            how = word
        else:
            raise ValueError(
                "--cpu-bind=%s is not supported: none, cores, threads, rank, map_cpu:LIST, mask_cpu:LIST."
                % text
            )
    if not whole and how in ("rank", *DIVIDE):
        raise ValueError(
            "--cpu-bind=%s is not supported with --exact or --overlap: other steps would run on the same "
            "processors." % text
        )
    return {"how": how, "cpus": cpus, "verbose": verbose}


def _listed(way, entries):
    """The processors of each task: of a list of numbers or of masks, with `*TIMES`."""
    found = []
    for entry in entries:
        part = re.fullmatch(r"(0x[0-9a-fA-F]+|[0-9a-fA-F]+)(?:\*(\d{1,4}))?", entry.strip())
        number = part and _number(way, part.group(1))
        if number is None or (way == "mask_cpu" and not number):
            raise ValueError("--cpu-bind=%s: '%.50s' is no %s." % (way, entry, way[:-4]))
        one = [number] if way == "map_cpu" else [n for n in range(number.bit_length()) if number >> n & 1]
        found += [one] * int(part.group(2) or 1)
        if len(found) > MOST:
            raise ValueError("--cpu-bind=%s has more than %d entries." % (way, MOST))
    return found


def _number(way, text):
    hexadecimal = way == "mask_cpu" or text.startswith("0x")
    if len(text) > DIGITS or (not hexadecimal and not text.isdecimal()):
        return None
    return int(text, 16 if hexadecimal else 10)


def chosen(asked, at, of, cores, usable):
    """(the processors of the `at`-th of `of` tasks here, a sentence or ""). `cores`: those that the job
    has for itself, empty where hosts give none; `usable`: those that the task may run on. ValueError says
    why it cannot be bound as asked."""
    mine = list(cores) or sorted(usable)
    how = asked["how"]
    if how in LISTED:
        entry = asked["cpus"][at % len(asked["cpus"])]
        lacking = sorted(set(entry) - set(mine))
        if lacking:
            raise ValueError("--cpu-bind=%s names processor %d, and the job has %s"
                             % (how, lacking[0], ",".join(map(str, sorted(mine)))))  # fmt: skip
        return entry, ""
    if how in ("rank", *DIVIDE) and not cores:
        return mine, "--cpu-bind=%s has no effect: the job has no processors of its own (fence.cpus)" % how
    if how == "rank":
        return [mine[at % len(mine)]], ""
    return (share(mine, at, of) if how in DIVIDE else mine), ""
