"""Runs a playbook under `rmx playbook run`, in a process that has loaded it, and reads what was said."""

from __future__ import annotations

import json
import subprocess

from tests import preloaded
from tests.cluster import RMX, SETTINGS
from tests.e2e.equivalence.outcome import Outcome, Run
from tests.e2e.equivalence.recipe import Recipe
from tests.e2e.equivalence.tools import PATIENCE_S, Place, arguments, config, environment, place_of, short


def run_rm(recipe: Recipe, place: Place, check: bool = False) -> Run:
    settings = place.config or place.directory.with_suffix(".toml")
    if place.config is None:
        patient = "".join(f"{name} = {value}\n" for name, value in SETTINGS["ssh"].items())
        settings.write_text(f'[daemon]\nstate_dir = "{place.directory.parent / "state"}"\n[ssh]\n{patient}')
    env = {**environment(), "RM_CONFIG": str(settings), "ANSIBLE_CONFIG": config(recipe, place)}
    argv = [RMX, "playbook", "run", "--json", "--known-hosts", place.lab.known_hosts]
    argv += ["--check"] if check else []
    argv += arguments(recipe, place)
    if place.lab.mode == "root":
        done = preloaded.run(argv, env=env, cwd=recipe.path.parent, timeout=PATIENCE_S)
    else:  # among the lab's hosts, where no fork of ours is
        inside = place.lab.enter_command([str(word) for word in argv])
        done = subprocess.run(
            inside, env=env, cwd=recipe.path.parent, timeout=PATIENCE_S, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    assert done.stdout, f"rmx said nothing:\n{done.stderr}"
    told = place.plain(json.loads(done.stdout))
    run = Run(done.returncode, recap=told["recap"])
    for host, results in told["results"].items():
        run.tasks[host] = [
            Outcome(
                place=place_of(f"{one['file']}:{one['line']}", recipe),
                name=one["task"],
                module=short(one["module"]),
                status=one["status"],
                ignored=one["ignored"],
                items=tuple(status for _, status, _ in one["items"]),
                result=one["result"],
                might_run=one["might_run"],
            )
            for one in results
        ]
    return run
