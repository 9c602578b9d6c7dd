"""One part of the corpus under ansible-core and under rm: `parts.py` says what is compared."""

import pytest

from tests.e2e.equivalence.judge import compare
from tests.e2e.equivalence.parts import part
from tests.e2e.equivalence.recipe import Recipe
from tests.e2e.equivalence.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("recipe", part(1), ids=lambda recipe: recipe.name)
def test_both_do_the_same_and_check_mode_foretells_it(stage: Stage, recipe: Recipe) -> None:
    compare(stage, recipe)
