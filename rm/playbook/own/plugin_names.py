"""The names of the filters or tests that a file of plug-ins has, read from its text: no code of it runs."""

from __future__ import annotations

import ast
import re

from rm.compiled_later import compiled_later
from rm.python_text import parsed
from rm.quick_dataclass import dataclass

_OPTION_OF_VARIABLE = compiled_later(rb"^\s+vars:\s*(?:\[|$)", re.MULTILINE)
_CLASSES = {"filter": ("FilterModule", "filters"), "test": ("TestModule", "tests")}


@dataclass(frozen=True, slots=True)
class Names:
    """`sure`: these are all. Otherwise the file makes its names up, and any of these may be one."""

    names: frozenset[str]
    sure: bool


def names_in(text: bytes, kind: str) -> Names:
    """Of a "filter" or a "test" file. Raises SyntaxError or ValueError where the text is no Python."""
    tree = parsed(text)
    literal = _literal(tree, *_CLASSES[kind])
    if literal is not None:
        return Names(literal, True)
    wanted, found = _CLASSES[kind][0], set[str]()
    bound = [node for node in ast.walk(tree) if wanted in _binds(node) or "*" in _binds(node)]
    if not bound:  # a file that others import
        return Names(frozenset(), True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        found |= _binds(node)
    return Names(frozenset(name for name in found if name.isidentifier()), False)


def refusal_of(text: bytes) -> str:
    """Why rm does not run a file of `lookup_plugins/`, as a clause; "" when it does: one that asks for the
    play's variables, which rm does not hand out. Raises SyntaxError or ValueError where the text is no
    Python."""
    tree = parsed(text)
    if _OPTION_OF_VARIABLE.search(text):
        return "an option of its DOCUMENTATION takes a variable's value (vars), which rm does not hand out"
    passed = {
        id(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for keyword in node.keywords
        if (node.func.attr, keyword.arg) == ("set_options", "var_options")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "_templar":
            return f"it uses _templar (line {node.lineno}), which rm does not hand out"
        if isinstance(node, ast.Name) and node.id == "variables" and id(node) not in passed:
            return f"it uses the play's variables (line {node.lineno}), which rm does not hand out"
    return ""


def _binds(node: ast.AST) -> set[str]:
    """The names that a statement, or a part of it, gives a meaning; "*" stands for any."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {one.asname or one.name for one in node.names}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def _literal(tree: ast.Module, class_name: str, method: str) -> frozenset[str] | None:
    """The keys, where the method of the class does nothing but return a mapping that is written there."""
    for one in tree.body:
        if not isinstance(one, ast.ClassDef) or one.name != class_name:
            continue
        methods = [part for part in one.body if isinstance(part, ast.FunctionDef) and part.name == method]
        lines = [part for part in methods[0].body if not _is_text(part)] if len(methods) == 1 else []
        value = lines[0].value if len(lines) == 1 and isinstance(lines[0], ast.Return) else None
        if not isinstance(value, ast.Dict):
            return None
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        return frozenset(map(str, keys)) if all(isinstance(key, str) for key in keys) else None
    return None


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
