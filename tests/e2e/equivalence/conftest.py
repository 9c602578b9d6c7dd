"""A lab for the playbooks of a file of tests, and one for those that Ansible runs, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.lab import Lab
from tests.e2e.equivalence.stage import Stage

# of this machine's archives: apt reads tens of megabytes of them each time that it is asked, and they differ
# from machine to machine and from day to day
LISTS = Path("/var/lib/apt/lists")
NO_LISTS = f"mount -t tmpfs -o mode=755 lists {LISTS} && install -d -m 700 -o _apt {LISTS}/partial"
# apt calls it after an update on a machine that happens to have it: it writes files that no record of another
# machine knows, so that Ansible would be asked each time
NO_CATALOG = "rm -f /etc/apt/apt.conf.d/50appstream"


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, make_module_lab: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Starts all playbooks that were asked for; the tests wait for theirs."""
    asked = [item.callspec.params["recipe"] for item in request.session.items
             if item.path == request.path and "recipe" in item.callspec.params]  # fmt: skip
    recipes = [recipe for recipe in asked if recipe.possible]
    made = Stage(
        [[recipe] for recipe in recipes],
        lambda hosts: _without_the_machines(make_module_lab(zones=1, hosts=hosts)),
        tmp_path_factory.mktemp("stage"),
    )
    try:
        yield made
    finally:
        made.close()


def _without_the_machines(lab: Lab) -> Lab:
    """On a system without apt, nothing."""
    for host in lab.hosts:
        if LISTS.is_dir():
            done = lab.exec(host.name, ["sh", "-e", "-c", f"{NO_LISTS} && {NO_CATALOG}"])
            assert done.returncode == 0, done.stderr
    return lab
