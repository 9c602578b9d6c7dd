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
`corpus/inventories/NAME/`, what else only it reads in `corpus/only/NAME/`. `here` is a directory of the run
on the control machine. To run one:

    python -m pytest tests/e2e/equivalence -k NAME

and to keep what Ansible did with it (see `recorded.py`): `make records ARGS="-k NAME"`. A change of what
several playbooks share wants the records of all: `make records`.

The corpus is in parts of about equal length, each a file of tests: files are what the test runner spreads
over the cores.
"""

from __future__ import annotations

import re

from tests.e2e.equivalence.recipe import Recipe, corpus

PARTS = 4


def part(number: int) -> list[Recipe]:
    """The recipes of one part; what is long is given to whichever part is the shortest."""
    lengths = [0] * PARTS
    parts: list[list[Recipe]] = [[] for _ in range(PARTS)]
    for recipe in sorted(corpus(), key=_length, reverse=True):
        shortest = lengths.index(min(lengths))
        lengths[shortest] += _length(recipe)
        parts[shortest].append(recipe)
    return parts[number]


def _length(recipe: Recipe) -> int:
    """Tasks on hosts, about, and as much as some of them for the start of the tool."""
    return recipe.hosts * (4 + len(re.findall(r"^ *- name:", recipe.path.read_text(), re.MULTILINE)))
