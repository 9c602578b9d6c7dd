"""Tests of paths look at the control machine; what tasks have just done there counts."""

from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.sources import ThisMachine
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.run.lookups import seeker
from rm.playbook.template.template import Layer, Scope, evaluate
from tests.unit.playbook_world import World


def value(text: str) -> object:
    return evaluate(text, Scope([Layer({}, False)], seek=seeker(LocalFiles(), (), ThisMachine())))


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    (tmp_path / "l").symlink_to("f")
    (tmp_path / "dead").symlink_to("none")
    for what, yes, no in (
        ("file", "f", "."), ("is_file", "l", "none"), ("directory", ".", "f"), ("is_dir", ".", "l"),
        ("link", "l", "f"), ("exists", "f", "dead"), ("ansible.builtin.link_exists", "dead", "none"),
    ):  # fmt: skip
        assert value(f"{{{{ '{tmp_path}/{yes}' is {what} }}}}") is True, what
        assert value(f"{{{{ '{tmp_path}/{no}' is {what} }}}}") is False, what
    assert value("{{ '/' is mount }}") is True
    assert value(f"{{{{ '{tmp_path}/f' is same_file('{tmp_path}/l') }}}}") is True
    assert value(f"{{{{ ['{tmp_path}', '{tmp_path}/f'] | select('file') | list }}}}") == [f"{tmp_path}/f"]
    with pytest.raises(TemplateProblem, match="No such file"):
        value(f"{{{{ '{tmp_path}/none' is same_file('/') }}}}")


class Counting(World):
    """Notes how many steps travel at once."""

    sizes: list[int]

    def _carry_out(self, part: Any, name: str, batch: Any) -> None:
        self.sizes = [*getattr(self, "sizes", []), len(batch.steps)]
        super()._carry_out(part, name, batch)


@pytest.mark.parametrize(("connection", "sizes"), [("local", [1, 1]), ("ssh", [2])])
def test_a_task_of_this_machine_is_over_before_the_next_template(connection: str, sizes: list[int]) -> None:
    head = f"- hosts: all\n  gather_facts: false\n  connection: {connection}\n"
    world = Counting(head + "  tasks:\n  - command: a\n  - command: b\n", hosts=("a",))
    world.run()
    assert world.sizes == sizes
