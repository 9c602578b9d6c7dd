"""The shipped playbooks under ansible-core and under rm, on fresh hosts: both do the same, twice.

What is compared is what `parts.py` says. rm's own modules (`rm_drain`, `rm_resume`, `rm_burn_in`,
`rm_burn_in_network`) exist for rm only: under Ansible an action of the test stands in for each, which does
nothing, and what these tasks came to is not compared; all other tasks are, and the hosts' end state. `drain`
needs a daemon: `test_drain.py`.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from rm.adapters.playbook.shipped import shipped_directory
from rm.lab import Lab
from tests.e2e.equivalence.judge import compare
from tests.e2e.equivalence.recipe import Differs, Recipe
from tests.e2e.equivalence.stage import Played, Stage
from tests.e2e.equivalence.tools import Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
PLAYBOOKS = shipped_directory("playbooks")
AGENTS = shipped_directory("agents")
READS = (PLAYBOOKS,)
# the hosts share this machine: what a path carries of the usual throughput tells what else runs here
SMALL = (
    "rm_burn_in_seconds=1 rm_burn_in_memory_percent=1 rm_burn_in_disk_mb=8 rm_burn_in_network_seconds=0.2 "
    "rm_burn_in_max_loss_pct=90 rm_burn_in_min_share_pct=0"
)


# the playbooks of a chain are run on the same hosts, one after the other; bootstrap.yml imports agents.yml
CHAINS = [
    [
        Recipe(PLAYBOOKS / "bootstrap.yml", reads=READS, facts_of_machine=True,
               moments=("Look at the clock", "Start the agent once"),
               unordered=("Programs",), check={"The agent greets": "skipped"},
               arguments=("-e", "rm_agents_dir={here}/agents", "-e", "rm_version=1.2.2")),
        Recipe(PLAYBOOKS / "probes.yml", reads=READS,
               moments=("Probe once", "The probe was answered"), check={"The probe was answered": "skipped"}),
        Recipe(PLAYBOOKS / "shaping.yml", reads=READS, facts_of_machine=True,
               arguments=("-e", "rm_interface=eth0"),
               moments=("Ask the agent what the kernel offers", "Try a class",
                        "Say what the kernel offers", "Say how traffic is classified"),
               check={"Say how traffic is classified": "skipped",
                      "The packet went through its class": "skipped"}),
        Recipe(PLAYBOOKS / "upgrade.yml", reads=READS, moments=("Start the agent once",),
               unordered=("Programs",), check={"The agent greets": "skipped"},
               arguments=("-e", "rm_agents_dir={here}/agents", "-e", "rm_version=1.2.4")),
        Recipe(PLAYBOOKS / "uninstall.yml", reads=READS, moments=("Look how sshd is set up",)),
    ],
    [Recipe(PLAYBOOKS / "burn_in.yml", reads=READS, hosts=2, arguments=("-e", SMALL), differs=(
        Differs("first: two: recap ok", 2, 1, "rm_burn_in_network tests all hosts of the play at once"),))],
    [Recipe(PLAYBOOKS / "rotate_keys.yml", reads=READS, collection="ansible.posix",
            arguments=("-e", "rm_new_key={here}/new", "-e", "rm_old_key={here}/old",
                       "-e", "rm_known_hosts={known_hosts}"))],
]  # fmt: skip
RECIPES = [recipe for chain in CHAINS for recipe in chain]


# the programs that each playbook copies, in the order of the chain; some are what shaping.yml imports
COPIED = {
    "bootstrap": ("rm_agent", "rm_kernel", "rm_probe", "rm_shape"),
    "upgrade": ("rm_agent", "rm_probe"),
}
ON_HOSTS = "/run/rm-agents"  # the agents, on each host
STATE = "/var/lib/rm"
# what is copied in an agent's place: it is the same whatever the agents are, and costs Ansible the least
LEADS = """\
import sys
sys.path.append({place!r})
with open({place!r} + "/{name}.py", encoding="utf-8") as file:
    exec(compile(file.read(), __file__, "exec"))
"""


def _prepare(directory: Path) -> None:
    """What the playbooks read on the control machine: the same for both tools, and in each run."""
    for tool in ("ansible", "rm"):
        keys = directory / tool / "rotate_keys"
        keys.mkdir(parents=True)
        for playbook, names in COPIED.items():
            agents = directory / tool / playbook / "agents"
            agents.mkdir(parents=True)
            for name in names:
                (agents / f"{name}.py").write_text(LEADS.format(place=ON_HOSTS, name=name))
        with (directory / tool / "upgrade/agents/rm_agent.py").open("a") as program:
            program.write("# a newer one\n")
        for name in ("new", "old"):
            _write_key(keys / name)


def _write_key(path: Path) -> None:
    """A key pair that follows from its name."""
    key = Ed25519PrivateKey.from_private_bytes(path.name.encode().ljust(32))
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + f" {path.name}\n".encode())


class _Stage(Stage):
    """Where the agents' state is looked at by the playbooks only: what the agents make there is theirs, and
    some machines have such a folder themselves."""

    def _play(self, tool: str, recipe: Recipe, place: Place, since_s: float) -> Played:
        played = super()._play(tool, recipe, place, since_s)
        for state in (state for states in played.states for state in states.values()):
            for path in [path for path in state if f"{path}/".startswith(f"{STATE}/")]:
                del state[path]
            state.pop(str(Path(STATE).parent), None)  # which tells whether it is there
        return played


def _with_agents(lab: Lab) -> Lab:
    """With the agents, and what Python has compiled of them; without this machine's state of rm."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(AGENTS, "rm-agents")
    for host in lab.hosts:
        fresh = ["sh", "-e", "-c", f"rm -rf {STATE} && tar -x -C /run"]
        done = lab.exec(host.name, fresh, packed.getvalue())
        assert done.returncode == 0, done.stderr
    return lab


@pytest.fixture(scope="module")
def stage(make_module_lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("shipped")
    _prepare(directory)
    chains = [chain for chain in CHAINS if all(recipe.possible for recipe in chain)]
    made = _Stage(chains, lambda hosts: _with_agents(make_module_lab(zones=1, hosts=hosts)), directory)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_both_do_the_same_and_check_mode_foretells_it(stage: Stage, recipe: Recipe) -> None:
    compare(stage, recipe)
