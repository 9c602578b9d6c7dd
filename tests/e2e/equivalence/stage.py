"""Runs playbooks on hosts of their own, two at a time, and keeps what came of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rm.lab import Lab
from tests.e2e.equivalence.outcome import Run
from tests.e2e.equivalence.recipe import Recipe
from tests.e2e.equivalence.snapshot import ROOTS, State, hide_homes, look, snapshot
from tests.e2e.equivalence.tools import Place, run_ansible, run_rm

AT_A_TIME = 2  # as many as CI has processors


@dataclass(slots=True)
class Played:
    """What a playbook came to under one tool, at a place. `states` follow the runs, in order; per host. The
    second run is left out where the first changed nothing."""

    place: Place
    runs: list[Run] = field(default_factory=list)
    states: list[dict[str, State]] = field(default_factory=list)


class Stage:
    """`labs` are two of the same shape, with as many hosts as all chains together want. The playbooks of a
    chain are run on the same hosts, one after the other. `config` is an rm.toml for rm's runs."""

    def __init__(
        self,
        chains: Sequence[Sequence[Recipe]],
        ansible: Lab,
        rm: Lab,
        directory: Path,
        config: Path | None = None,
    ) -> None:
        self._config = config
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._played: dict[tuple[str, str], Future[Played]] = {}
        for lab in (ansible, rm):
            hide_homes(lab)
        self._since_s = time.time()
        first = 0
        for chain in chains:
            count = max(recipe.hosts for recipe in chain)
            for tool, lab in (("ansible", ansible), ("rm", rm)):
                (directory / tool).mkdir(exist_ok=True)
                names = [host.name for host in lab.hosts[first : first + count]]
                for recipe in chain:
                    self._played[tool, recipe.name] = Future()
                self._pool.submit(self._play_all, tool, chain, lab, names, directory / tool)
            first += count

    def played(self, tool: str, recipe: Recipe) -> Played:
        """Waits for it. With rm the first run is the one in check mode."""
        return self._played[tool, recipe.name].result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _play_all(
        self, tool: str, chain: Sequence[Recipe], lab: Lab, hosts: Sequence[str], directory: Path
    ) -> None:
        for recipe in chain:
            place = Place(
                lab, dict(zip(recipe.names, hosts, strict=False)), directory / recipe.name, self._config
            )
            try:
                self._played[tool, recipe.name].set_result(self._play(tool, recipe, place))
            except BaseException as problem:
                self._played[tool, recipe.name].set_exception(problem)

    def _play(self, tool: str, recipe: Recipe, place: Place) -> Played:
        played = Played(place)
        for name in recipe.dead:
            place.lab.kill_sshd(place.hosts[name])
        before = {name: {**look(place.lab, host, ROOTS), **snapshot(place.lab, host, self._since_s)}
                  for name, host in place.hosts.items()}  # fmt: skip
        modes = (False, False) if tool == "ansible" else (True, False, False)
        for check in modes:
            run = run_ansible(recipe, place) if tool == "ansible" else run_rm(recipe, place, check)
            played.runs.append(run)
            states = {}
            for name, host in place.hosts.items():
                seen = snapshot(place.lab, host, self._since_s)
                states[name] = {path: fact for path, fact in seen.items() if fact != before[name].get(path)}
            played.states.append(place.plain(states))
            if not check and not any(counts["changed"] for counts in run.recap.values()):
                break  # a run that changed nothing is its own repetition
        return played


def complete(one: tuple[Played, int], other: tuple[Played, int], host: str) -> tuple[State, State]:
    """What changed on either host after a run (its index), on both.

    What only one tool touched is, on the other's host, as it always was there.
    """
    sides = []
    for (mine, index), (theirs, at) in ((one, other), (other, one)):
        state = mine.states[index][host]
        missing = theirs.states[at][host].keys() - state.keys()
        seen = look(mine.place.lab, mine.place.hosts[host], sorted(missing)) if missing else {}
        sides.append({**state, **mine.place.plain(seen)})
    return sides[0], sides[1]
