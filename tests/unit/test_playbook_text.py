"""What `rmx playbook run` writes line by line."""

from rm.cli.playbook.text import lines_of
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Progress


def lines(items: tuple[tuple[str, str, str], ...], verbose: bool = False) -> list[str]:
    result = TaskResult("h1", "Agents", "Programs", "copy", "changed", items=items)
    return [line for line, _ in lines_of(Progress("task", result=result), verbose)]


def test_a_few_changed_items_have_a_line_each() -> None:
    assert lines((("a", "changed", ""), ("b", "ok", ""), ("c", "changed", ""))) == [
        "h1: changed   Programs",
        "    changed   a",
        "    changed   c",
    ]


def test_many_changed_items_share_a_line_and_those_that_failed_keep_theirs() -> None:
    many = tuple((f"rm_{n}.py", "changed", "") for n in range(100))
    assert lines((*many, ("bad", "failed", "no room"))) == [
        "h1: changed   Programs",
        "    changed   rm_0.py, rm_1.py, rm_2.py and 97 more",
        "    failed    bad: no room",
    ]
    assert len(lines(many, verbose=True)) == 101
