"""Every playbook of the corpus under ansible-core and under rm, on fresh hosts: both do the same, twice.

What is compared: of every task on every host its place, name, module, status, whether its failure was
ignored, the statuses of a loop's items and the values registered by names that both tools know; the recap's
counters; the exit code; and after each run what has changed on the hosts: names, types, modes, owners and
contents. Before its first run rm foretells it with `--check`, on hosts that must then be as they were.

To add a playbook: write `corpus/NAME.yml` for hosts `all` (one host, called `one`), with few tasks, as each
costs Ansible half a second, and `gather_facts: false` unless facts are the theme. The file's head can say
more in YAML, in lines that begin with `#:` (see `recipe.py`): more hosts, arguments, and differences that are
meant, each exactly and with its reason. Task names must be unique in it. Roles are found in `corpus/roles/`,
files in `corpus/files/` and `corpus/templates/`, an inventory of the playbook's own in
`corpus/inventories/NAME/`. `here` is a directory of the run on the control machine. To run one:

    python -m pytest tests/e2e/equivalence -k NAME
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.equivalence.judge import compare
from tests.e2e.equivalence.recipe import Recipe, corpus
from tests.e2e.equivalence.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
CORPUS = corpus()


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, make_module_lab: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Starts all playbooks that were asked for; the tests wait for theirs."""
    wanted = {item.callspec.params["recipe"].name for item in request.session.items
              if item.path == request.path and "recipe" in item.callspec.params}  # fmt: skip
    recipes = [recipe for recipe in CORPUS if recipe.name in wanted and recipe.possible]
    hosts = sum(recipe.hosts for recipe in recipes) or 1
    labs = [make_module_lab(zones=1, hosts=hosts) for _ in ("ansible", "rm")]
    made = Stage([[recipe] for recipe in recipes], *labs, tmp_path_factory.mktemp("stage"))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("recipe", CORPUS, ids=lambda recipe: recipe.name)
def test_both_do_the_same_and_check_mode_foretells_it(stage: Stage, recipe: Recipe) -> None:
    compare(stage, recipe)
