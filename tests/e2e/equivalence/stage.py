"""Runs playbooks on hosts of their own, two at a time, and keeps what came of each.

rm runs them all at once; Ansible those of which there is no record, and those whose record does not show that
both do the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rm.lab import Lab
from tests.e2e.equivalence import recorded
from tests.e2e.equivalence.by_rm import run_rm
from tests.e2e.equivalence.outcome import Run
from tests.e2e.equivalence.recipe import Recipe
from tests.e2e.equivalence.snapshot import CHANGED, State, hide_homes, look, since, snapshot
from tests.e2e.equivalence.tools import Place, run_ansible

AT_A_TIME = 2  # as many as CI has processors


@dataclass(slots=True)
class Played:
    """What a playbook came to under one tool, at a place. `states` follow the runs, in order; per host. The
    second run is left out where the first changed nothing."""

    place: Place
    runs: list[Run] = field(default_factory=list)
    states: list[dict[str, State]] = field(default_factory=list)

    def seen(self, index: int, host: str, paths: list[str]) -> State:
        """These paths on a host, as far as they are there, after the runs (of which `index` is one)."""
        found = look(self.place.lab, self.place.hosts[host], paths) if paths else {}
        state: State = self.place.plain(found)
        return state


MakeLab = Callable[[int], Lab]
Chain = Sequence[Recipe]


class Stage:
    """`make_lab` brings a lab up of so many hosts. The playbooks of a chain are run on the same hosts, one
    after the other. `config` is an rm.toml for rm's runs."""

    def __init__(
        self, chains: Sequence[Chain], make_lab: MakeLab, directory: Path, config: Path | None = None
    ) -> None:
        self._make_lab, self._directory, self._config = make_lab, directory, config
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._played: dict[tuple[str, str], Future[Played]] = {}
        self._chains = {recipe.name: chain for chain in chains for recipe in chain}
        records = {recipe.name: recorded.read(recipe) for chain in chains for recipe in chain}
        self._records = {name: record for name, record in records.items() if record}
        unknown = [chain for chain in chains if any(recipe.name not in self._records for recipe in chain)]
        # first of all, so that their hosts have the same names in both labs
        self._begin("rm", [*unknown, *(chain for chain in chains if chain not in unknown)])
        self._begin("ansible", unknown)

    def _begin(self, tool: str, chains: Sequence[Chain]) -> None:
        if not chains:
            return
        counts = [max(recipe.hosts for recipe in chain) for chain in chains]
        lab = self._make_lab(sum(counts))
        hide_homes(lab)
        since_s = time.time()
        (self._directory / tool).mkdir(exist_ok=True)
        names = iter([host.name for host in lab.hosts])
        for chain, count in zip(chains, counts, strict=True):
            hosts = [next(names) for _ in range(count)]
            for recipe in chain:
                self._played[tool, recipe.name] = Future()
            self._pool.submit(self._play_all, tool, chain, lab, hosts, since_s)

    def played(self, recipe: Recipe) -> Played:
        """Waits for rm's runs, of which the first is the one in check mode."""
        return self._played["rm", recipe.name].result()

    def recorded(self, recipe: Recipe) -> recorded.Recorded | None:
        """What Ansible did once, if that is known."""
        return self._records.get(recipe.name)

    def by_ansible(self, recipe: Recipe) -> Played:
        """Waits for Ansible's runs, which begin now where a record of them was to do."""
        if ("ansible", recipe.name) not in self._played:
            self._begin("ansible", [self._chains[recipe.name]])
        return self._played["ansible", recipe.name].result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _play_all(self, tool: str, chain: Chain, lab: Lab, hosts: Sequence[str], since_s: float) -> None:
        for recipe in chain:
            names = dict(zip(recipe.names, hosts, strict=False))
            place = Place(lab, names, self._directory / tool / recipe.name, self._config)
            try:
                self._played[tool, recipe.name].set_result(self._play(tool, recipe, place, since_s))
            except BaseException as problem:
                self._played[tool, recipe.name].set_exception(problem)

    def _play(self, tool: str, recipe: Recipe, place: Place, since_s: float) -> Played:
        played = Played(place)
        for name in recipe.dead:
            place.lab.kill_sshd(place.hosts[name])
        before = {name: {**look(place.lab, host, CHANGED), **snapshot(place.lab, host, since_s)}
                  for name, host in place.hosts.items()}  # fmt: skip
        modes = (False, False) if tool == "ansible" else (True, False, False)
        for check in modes:
            run = run_ansible(recipe, place) if tool == "ansible" else run_rm(recipe, place, check)
            played.runs.append(run)
            states = {}
            for name, host in place.hosts.items():
                seen = snapshot(place.lab, host, since_s)
                states[name] = {path: since(fact, before[name].get(path)) for path, fact in seen.items()
                                if fact != before[name].get(path)}  # fmt: skip
            played.states.append(place.plain(states))
            if not check and not any(counts["changed"] for counts in run.recap.values()):
                break  # a run that changed nothing is its own repetition
        return played


def complete(
    one: tuple[Played | recorded.Recorded, int], other: tuple[Played, int], host: str
) -> tuple[State, State]:
    """What changed on either host after a run (its index), on both.

    What only one tool touched is, on the other's host, as it always was there.
    """
    sides = []
    for (mine, index), (theirs, at) in ((one, other), (other, one)):
        state = mine.states[index][host]
        missing = theirs.states[at][host].keys() - state.keys()
        sides.append({**state, **mine.seen(index, host, sorted(missing))})
    return sides[0], sides[1]
