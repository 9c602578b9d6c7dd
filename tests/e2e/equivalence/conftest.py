"""A lab for the playbooks of a file of tests, and one for those that Ansible runs, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.equivalence.stage import Stage


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
        lambda hosts: make_module_lab(zones=1, hosts=hosts),
        tmp_path_factory.mktemp("stage"),
    )
    try:
        yield made
    finally:
        made.close()
