"""Modules that are not rm's: found, packed, run; refused by name where they cannot be."""

import gc
import weakref
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.checking import problems_of
from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import tasks_of
from rm.playbook.modules import called
from rm.playbook.own.own_module import own_module
from rm.playbook.own.packing import packed_module
from rm.playbook.own.place import Found, Installed, in_collections
from rm.playbook.own.style import style_of
from rm.playbook.read.ansible_settings import Settings, read
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.evaluate import HostPlay, HostState, Options
from tests.own_modules import PYTHON, brought, content_of, core_and_collection
from tests.steps_request import one, run, step


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles()


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    return core_and_collection(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"#!/bin/sh\n. $1\n", "key_value"),
        (b"#!/usr/bin/perl\n# WANT_JSON\n", "want_json"),
        (b'#!/bin/sh\nARGS="<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"\n', "json_args"),
        (b"\x7fELF\0\0", "binary"),
        (b"#!/usr/bin/python\nimport os\nfrom ansible.module_utils.basic import *\n", "python"),
        (b"from ..module_utils.x import y\n", "python"),
        (b"#!/usr/bin/python\n#<<INCLUDE_ANSIBLE_MODULE_COMMON>>\n", "python"),
    ],
)
def test_kinds(text: bytes, kind: str) -> None:
    assert style_of(text, "x").kind == kind


def test_what_runs_on_no_host_is_told() -> None:
    with pytest.raises(BadArgument, match="for Windows"):
        style_of(b"#!powershell\n#Requires -Module Ansible.ModuleUtils.Legacy\n", "win_x")
    with pytest.raises(BadArgument, match="after '#!'"):
        style_of(b"print('{}')\n", "x")


def test_a_module_of_key_and_value(files: LocalFiles, tmp_path: Path) -> None:
    script = '#!/bin/sh\n. "$1"\necho hello\n'
    script += 'echo "{\\"word\\": \\"$word\\", \\"check\\": \\"$_ansible_check_mode\\"}"\n'
    result = brought(files, tmp_path, "mine.sh", script, word="a 'b' $c")
    assert (result["word"], result["check"], result["changed"]) == ("a 'b' $c", "False", False)


def test_a_module_that_reads_json(files: LocalFiles, tmp_path: Path) -> None:
    script = "#!/usr/bin/env python3\n# WANT_JSON\nimport sys\nprint(open(sys.argv[1]).read())\n"
    result = brought(files, tmp_path, "echoes", script, given={"deep": [1, None]}, rc=3)
    assert (result["given"], result["failed"], result["rc"]) == ({"deep": [1, None]}, True, 3)
    script = "#!/bin/sh\nprintf '%s' '{\"ansible_facts\": {\"x\": <<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>}}'\n"
    assert brought(files, tmp_path, "inside", script, n=1)["ansible_facts"]["x"]["n"] == 1


def test_a_module_that_imports_module_utils(files: LocalFiles, tmp_path: Path) -> None:
    result = brought(files, tmp_path, "packs.py", PYTHON, a="4")
    assert (result["a"], result["stdout_lines"], result["ansible_facts"]) == (4, ["x", "y"], {"any": 1})
    assert result["diff"] == ["--- after\n+++ after\n@@ -1 +1 @@\n-a\n+b\n"]
    assert "Unsupported parameters" in brought(files, tmp_path, "packs.py", PYTHON, b=1)["msg"]


def test_what_says_no_json_fails_with_what_it_said(files: LocalFiles, tmp_path: Path) -> None:
    result = brought(files, tmp_path, "garbage.sh", "#!/bin/sh\necho '{ broken'; echo why >&2; exit 7\n")
    assert result["failed"]
    assert "does not answer with JSON: why" in result["msg"]
    assert (result["rc"], result["module_stdout"]) == (7, "{ broken\n")
    result = brought(files, tmp_path, "nobody.sh", "#!/no/such/shell\n")
    assert "which this host does not have" in result["msg"]


def test_without_ansible_core_the_module_is_refused_by_name(files: LocalFiles, tmp_path: Path) -> None:
    files.__dict__["installed"] = Installed()
    with pytest.raises(BadArgument, match=r"'needs' needs ansible\.module_utils.*pip install ansible-core"):
        brought(files, tmp_path, "needs.py", PYTHON)
    (tmp_path / "site.yml").write_text("- hosts: all\n  tasks:\n    - needs: {a: 1}\n")
    with pytest.raises(UsageError, match=r"site\.yml:3: the module 'needs' needs"):
        read_playbook(tmp_path / "site.yml", files)


def test_a_module_with_an_action_plugin_is_refused(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins/two.py").write_text("")
    with pytest.raises(BadArgument, match="'two' has an action plug-in"):
        brought(files, tmp_path, "two.sh", "#!/bin/sh\n")


def test_a_module_that_runs_nowhere_is_an_error_where_a_host_comes_to_it(
    files: LocalFiles, tmp_path: Path
) -> None:
    """Roles for several systems have tasks that a condition leaves out here."""
    for name in ("library/two.sh", "action_plugins/two.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
    windows = tmp_path / "collections/ansible_collections/my/own/plugins/modules"
    windows.mkdir(parents=True)
    for ending in ("py", "ps1"):
        (windows / f"win_shell.{ending}").write_text("")
    text = (
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "  - {my.own.win_shell: $a = 1, when: false}\n  - {two: {a: 1}, when: false}\n  - two: {a: 1}\n"
    )
    (play,) = parse_playbook(text, str(tmp_path / "site.yml"), files).plays
    told = [task.unknown for task in tasks_of(play.tasks)]
    assert "is a module for Windows" in told[0]
    assert "has an action plug-in" in told[1]
    run = HostPlay(play, HostState("h", {}), files, Options(str(tmp_path)))
    while run.next_batch() is not None:
        run.record([])
    assert [result.status for result in run.results] == ["skipped", "skipped", "failed"]
    assert "has an action plug-in" in run.results[-1].message


def test_filters_that_come_along_are_known_in_template_files(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {'own_up': str.upper}\n"
    )
    (tmp_path / "site.yml").write_text("- hosts: all\n  tasks:\n  - template: {src: a.j2, dest: /a}\n")
    (tmp_path / "a.j2").write_text("{{ a | own_up }}\n")
    assert problems_of(tmp_path / "site.yml", files) == []


def test_the_nearest_library_is_meant_and_beats_rm_s_own(files: LocalFiles, tmp_path: Path) -> None:
    role = tmp_path / "roles/r"
    for place, word in ((tmp_path, "playbook"), (role, "role")):
        (place / "library").mkdir(parents=True)
        (place / "library/apt.sh").write_text(f'#!/bin/sh\necho \'{{"of": "{word}"}}\'\n')
    assert one(own_module(files, str(tmp_path), [str(role)], "apt"))["of"] == "role"
    assert one(own_module(files, str(tmp_path), [], "apt"))["of"] == "playbook"
    assert own_module(files, str(tmp_path), [], "ansible.builtin.apt") == ""


def test_a_path_names_no_module(tmp_path: Path) -> None:
    place = tmp_path / "library" / "one"
    place.mkdir(parents=True)
    for folder in (place, place.parent, tmp_path):
        (folder / "mine.sh").write_text("#!/bin/sh\necho {}\n")
    files = LocalFiles()
    for name in ("one/mine", "../mine", f"{place}/mine"):
        assert own_module(files, str(tmp_path), [], name) == ""
    assert own_module(files, str(tmp_path), [], "mine")


def test_what_ansible_cfg_names_comes_after_what_lies_beside(tmp_path: Path) -> None:
    shared, site = tmp_path / "shared", tmp_path / "site"
    for place, library, word in ((shared, "deep", "shared"), (site, "library", "beside")):
        (place / library).mkdir(parents=True)
        (place / library / "both.sh").write_text(f'#!/bin/sh\necho \'{{"of": "{word}"}}\'\n')
        (place / "filter_plugins").mkdir()
        (place / "filter_plugins/f.py").write_text(
            "class FilterModule:\n    def filters(self):\n"
            f"        return {{'own_both': lambda v: '{word}'}}\n"
        )
    (shared / "deep/far.sh").write_text('#!/bin/sh\necho \'{"of": "far"}\'\n')
    (shared / "filter_plugins/g.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {'own_far': lambda v: 'far'}\n"
    )
    said = Settings(library=(str(shared),), filter_plugins=(str(shared / "filter_plugins"),))
    files = LocalFiles(ansible=said)
    assert one(own_module(files, str(site), [], "both"))["of"] == "beside"
    assert one(own_module(files, str(site), [], "far"))["of"] == "far"
    assert content_of("{{ 1 | own_both }} {{ 1 | own_far }}", site, files) == "beside far"
    assert content_of("{{ 1 | own_both }}", tmp_path, LocalFiles(ansible=said)) == "shared"


@pytest.mark.parametrize("configured", [False, True])
def test_an_action_plug_in_in_the_place_of_a_module_of_rm_s_is_told(tmp_path: Path, configured: bool) -> None:
    folder = tmp_path / ("shared" if configured else "site/action_plugins")
    folder.mkdir(parents=True)
    (folder / "copy.py").write_text("class ActionModule: ...\n")
    (tmp_path / "site").mkdir(exist_ok=True)
    files = LocalFiles(ansible=Settings(action_plugins=(str(folder),) if configured else ()))
    arguments = "{content: x, dest: /x}"
    tasks = f"[{{copy: {arguments}}}, {{ansible.builtin.copy: {arguments}}}]"
    text = f"- hosts: all\n  tasks: {tasks}\n"
    (play,) = parse_playbook(text, str(tmp_path / "site/site.yml"), files).plays
    assert [bool(task.unknown) for task in tasks_of(play.tasks)][:2] == [True, False]


def test_modules_of_collections(files: LocalFiles, collections: Path) -> None:
    files.__dict__["installed"] = Installed(str(collections / "ansible"), (str(collections),))
    real = in_collections(files, "a.b.real", "/nonexistent")
    assert real is not None
    assert [in_collections(files, name, "/x") for name in ("a.b.old", "short", "a.b.renamed")] == [real] * 3
    assert in_collections(files, "a.b.none", "/x") is None
    with pytest.raises(BadArgument, match=r"'a\.b\.gone' is gone: use real"):
        in_collections(files, "a.b.gone", "/x")
    data, name = packed_module(real, files.read(real.path), files, "/x")
    assert name == "ansible_collections.a.b.plugins.modules.real"
    held = {path for path in zipfile.ZipFile(BytesIO(data)).namelist() if not path.endswith("__init__.py")}
    inner = "ansible_collections/a/b/plugins"
    assert held == {
        "ansible/module_utils/basic.py", f"{inner}/modules/real.py", f"{inner}/module_utils/other.py",
        f"{inner}/module_utils/deep/code.py",
    }  # fmt: skip
    assert packed_module(real, files.read(real.path), files, "/x")[0] == data
    tasks = "    - a.b.real: {n: 1}\n    - short: {n: 2}\n    - a.b.real: {n: 3}\n"
    (collections / "site.yml").write_text(f"- hosts: all\n  tasks:\n{tasks}")
    read = read_playbook(collections / "site.yml", files).plays[0].tasks
    assert [called(getattr(task, "module", "")) for task in read][:3] == ["a.b.real", "short", "a.b.real"]
    bare = LocalFiles()
    bare.__dict__["installed"] = Installed()
    unknown = next(iter(tasks_of(read_playbook(collections / "site.yml", bare).plays[0].tasks))).unknown
    assert unknown.startswith("unknown module 'a.b.real'.")
    text = b"from ansible_collections.a.b.plugins.module_utils.nothing.at_all import z\n"
    with pytest.raises(BadArgument, match="which is not on this machine"):
        packed_module(Found(real.path, "a.b.real"), text, files, "/x")


def test_a_module_that_ansible_core_has_and_rm_has_not(files: LocalFiles, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    given: dict[str, Any] = {"name": "web", "key": "web ssh-ed25519 AAAA", "path": str(keys)}
    known = own_module(files, str(tmp_path), [], "ansible.builtin.known_hosts")
    assert called(known) == "known_hosts"
    assert one(known, state="absent", **given)["changed"] is False
    assert in_collections(files, "subversion", "/x") is not None
    assert in_collections(files, "copy", "/x") is None, "it has an action plug-in"
    assert in_collections(files, "nothing_at_all", "/x") is None


ROLE = "ansible_collections/a/b/roles"


def test_roles_of_collections(files: LocalFiles, collections: Path) -> None:
    files.__dict__["installed"] = Installed(str(collections / "ansible"), (str(collections),))
    for name, text in (
        ("one/tasks/main.yml", "- real: {}\n- include_role: {name: two}\n- debug: {msg: x}\n  notify: H\n"),
        ("one/handlers/main.yml", "- {name: H, debug: {msg: x}}\n"),
        ("two/tasks/main.yml", "- {name: of two, debug: {msg: x}}\n"),
    ):
        (collections / ROLE / name).parent.mkdir(parents=True, exist_ok=True)
        (collections / ROLE / name).write_text(text)
    site = collections / "site.yml"
    site.write_text("- hosts: all\n  tasks:\n  - import_role: {name: a.b.one}\n  - debug: {msg: x}\n"
                    "    notify: ['one : H', 'a.b.one : H']\n")  # fmt: skip
    (play,) = read_playbook(site, files).plays
    first = tasks_of(play.tasks)[0]
    assert (first.module.partition(" ")[0], first.role and first.role.full_name) == ("a.b.real", "a.b.one")
    assert play.shelf.named == ["a.b.one"]
    (include,) = [task for task in tasks_of(play.tasks) if task.module == "include_role"]
    (inner,) = play.shelf.expand(include, include.args)
    assert inner.name == "of two"
    assert inner.role.full_name == "a.b.two"
    site = collections / "none.yml"
    site.write_text("- hosts: all\n  roles: [a.b.none]\n")
    with pytest.raises(UsageError, match=r"none\.yml:2: there is no role 'a\.b\.none'"):
        read_playbook(site, files)


def test_the_keyword_collections_is_where_short_names_are_looked_for(
    files: LocalFiles, collections: Path
) -> None:
    files.__dict__["installed"] = Installed(str(collections / "ansible"), (str(collections),))
    (collections / "ansible_collections/a/b/plugins/modules/apt.py").write_text("#!/bin/sh\n")
    site = collections / "site.yml"
    site.write_text("- hosts: all\n  collections: [a.b]\n  tasks:\n  - real: {}\n  - apt: {}\n"
                    "  - {command: x, collections: []}\n  - {apt: {name: x}, collections: []}\n")  # fmt: skip
    tasks = tasks_of(read_playbook(site, files).plays[0].tasks)
    assert [task.module.partition(" ")[0] for task in tasks][:4] == [
        "a.b.real", "a.b.apt", "command", "apt",
    ]  # fmt: skip


@pytest.mark.parametrize("no_log", [True, False])
def test_a_module_is_told_what_it_must_not_log(files: LocalFiles, tmp_path: Path, no_log: bool) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/tells.sh").write_text(
        '#!/bin/sh\n. "$1"\nprintf \'{"told": "%s"}\' "$_ansible_no_log"\n'
    )
    text = f"- hosts: all\n  gather_facts: false\n  tasks: [{{tells: {{a: b}}, no_log: {no_log}}}]\n"
    play = parse_playbook(text, str(tmp_path / "site.yml"), files).plays[0]
    batch = HostPlay(play, HostState("h", {}), files, Options(str(tmp_path))).next_batch()
    assert batch is not None
    assert run(*(one.wire() for one in batch.steps))["results"][0]["told"] == str(no_log)


@pytest.mark.parametrize(("text", "version"), [("__version__ = '2.18.3'", "2.18.3"), ("", "2.19.0")])
def test_a_module_is_told_the_version_of_the_ansible_that_is_here(
    files: LocalFiles, tmp_path: Path, text: str, version: str
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/tells.sh").write_text(
        '#!/bin/sh\n. "$1"\nprintf \'{"told": "%s"}\' "$_ansible_version"\n'
    )
    (tmp_path / "core").mkdir()
    (tmp_path / "core/release.py").write_text(text)
    files.__dict__["installed"] = Installed(str(tmp_path / "core"))
    assert one(own_module(files, str(tmp_path), [], "tells"))["told"] == version


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        ("ansible.legacy.tells", "library/tells.sh"),
        ("tells", "library/tells.sh"),
        ("ansible.legacy.apt", "library/apt.sh"),
        ("ansible.builtin.known_hosts", "modules/known_hosts.py"),
        ("ansible.legacy.known_hosts", "modules/known_hosts.py"),
    ],
)
def test_a_module_that_is_not_rm_s_by_its_full_name(
    files: LocalFiles, tmp_path: Path, collections: Path, written: str, ends: str
) -> None:
    core = files.installed.core
    files.__dict__["installed"] = Installed(core, (str(collections),))
    (tmp_path / "library").mkdir()
    for name in ("tells", "apt"):
        (tmp_path / f"library/{name}.sh").write_text("#!/bin/sh\n")
    text = f"- hosts: all\n  gather_facts: false\n  module_defaults: {{{written}: {{b: 2}}}}\n"
    text += f"  tasks:\n  - {written}: {{a: 1}}\n  - action: {written}\n"
    play = parse_playbook(text, str(tmp_path / "site.yml"), files).plays[0]
    tasks = list(tasks_of(play.tasks))[:2]
    assert [task.args for task in tasks] == [{"b": 2, "a": 1}, {"b": 2}]
    assert all(task.module.endswith(f"{ends})") for task in tasks)
    batch = HostPlay(play, HostState("h", {}), files, Options(str(tmp_path))).next_batch()
    assert batch is not None
    assert [step.args["arguments"] for step in batch.steps] == [{"b": 2, "a": 1}]


def test_nothing_is_imported_from_the_current_directory(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "runpy", "importlib", "glob"):
        (here / f"{name}.py").write_text("raise SystemExit('imported from here')\n")
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "import glob\nclass FilterModule:\n    def filters(self):\n        return {'own_up': str.upper}\n"
    )
    monkeypatch.chdir(here)
    assert content_of("{{ 'a' | own_up }}", tmp_path, files) == "A"
    assert brought(files, tmp_path, "packs.py", PYTHON, a="4")["a"] == 4


def test_a_module_named_as_a_built_in_action_plugin_is_refused(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/copy.sh").write_text("#!/bin/sh\n")
    with pytest.raises(BadArgument, match=r"library/copy\.sh stands for 'copy'.*action plug-in"):
        own_module(files, str(tmp_path), [], "copy")
    assert own_module(files, str(tmp_path), [], "ansible.builtin.copy") == ""


def test_an_answer_that_is_too_deep_is_none(files: LocalFiles, tmp_path: Path) -> None:
    deep = "python3 -c \"print('{\\\"a\\\":' * 100000 + '1' + '}' * 100000)\""
    result = brought(files, tmp_path, "deep.sh", f"#!/bin/sh\n{deep}\n")
    assert result["failed"], result
    assert "'deep' does not answer with JSON" in result["msg"]


def test_collections_of_ansible_cfg_are_known(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\ncollections_path = mine\n")
    place = tmp_path / "mine/ansible_collections/my/own/plugins/modules"
    place.mkdir(parents=True)
    (place / "one.py").write_text("")
    said = read((tmp_path / "ansible.cfg").read_text(), str(tmp_path / "ansible.cfg"), {}, "/", "/")
    found = in_collections(LocalFiles(ansible=said), "my.own.one", str(tmp_path))
    assert found is not None
    assert found.path == str(place / "one.py")
    assert in_collections(LocalFiles(), "my.own.one", str(tmp_path)) is None


def args_of(files: LocalFiles, place: Path, text: str) -> list[Any]:
    plays = parse_playbook(text, str(place / "site.yml"), files).plays
    return [task.args for play in plays for task in tasks_of(play.tasks) if task.module != "meta"]


def test_module_defaults_of_modules_that_are_not_rm_s(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    for name in ("mine", "ping"):
        (tmp_path / f"library/{name}.sh").write_text("#!/bin/sh\n")
    defaults = "module_defaults: {mine: {a: 1}, ping: {b: 2}, ansible.builtin.ping: {data: x}}"
    tasks = "[{mine: {c: 3}}, {ping: {}}, {ansible.builtin.ping: {}}]"
    at_play = f"- hosts: all\n  {defaults}\n  tasks: {tasks}\n"
    assert args_of(files, tmp_path, at_play) == [{"a": 1, "c": 3}, {"b": 2}, {"data": "x"}]
    block = f"- hosts: all\n  tasks:\n  - {defaults}\n    block: {tasks}\n"
    assert args_of(files, tmp_path, block) == [{"a": 1, "c": 3}, {"b": 2}, {"data": "x"}]
    mounts = "module_defaults: {ansible.posix.mount: {fstype: nfs}}"
    task = "mount: {path: /x, src: y, state: present}"
    assert args_of(files, tmp_path, f"- hosts: all\n  {mounts}\n  tasks: [{task}]\n")[0]["fstype"] == "nfs"
    for name, near in (("mien", "unknown module 'mien'"), ("no.such.one", "unknown module 'no.such.one'")):
        with pytest.raises(UsageError, match=near):
            args_of(files, tmp_path, f"- hosts: all\n  module_defaults: {{{name}: {{}}}}\n  tasks: []\n")


def test_a_registered_module_is_one_of_rm_s_shape(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/shape.sh").write_text("#!/bin/sh\n")
    text = "- hosts: all\n  tasks:\n    - shape: a=1 b=2\n    - shape: {deep: [1]}\n      register: r\n"
    plays = parse_playbook(text, str(tmp_path / "site.yml"), files).plays
    tasks = [task for task in plays[0].tasks if called(getattr(task, "module", "")) == "shape"]
    assert [task.args for task in tasks] == [{"a": "1", "b": "2"}, {"deep": [1]}]
    sent = step(1, tasks[0].module, a="1")
    assert (sent["op"], sent["args"]["kind"], sent["args"]["arguments"]) == (
        "own_module",
        "key_value",
        {"a": "1"},
    )


def test_what_a_run_has_read_does_not_stay_with_the_process(tmp_path: Path) -> None:
    """The table of modules kept the run's files, which hold their contents, and the vault's passwords."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/shape.sh").write_text("#!/bin/sh\n")
    (tmp_path / "site.yml").write_text("- hosts: all\n  tasks:\n    - shape: a=1\n")
    files = LocalFiles()
    read_playbook(tmp_path / "site.yml", files)
    kept = weakref.ref(files)
    del files
    gc.collect()
    assert kept() is None
