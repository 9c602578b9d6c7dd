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
    peer, or when all pairs are equally bad (a switch), the fault cannot be located: no host is blamed.
    """
    peers: dict[str, list[str]] = {}
    rest = set(judged)
    wrong = rest & set(bad)
    for a, b in rest:
        peers.setdefault(a, []).append(b)
        peers.setdefault(b, []).append(a)
    total = {host: len(others) for host, others in peers.items()}
    failed = dict.fromkeys(total, 0)
    for one in wrong:
        for host in one:
            failed[host] += 1
    pairs, wrongs = len(rest), len(wrong)
    found: list[str] = []
    while wrongs:
        worst = min((h for h in total if total[h]), key=lambda h: (-failed[h] / total[h], -failed[h], h))
        share = failed[worst] / total[worst]
        others = pairs - total[worst]
        elsewhere = (wrongs - failed[worst]) / others if others else 0.0
        if share <= 0.5 or total[worst] < 2 or elsewhere >= share:
            break
        found.append(worst)
        pairs, wrongs = others, wrongs - failed[worst]
        del total[worst], failed[worst]
        for peer in peers[worst]:
            if peer in total:
                total[peer] -= 1
                failed[peer] -= pair(worst, peer) in wrong
    return found
