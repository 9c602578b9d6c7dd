"""The documents tell the truth where a program can tell: commands, links, pictures, files, codes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from rm import config, errors
from rm.cli.ending import BROKEN_PIPE, DEFECT, INTERRUPTED
from rm.cli.main import JOB_VERBS, VERBS, refuse_what_rm_would_delete
from tests.docs_blocks import DOCS, ROOT, found_by_click, words_of
from tests.examples import try_each

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# words of grammars (ID, [OPTIONS], NAME...) make a line a form, not a command
FORM = re.compile(r"…|\.\.\.|\[OPTIONS\]|\bCOMMAND\b|\bVERB\b")


def documents() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in DOCS}


def commands() -> Iterator[tuple[str, str]]:
    """(where, command line) of every `rmx …` and `rm VERB …` in a sentence that a reader could type."""
    for name, text in documents().items():
        for span in re.findall(r"`((?:rmx|rm) [^`]+)`", text):
            for part in re.split(r"&&|\||;|\$\(|\beval \"", span):
                found = re.match(r"\s*(?:until |do |then )*((?:rmx|rm) \S.*)", part)
                if found and not FORM.search(found[1]):
                    yield name, found[1].rstrip(') "')


LINES = sorted(set(commands()))


def parse(words: list[str]) -> None:
    """Let click parse the words without running anything; raises where a user would see an error."""
    command, parent, rest = found_by_click(words)
    if any(word in ("-h", "--help", "--version") for word in rest):
        return
    if isinstance(command, click.Group) and not rest:
        return  # a group that a sentence names
    # a sentence may name a command without the operands that it needs
    context = click.Context(command, info_name=command.name, parent=parent, **command.context_settings)
    parser = command.make_parser(context)
    _, operands, _ = parser.parse_args(list(rest))
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    most = sum(a.nargs for a in arguments) if all(a.nargs > 0 for a in arguments) else None
    if not context.allow_extra_args and most is not None:
        assert len(operands) <= most, f"superfluous words: {operands[most:]}"


def test_the_documents_show_commands() -> None:
    assert len(LINES) > 60
    assert {name for name, _ in LINES} >= {
        "ARCHITECTURE.md",
        "docs/cli.md",
        "docs/lab.md",
        "docs/playbooks.md",
    }


def test_every_command_parses() -> None:
    try_each(LINES, parses, ": ".join)


def parses(found: tuple[str, str]) -> None:
    words = words_of(found[1])
    if words[0] == "rm":
        if words[1] not in JOB_VERBS:
            return  # the real rm's
        if not any(word.startswith("--") for word in words[2:]) and len(words) > 2:
            with pytest.raises(errors.UsageError):  # shown as what is refused
                refuse_what_rm_would_delete(words[1:])
        if words[1:] == ["submit", "train.sh"] or words[2:3] == ["--job"]:
            return
    parse(words[1:])


def test_every_verb_is_told_of() -> None:
    everything = " ".join(documents().values())
    assert [
        verb for verb in VERBS if f"rmx {verb}" not in everything and f"rm {verb}" not in everything
    ] == []


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(re.sub(r"`[^`]*`", "", path.read_text())):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        assert goal.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(goal), f"{target}: there is no such heading"


# what CONTRIBUTING.md adds
ADDED = {
    "rm/policies/queue/shortest.py", "rm/playbook/modules/modprobe.py", "rm/cli/hosts/zones.py",
}  # fmt: skip


def test_files_that_are_named_exist() -> None:
    named = re.compile(
        r"`((?:rm|agents|playbooks|tests|docs|examples|migrations|packaging|scripts|bench)/[\w./-]+)`"
    )
    missing = [
        f"{name}: {path}"
        for name, text in documents().items()
        for path in named.findall(text)
        if not (ROOT / path).exists()
        if path not in ADDED
    ]
    assert missing == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda p: p.name)
def test_pictures_are_pictures(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700


def test_the_architecture_has_its_picture() -> None:
    shown = [t for t in LINK.findall((ROOT / "ARCHITECTURE.md").read_text()) if t.endswith(".svg")]
    assert shown == ["docs/images/architecture.svg"]


def test_exit_codes_are_those_of_the_errors() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.RmError)]
    signals = {INTERRUPTED, BROKEN_PIPE, DEFECT}
    assert told == {0, *signals, *(kind.exit_code for kind in kinds)}
    # whose state does not allow the request
    assert {kind.exit_code for kind in kinds if kind.http_status == 409} == {6}


def test_http_statuses_are_those_of_the_errors() -> None:
    text = (ROOT / "docs/http-api.md").read_text()
    told = {name: int(status) for name, status in re.findall(r"`(\w+)` (\d{3})", text)}
    assert told
    for name, status in told.items():
        assert getattr(errors, name).http_status == status, name


def test_keys_of_the_configuration_exist() -> None:
    known = {
        f"{section}.{key}"
        for section, keys in tomllib.loads((ROOT / "rm.toml").read_text()).items()
        for key in keys
    }
    named = re.compile(rf"`((?:{'|'.join(config.SECTIONS)})\.[a-z_]+)`")
    wrong = {
        key
        for text in documents().values()
        for key in named.findall(text)
        if key not in known and not key.endswith((".py", ".md", ".toml", ".jsonl"))
    }
    assert wrong == set()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for text in documents().values() for t in re.findall(r"\bmake ([a-z-]+)(?=[`\s]|$)", text)}
    prose = {"all", "it", "placement", "them", "hosts"}  # "make" in a sentence
    assert named - prose <= targets


PIN = re.compile(r"([a-z0-9-]+)==[A-Za-z0-9.]+(?: ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)")


def _locked(name: str) -> set[str]:
    """The packages of a lock, of which each line but comments is a pin with hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    assert not PIN.sub("", text).strip()
    return {pin[1] for pin in PIN.finditer(text)}


def _names(wanted: list[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", one)[0]).lower() for one in wanted}


def test_the_locks_have_hashes_and_no_test_package_is_needed_to_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    needed = _names([*project["project"]["dependencies"], *extras["postgres"]])
    run, test = _locked("requirements.lock"), _locked("requirements-test.lock")
    assert needed <= run <= test
    assert _names([*extras["test"], *project["build-system"]["requires"]]) <= test
    # every pin to run is of what rm needs, or what that needs in turn
    reached, new = set(needed), set(needed)
    while new:
        asked = [text for one in new for text in _requirements(one) if "extra ==" not in text]
        new = _names(asked) & run - reached
        reached |= new
    assert run - reached <= {"psycopg-binary", "tzdata", "colorama"}  # an extra's, and other systems'
    assert not run & (_names(extras["test"]) - needed)


def _requirements(package: str) -> list[str]:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # of another system
        return []


def test_scripts_are_shell() -> None:
    scripts = sorted((ROOT / "scripts").glob("*.sh"))
    assert scripts
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True)


def test_each_test_that_the_documents_name_exists() -> None:
    named = {name for text in documents().values() for name in re.findall(r"`(\w+/\w+\.py::test_\w+)`", text)}
    assert len(named) > 50
    for file, _, test in sorted(name.partition("::") for name in named):
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {test}"
