"""Whose fault bad pairs are: a host's whose pairs are mostly bad, while those of the others are not."""

from __future__ import annotations

from collections.abc import Iterable, Set

Pair = tuple[str, str]  # in the order of the names


def pair(a: str, b: str) -> Pair:
    return (a, b) if a <= b else (b, a)


def blamed(judged: Iterable[Pair], bad: Set[Pair]) -> list[str]:
    """The hosts at fault, the worst first.

    One at a time: the host with the largest share of bad pairs, if that is more than half, if it was
    judged with two others at least, and if the pairs without it are better than its own. With one
    peer, or when all pairs are equally bad (a switch), nobody can tell: no host is blamed.
    """
    rest = set(judged)
    wrong = rest & set(bad)
    found: list[str] = []
    while wrong:
        total: dict[str, int] = {}
        failed: dict[str, int] = {}
        for one in rest:
            for host in one:
                total[host] = total.get(host, 0) + 1
                failed[host] = failed.get(host, 0) + (one in wrong)
        worst = min(total, key=lambda h: (-failed[h] / total[h], -failed[h], h))
        share = failed[worst] / total[worst]
        others = len(rest) - total[worst]
        elsewhere = (len(wrong) - failed[worst]) / others if others else 0.0
        if share <= 0.5 or total[worst] < 2 or elsewhere >= share:
            break
        found.append(worst)
        rest = {p for p in rest if worst not in p}
        wrong &= rest
    return found
