"""Which GPUs of a host each task of a step sees by --gpu-bind: pure functions.

Source: srun(1) of Slurm 22.05. `closest` is all of them here, of which each host keeps those that are near
(rm_gpu_near.py).
"""

import re

KNOWN = "none, closest, single:TASKS, per_task:GPUS, map_gpu:LIST, mask_gpu:LIST"
SINGLE = re.compile(r"(single|per_task):0*([1-9]\d{0,3})\Z", re.ASCII)
TIMES = r"(?:\*\d{1,4})?"  # an entry that is given so often
MAP = re.compile(r"map_gpu:(\d{1,4}%s(?:,\d{1,4}%s)*)\Z" % (TIMES, TIMES), re.ASCII)
HEX = r"(?:0x)?[0-9a-fA-F]{1,64}" + TIMES
MASK = re.compile(r"mask_gpu:(%s(?:,%s)*)\Z" % (HEX, HEX), re.ASCII)


def is_known(text):
    return text in ("", "none", "closest") or any(one.match(text) for one in (SINGLE, MAP, MASK))


def chosen(text, gpus, count):
    """For each of `count` tasks those of `gpus` that it sees. ValueError: it names one that is not there."""
    if not gpus or text in ("", "none", "closest"):
        return [list(gpus)] * count
    found = SINGLE.match(text)
    if found and found.group(1) == "single":
        each = int(found.group(2))
        return [[gpus[task // each % len(gpus)]] for task in range(count)]
    if found:
        each = int(found.group(2))
        if each * count > len(gpus):
            raise ValueError("%d tasks need %d GPUs, and there are %d" % (count, each * count, len(gpus)))
        return [gpus[task * each : (task + 1) * each] for task in range(count)]
    found = MAP.match(text)
    if found:
        sets = [[int(word)] for word in _repeated(found.group(1))]
    else:
        found = MASK.match(text)
        if not found:
            raise ValueError("it is not known")
        masks = [int(word, 16) for word in _repeated(found.group(1))]
        sets = [[bit for bit in range(mask.bit_length()) if mask >> bit & 1] for mask in masks]
    beyond = [number for one in sets for number in one if number >= len(gpus)]
    if beyond:
        raise ValueError("there is no GPU %d" % beyond[0])
    return [[gpus[number] for number in sets[task % len(sets)]] for task in range(count)]


def _repeated(text):
    """`0*2,1` is 0, 0, 1."""
    for entry in text.split(","):
        word, _, times = entry.partition("*")
        yield from [word] * (int(times) if times else 1)
