"""The house rules, checked: who may import whom, and what the pure rooms may not touch."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from scripts.house import FLOORS, PURE, renewed

ROOT = Path(__file__).parents[1]
LEVEL = {room: len(FLOORS) - i for i, floor in enumerate(FLOORS) for room in floor}
IMPURE_STDLIB = {
    "socket", "subprocess", "random", "secrets", "time", "threading", "selectors", "asyncio",
    "multiprocessing", "sqlite3", "ssl", "http", "urllib", "tempfile", "shutil", "signal",
}  # fmt: skip
PURE_THIRD_PARTY = {"numpy"}
# the types of api and protocol are msgspec's; playbook compiles templates and reads YAML: pure functions
EXTRA = {"api": {"msgspec"}, "playbook": {"jinja2", "jmespath", "yaml"}, "protocol": {"msgspec"}}
ONLY_IN = {
    "sqlalchemy": {
        f"rm/adapters/store/{name}.py"
        for name in (
            "backup",
            "database",
            "history_sql",
            "log_database",
            "opening",
            "playbook_runs_sql",
            "results_sql",
            "schema",
            "statements",
            "set_aside",
            "sql",
            "sql_connections",
            "sql_lease",
            "usage_sql",
        )
    },
    "fabric": {"rm/adapters/hosts/ssh.py"},
    "paramiko": {"rm/adapters/hosts/ssh.py", "rm/adapters/hosts/bounded_transport.py"},
    "apscheduler": {"rm/adapters/cron.py"},
    "cronsim": {"rm/adapters/cron.py"},
    # which runs in Ansible's own Python; besides, only the tests know it, which compare rm with it
    "ansible": {"rm/adapters/playbook/plugin_program.py"},
}
# msgspec learns a type at its first use, which no two threads may do at once: rm/typed.py sees to that
LEARNS_TYPES = re.compile(
    r"msgspec\.(?:convert|msgpack|yaml|toml)\b|from msgspec import .*\b(?:convert|json)\b"
    r"|\bDecoder\((?!\))|json\.decode\([^)]*type="
)
BANNED_NAMES = {"utils", "helpers", "manager", "misc", "common"}
FILES = sorted((ROOT / "rm").rglob("*.py"))
AGENTS = sorted((ROOT / "agents").glob("*.py"))
LINES_MOST = 450


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (*FILES, *AGENTS)}
    long = {name: lines for name, lines in lengths.items() if lines > LINES_MOST}
    assert not long, f"cut these by purpose: {long}"


def statements(block: list[ast.AST]) -> Iterator[ast.AST]:
    """All statements of a block, also those within others: a tenth of what `ast.walk` goes through."""
    for node in block:
        yield node
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            yield from statements(getattr(node, name, ()))


@cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those of a file, also within its functions; many tests ask, and each file is parsed once."""
    found = statements(ast.parse(path.read_text()).body)
    return tuple(node for node in found if isinstance(node, ast.Import | ast.ImportFrom))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found |= {f"{node.module}.{a.name}" for a in node.names if node.module == "rm"}
    return found


def room(module: str) -> str:
    return module.split(".")[1] if module.startswith("rm.") else ""


def broken_rules(path: Path) -> Iterator[str]:
    relative = path.relative_to(ROOT)
    here = relative.parts[1].removesuffix(".py")
    if path.stem in BANNED_NAMES:
        yield f"{relative}: name the idea, not the drawer"
    for module in imports(path):
        top, there = module.split(".")[0], room(module)
        if here in LEVEL and there in LEVEL and there != here and LEVEL[there] >= LEVEL[here]:
            yield f"{relative} ({here}) imports {module} ({there})"
        if here in PURE and top in IMPURE_STDLIB:
            yield f"{relative} is pure but imports {module}"
        allowed = PURE_THIRD_PARTY | EXTRA.get(here, set())
        third_party = {"msgspec", "aiohttp", "click", "rich", *ONLY_IN, "jinja2", "jmespath", "yaml"}
        if here in PURE and top in third_party and top not in allowed:
            yield f"{relative} is pure but imports {module}"
        if top in ONLY_IN and str(relative) not in ONLY_IN[top]:
            yield f"{relative}: only {ONLY_IN[top]} may import {top}"


def test_files_keep_the_rules() -> None:
    """One test of all: a test a file took longer to begin and to report than to look."""
    broken = [rule for path in FILES for rule in broken_rules(path)]
    assert not broken, "\n".join(broken)


def named(path: Path) -> str:
    """The module's name; a package's, for its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    return {named(path): path for path in FILES}


@cache
def imported(path: Path) -> set[str]:
    """The modules of rm that this one imports, also within its functions."""
    found: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & modules().keys() or {node.module}
    return found & modules().keys()


# Packages whose modules may stand beside folders: rooms, and folders of rooms.
PACKAGES = sorted({named(path) for path in FILES if path.name == "__init__.py"} - {"rm"})
# They are found by their names: one file for each module of playbooks.
BY_NAME = {"rm.playbook.modules"}
IN_A_ROW = 33  # above that nobody sees the topics


def test_a_folder_has_few_files_in_a_row() -> None:
    rows = Counter(named(path).rpartition(".")[0] for path in FILES if path.name != "__init__.py")
    long = {package: files for package, files in rows.items() if files > IN_A_ROW and package not in BY_NAME}
    assert not long, f"give their topics folders: {long}"


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_between_folders_of_a_room_run_one_way(package: str) -> None:
    """A module that stands beside folders counts as one of them."""
    inner = f"{package}."

    def part(module: str) -> str:
        return module.removeprefix(inner).split(".")[0]

    graph: dict[str, set[str]] = {}
    for name, path in modules().items():
        if name.startswith(inner):
            others = {part(m) for m in imported(path) if m.startswith(inner)}
            graph.setdefault(part(name), set()).update(others - {part(name)})
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_table_of_rooms_in_the_document_is_the_house() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert renewed(text) == text, "run: python -m scripts.house"


def test_no_imports_run_in_a_circle() -> None:
    graph = {name: imported(path) - {name} for name, path in modules().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_agents_stand_alone() -> None:
    """They run on hosts, where rm is not."""
    assert not [path.name for path in AGENTS for module in imports(path) if module.split(".")[0] == "rm"]


def test_no_python_is_started_that_imports_from_the_working_directory() -> None:
    """Where everybody may write, in /tmp, say, a package rm of somebody else would run."""
    wrong = []
    for path in FILES:
        if "sys.executable" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
            if len(words) > 1 and ast.unparse(words[0]) == "sys.executable":
                wrong += [path] * (ast.unparse(words[1]) not in ("'-I'", "'-P'"))
    assert wrong == []


def test_types_are_learnt_in_one_place() -> None:
    for path in FILES:
        found = LEARNS_TYPES.findall(path.read_text())
        assert not found or path.name == "typed.py", f"{path}: {found}: rm.typed has convert and decoder_of"


LEADER = "rm/daemon/leading/leader.py"
CHANGING = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault",
    "update", "enqueue", "forget_finished", "occupy", "recount", "see_again", "vacate",
}  # fmt: skip


def of_the_state(node: ast.AST) -> bool:
    """Is it something within what a variable `state`, or a cycle's attribute of this name, holds?"""
    inner = node
    while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
        if isinstance(inner, ast.Name) and inner.id == "state":
            return True
        if isinstance(inner, ast.Attribute) and inner.attr == "state" and "cycle" in ast.unparse(inner.value):
            return True
    return False


def written(tree: ast.AST) -> list[str]:
    """What a module writes of the state."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete):
            found += node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            found.append(node.target)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING
        ):
            found.append(node.func)
    return [ast.unparse(one) for one in found if of_the_state(one)]


@pytest.mark.parametrize("code", [
    "state.next_job += 1", "state.submissions[name] = [1]", "del state.jobs[1]", "state.pending.pop(1)",
    "state.jobs_on['h1'].add(2)", "cycle.state.alignment = None", "self._cycle.state.fresh.clear()",
    "state.submissions.setdefault(name, []).append(1)",
])  # fmt: skip
def test_a_write_to_the_state_is_seen(code: str) -> None:
    assert written(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["self.state = x", "x = state.jobs[1]", "made.append(state.jobs[1])", "state = 1"]
)
def test_what_reads_the_state_is_no_write(code: str) -> None:
    assert not written(ast.parse(code))


def test_the_state_is_the_leaders() -> None:
    """It is read by questions to the leader and changed by events, whose one door is the lifecycle."""
    for path in FILES:
        if room(named(path)) in ("daemon", "web"):
            relative, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
            mine = ["self._cycle.state.forget_finished"] if relative == LEADER else []
            assert written(tree) == mine, f"{relative} writes the state: make an event of it"
            assert relative == LEADER or not asks_the_leader(tree), (
                f"{relative} reads the leader's state: ask it"
            )


def asks_the_leader(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("cycle", "_cycle")
        and "leader" in ast.unparse(node.value)
        for node in ast.walk(tree)
    )
