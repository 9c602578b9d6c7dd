from itertools import pairwise

from ansible.errors import AnsibleFilterError


def shout(value, times=1, *, end="!"):
    return value.upper() + end * times


def breaks(value):
    raise AnsibleFilterError(f"no good: {value}")


def pairs(value):
    return dict(pairwise(value))


class FilterModule:
    def filters(self):
        return {"shout": shout, "breaks": breaks, "pairs": pairs, "gen": iter}
