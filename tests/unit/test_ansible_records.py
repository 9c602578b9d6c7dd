"""The records of what Ansible did in the corpus are those of its playbooks."""

from tests.e2e.equivalence import recorded
from tests.e2e.equivalence.recipe import corpus


def test_each_playbook_has_the_record_of_its_content_and_no_record_is_left_of_another() -> None:
    lasting = [recipe for recipe in corpus() if recorded.lasts(recipe)]
    old = [recipe.name for recipe in lasting if not recorded.is_of(recipe)]
    assert old == [], "`make records` asks Ansible, and writes them down"
    assert {path.stem for path in recorded.RECORDS.iterdir()} == {recipe.name for recipe in lasting}
