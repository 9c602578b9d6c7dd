"""The shipped playbooks under ansible-core and under rm, on fresh hosts: both do the same, twice.

What is compared is what `parts.py` says. rm's own modules (`rm_drain`, `rm_resume`, `rm_burn_in`,
`rm_burn_in_network`) exist for rm only: under Ansible an action of the test stands in for each, which does
nothing, and what these tasks came to is not compared; all other tasks are, and the hosts' end state. `drain`
needs a daemon: `test_drain.py`.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.shipped import shipped_directory
from tests.e2e.equivalence.judge import compare
from tests.e2e.equivalence.recipe import Differs, Recipe
from tests.e2e.equivalence.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
PLAYBOOKS = shipped_directory("playbooks")
AGENTS = shipped_directory("agents")
# the hosts share this machine: what a path carries of the usual throughput tells what else runs here
SMALL = (
    "rm_burn_in_seconds=1 rm_burn_in_memory_percent=1 rm_burn_in_disk_mb=8 rm_burn_in_network_seconds=0.2 "
    "rm_burn_in_max_loss_pct=90 rm_burn_in_min_share_pct=0"
)


def _needs(name: str, found: set[str]) -> set[str]:
    """`found` with the agents' files that one of them needs to start."""
    if name not in found:
        found.add(name)
        for node in ast.parse((AGENTS / f"{name}.py").read_text()).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rm_"):
                _needs(str(node.module), found)
            elif isinstance(node, ast.Import):
                for one in node.names:
                    if one.name.startswith("rm_"):
                        _needs(one.name, found)
    return found


# the playbooks of a chain are run on the same hosts, one after the other; bootstrap.yml imports agents.yml
CHAINS = [
    [
        Recipe(PLAYBOOKS / "bootstrap.yml", moments=("Look at the clock", "Start the agent once"),
               unordered=("Programs",), check={"The agent greets": "skipped"},
               arguments=("-e", "rm_agents_dir={here}/agents", "-e", "rm_version=1.2.2")),
        Recipe(PLAYBOOKS / "probes.yml", moments=("Probe once", "The probe was answered"),
               check={"The probe was answered": "skipped"}),
        Recipe(PLAYBOOKS / "shaping.yml", arguments=("-e", "rm_interface=eth0"),
               moments=("Ask the agent what the kernel offers", "Try a class",
                        "Say what the kernel offers", "Say how traffic is classified"),
               check={"Say how traffic is classified": "skipped",
                      "The packet went through its class": "skipped"}),
        Recipe(PLAYBOOKS / "upgrade.yml", moments=("Start the agent once",), unordered=("Programs",),
               check={"The agent greets": "skipped"},
               arguments=("-e", "rm_agents_dir={here}/agents", "-e", "rm_version=1.2.4")),
        Recipe(PLAYBOOKS / "uninstall.yml"),
    ],
    [Recipe(PLAYBOOKS / "burn_in.yml", hosts=2, arguments=("-e", SMALL), differs=(
        Differs("first: two: recap ok", 2, 1, "rm_burn_in_network tests all hosts of the play at once"),))],
    [Recipe(PLAYBOOKS / "rotate_keys.yml", collection="ansible.posix",
            arguments=("-e", "rm_new_key={here}/new", "-e", "rm_old_key={here}/old",
                       "-e", "rm_known_hosts={known_hosts}"))],
]  # fmt: skip
RECIPES = [recipe for chain in CHAINS for recipe in chain]


# the agents' programs that each playbook copies, in the order of the chain
COPIED = {
    "bootstrap": {"rm_agent", "rm_probe"},
    "upgrade": {"rm_agent", "rm_probe"},
}
# a file that is copied costs Ansible half a second: a program is one here, with all that it imports
WHOLE = """\
import os, sys
from importlib.util import spec_from_loader
SOURCES = {sources!r}
class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_loader(name, Sources) if name in SOURCES else None
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        module.__file__ = os.path.join(os.path.dirname(os.path.abspath(__file__)), module.__name__ + ".py")
        exec(compile(SOURCES[module.__name__], module.__file__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sources)
exec(compile(SOURCES[{name!r}], __file__, "exec"))
"""


def _whole(name: str) -> str:
    sources = {one: (AGENTS / f"{one}.py").read_text() for one in sorted(_needs(name, set()))}
    return WHOLE.format(sources=sources, name=name)


def _prepare(directory: Path) -> None:
    """What the playbooks read on the control machine: the same for both tools."""
    for tool in ("ansible", "rm"):
        keys = directory / tool / "rotate_keys"
        keys.mkdir(parents=True)
        for playbook, names in COPIED.items():
            agents = directory / tool / playbook / "agents"
            agents.mkdir(parents=True)
            for name in names:
                (agents / f"{name}.py").write_text(_whole(name))
        for name in _needs("rm_shape", set()):  # of which shaping.yml imports some
            shutil.copy2(AGENTS / f"{name}.py", directory / tool / "bootstrap/agents")
        with (directory / tool / "upgrade/agents/rm_agent.py").open("a") as program:
            program.write("# a newer one\n")
        for name in ("new", "old"):
            if tool == "ansible":
                command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(keys / name)]
                subprocess.run(command, check=True)
            else:
                for file in (name, f"{name}.pub"):
                    shutil.copy2(directory / "ansible/rotate_keys" / file, keys / file)


@pytest.fixture(scope="module")
def stage(make_module_lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("shipped")
    _prepare(directory)
    chains = [chain for chain in CHAINS if all(recipe.possible for recipe in chain)]
    made = Stage(chains, lambda hosts: make_module_lab(zones=1, hosts=hosts), directory)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_both_do_the_same_and_check_mode_foretells_it(stage: Stage, recipe: Recipe) -> None:
    compare(stage, recipe)
