"""The daemon's parts are whole when they are made: nobody sets an attribute of another part afterwards."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = sorted([*(ROOT / "rm/daemon").rglob("*.py"), *(ROOT / "rm/bootstrap").rglob("*.py")])
BY_POSITION = 3  # arguments of a part, at most
OF_THE_LIBRARY = {"daemon"}  # of a threading.Timer, which its constructor does not take


def is_changeable_data(node: ast.ClassDef) -> bool:
    """A dataclass that is not frozen: a row of somebody's notes, not a part."""
    for decorator in node.decorator_list:
        text = ast.unparse(decorator)
        if text.startswith("dataclass"):
            return "frozen=True" not in text
    return False


@functools.cache
def fields_of_data() -> set[str]:
    """The fields of all dataclasses of rm that may change."""
    return {
        field.target.id
        for path in (ROOT / "rm").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and is_changeable_data(node)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def targets(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Assign | ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    return [one for target in found for one in ast.walk(target)]


def set_of_others(tree: ast.AST, data: set[str]) -> list[str]:
    """Assignments to attributes of anything but `self`, and `setattr`, apart from fields of data."""
    found = [
        ast.unparse(target)
        for node in ast.walk(tree)
        for target in targets(node)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store | ast.Del)
        if ast.unparse(target.value) != "self" and target.attr not in data
    ]
    return found + [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr"
    ]


@pytest.mark.parametrize("code", [
    "leader.executor = executor", "self.leader.on_jobs = hear", "a = leader.steps = Steps()",
    "leader.a, b = 1, 2", "setattr(leader, 'executor', executor)", "del service.tokens",
])  # fmt: skip
def test_an_attribute_that_is_set_of_another_part_is_seen(code: str) -> None:
    assert set_of_others(ast.parse(code), set())


@pytest.mark.parametrize("code", ["self.leader = leader", "entry.tries += 1", "known = leader.hosts"])
def test_a_part_sets_its_own_attributes_and_keeps_notes(code: str) -> None:
    assert not set_of_others(ast.parse(code), {"tries"})


@pytest.mark.parametrize("path", PARTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_part_is_changed_after_it_was_made(path: Path) -> None:
    found = set_of_others(ast.parse(path.read_text()), fields_of_data() | OF_THE_LIBRARY)
    assert not found, f"{path.relative_to(ROOT)} sets {found}: give it to the constructor, or to `start`"


@pytest.mark.parametrize(
    "path", [path for path in PARTS if "bootstrap" in path.parts], ids=lambda path: path.name
)
def test_parts_get_their_arguments_by_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[0].isupper():
            where = f"{path.name}:{node.lineno}: {node.func.id}"
            assert len(node.args) <= BY_POSITION, f"{where} takes {len(node.args)} arguments by position"
