"""Filters, tests and lookups that are not rm's: found, run in a process of their own, refused by name."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.adapters.playbook.plugins import BEGIN, PROGRAM
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import tasks_of
from rm.playbook.own.place import Installed
from tests.fakes import PATIENCE_S
from tests.own_modules import content_of, core_and_collection


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles()


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    return core_and_collection(tmp_path)


def test_filters_and_tests_of_a_playbook(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "test_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "import jinja2\n"
        "def own_up(v, n=1):\n    print('noise')\n    return v.upper() * n\n"
        "@jinja2.pass_context\ndef own_asks(c, v):\n    return v\n"
        "class FilterModule:\n    def filters(self):\n"
        "        return {'own_up': own_up, 'own_asks': own_asks, 'own_set': lambda v: {v},\n"
        "                'own_odd': lambda v: object(), 'own_raises': lambda v: 1 / 0}\n"
    )
    (tmp_path / "test_plugins/t.py").write_text(
        "class TestModule:\n    def tests(self):\n        return {'own_big': lambda v, than=9: v > than}\n"
    )
    text = "{{ 'a' | own_up(n=2) }}{{ ['b'] | map('own_up') | join }}{{ 'c' | own_set }}{{ 10 is own_big }}"
    assert content_of(text, tmp_path, files) == "AAB['c']True"
    assert content_of("{{ [5, 20] | select('own_big', 6) | list }}", tmp_path, files) == "[20]"
    for name, says in (
        ("own_raises", "ZeroDivisionError"),
        ("own_asks", "own context"),
        ("own_odd", "no plain value"),
    ):
        with pytest.raises(Exception, match=rf"the filter '{name}': .*f\.py: .*{says}"):
            content_of(f"{{{{ 'a' | {name} }}}}", tmp_path, files)
    # another playbook of the same process has none of them
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(Exception, match="unknown filter 'own_up'"):
        content_of("{{ 'a' | own_up }}", elsewhere, LocalFiles())


LOOKUP = """
DOCUMENTATION = '''
name: own_words
options:
  _terms: {description: words}
  sign: {description: between, default: '-', type: str}
'''
from ansible.plugins.lookup import LookupBase
from ansible.errors import AnsibleError


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        if "no" in terms:
            raise AnsibleError("no such word")
        return [self.get_option("sign").join(str(one) for one in terms)]
"""


def test_lookups_of_a_playbook(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "lookup_plugins").mkdir()
    (tmp_path / "lookup_plugins/own_words.py").write_text(LOOKUP)
    assert content_of("{{ lookup('own_words', 'a', 2) }}", tmp_path, files) == "a-2"
    assert content_of("{{ query('own_words', 'a', 'b', sign='+') }}", tmp_path, files) == "['a+b']"
    with pytest.raises(Exception, match=r"lookup 'own_words': .*own_words\.py: AnsibleError: no such word"):
        content_of("{{ lookup('own_words', 'no') }}", tmp_path, files)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(Exception, match="unknown lookup 'own_words'"):
        content_of("{{ lookup('own_words', 'a') }}", elsewhere, LocalFiles())


def test_lookups_of_collections(tmp_path: Path) -> None:
    folder = tmp_path / "collections/ansible_collections/a/b/plugins/lookup"
    folder.mkdir(parents=True)
    (folder / "own_words.py").write_text(
        LOOKUP.replace("from ansible.errors", "from .own_more import more\nfrom ansible.errors")
    )
    (folder / "own_more.py").write_text("more = 1\n")
    files = LocalFiles()
    assert content_of("{{ lookup('a.b.own_words', 'a', 2, sign='+') }}", tmp_path, files) == "a+2"
    site = tmp_path / "loop.yml"
    site.write_text("- hosts: all\n  tasks:\n  - debug: {msg: '{{ item }}'}\n    with_a.b.own_words: [x]\n")
    (task, *_) = tasks_of(read_playbook(site, files).plays[0].tasks)
    assert task.loop is not None
    assert task.loop.kind == "with_a.b.own_words"
    with pytest.raises(Exception, match=r"unknown lookup 'a\.b\.none'"):
        content_of("{{ lookup('a.b.none', 'a') }}", tmp_path, files)


def test_a_lookup_of_a_playbook_stands_for_no_full_name_and_for_nothing_of_templates(
    files: LocalFiles, tmp_path: Path
) -> None:
    (tmp_path / "lookup_plugins").mkdir()
    for name in ("env", "now", "random"):
        (tmp_path / f"lookup_plugins/{name}.py").write_text(LOOKUP)
    assert content_of("{{ lookup('env', 'HOME') }}", tmp_path, files) == "HOME"
    assert content_of("{{ lookup('ansible.builtin.env', 'HOME') }}", tmp_path, files) == os.environ["HOME"]
    assert content_of("{{ now().year > 2000 }} {{ 1 | random }}", tmp_path, files) == "True 0"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("return [variables['x']]", r"own_odd\.py: it uses the play's variables \(line 4\)"),
        ("return [self._templar.template(terms)]", "it uses _templar"),
        ("return 7", "it gives no list"),
        ("return [", "SyntaxError"),
        (
            "return [1]\nDOCUMENTATION = '''\noptions:\n  a:\n    vars:\n      - name: b\n'''",
            "takes a variable's value",
        ),
    ],
)
def test_what_a_lookup_of_a_playbook_is_not_given_is_told(
    files: LocalFiles, tmp_path: Path, line: str, says: str
) -> None:
    (tmp_path / "lookup_plugins").mkdir()
    head = "from ansible.plugins.lookup import LookupBase\nclass LookupModule(LookupBase):\n"
    body = f"    def run(self, terms, variables=None, **kwargs):\n        {line}\n"
    (tmp_path / "lookup_plugins/own_odd.py").write_text(head + body)
    with pytest.raises(Exception, match=says):
        content_of("{{ lookup('own_odd', 1) }}", tmp_path, files)


def test_a_file_of_plug_ins_that_cannot_be_read_is_told(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    bad = tmp_path / "filter_plugins/bad.py"
    bad.write_text(
        "import no_such_thing_at_all\nclass FilterModule:\n    def filters(self):\n"
        "        return {'own_bad': 1}\n"
    )
    assert content_of("a", tmp_path, files) == "a"
    with pytest.raises(Exception, match=r"'own_bad': .*bad\.py: ModuleNotFoundError: No module named"):
        content_of("{{ 1 | own_bad }}", tmp_path, files)
    bad.write_text("class FilterModule(:\n")
    with pytest.raises(UsageError, match=r"site\d\.yml:1: .*bad\.py: SyntaxError: invalid syntax"):
        content_of("a", tmp_path, LocalFiles())


@pytest.mark.parametrize(
    "made",
    [
        "{'own_late': len}",
        "dict(own_late=len, own_other=1)",
        "MAP\nMAP = {'own_late': len}",
        "{name: globals()[name] for name in ('own_' + 'late',)}\ndef own_late(v):\n    return len(v)",
    ],
)
def test_reading_a_playbook_runs_no_code_of_its_plug_ins(
    files: LocalFiles, tmp_path: Path, made: str
) -> None:
    (tmp_path / "filter_plugins").mkdir()
    made, _, rest = made.partition("\n")
    (tmp_path / "filter_plugins/f.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        f"class FilterModule:\n    def filters(self):\n        return {made}\n{rest}\n"
    )
    assert content_of("{{ nothing | default('b') }}", tmp_path, files) == "b"
    (tmp_path / "all.yml").write_text("- hosts: all\n  tasks: [debug: {msg: \"{{ 'a' | own_late }}\"}]\n")
    read_playbook(tmp_path / "all.yml", files)
    assert not (tmp_path / "ran").exists()
    assert content_of("{{ 'ab' | own_late }}", tmp_path, files) == "2"
    assert (tmp_path / "ran").exists()


def test_a_name_that_a_file_turns_out_not_to_have_is_rm_s_own(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return dict(own_x='upper' and str)\n"
    )
    (tmp_path / "filter_plugins/helper.py").write_text("import nothing_here\nx = {'lower': 'default'}\n")
    assert content_of("{{ 'a' | upper }}{{ none_is | default('b' | lower) }}", tmp_path, files) == "Ab"


def test_mappings_keep_their_keys_both_ways(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {\n"
        "            'own_keys': lambda v: [type(key).__name__ for key in v], 'own_same': lambda v: v,\n"
        "            'own_pair': lambda v: {(1, 2): v}}\n"
    )
    assert content_of("{{ {1: 'a', '1': 'b', true: 3} | own_keys }}", tmp_path, files) == "['int', 'str']"
    text = "{{ {5: {none: 'a'}, 'b': [{1.5: 2}]} | own_same == {5: {none: 'a'}, 'b': [{1.5: 2}]} }}"
    assert content_of(text, tmp_path, files) == "True"
    with pytest.raises(Exception, match="a key that is a tuple"):
        content_of("{{ 1 | own_pair }}", tmp_path, files)


def test_a_plug_in_s_programs_do_not_read_its_requests(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "import subprocess\nclass FilterModule:\n    def filters(self):\n"
        "        return {'own_cat': lambda v: subprocess.check_output(['cat'], text=True) + v}\n"
    )
    assert content_of("{{ 'a' | own_cat }}{{ 'b' | own_cat }}", tmp_path, files) == "ab"


LOOPS = """import os
class FilterModule:
    def filters(self):
        return {'own_loops': loops}
def loops(path):
    with open(path, 'w') as file:
        file.write(str(os.getpid()))
    while True:
        pass
"""


def test_a_plug_in_that_loops_is_broken_off_with_the_run(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(LOOPS)
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    files.plugins.learn(str(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(files.plugins.call, "filter", "own_loops", [str(begun)], {})
        pid = int(begun.read_text())
        files.stop()
        with pytest.raises(BadArgument, match="ended"):
            asked.result(PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(BadArgument, match="the run was stopped"):
        files.plugins.call("filter", "own_loops", [str(begun)], {})


def test_a_plug_in_that_loops_ends_with_who_asked(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(LOOPS)
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    argv = [sys.executable, "-c", BEGIN, PROGRAM.read_text()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        request = {"op": "call", "kind": "filter", "file": str(tmp_path / "f.py"), "name": "own_loops"}
        process.stdin.write(json.dumps({**request, "args": [str(begun)], "kwargs": {}}).encode() + b"\n")
        process.stdin.flush()
        begun.read_text()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_collection_beside_the_playbook(
    files: LocalFiles, collections: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/collections").mkdir()
    (collections / "ansible_collections").rename(tmp_path / "book/collections/ansible_collections")
    filters = tmp_path / "book/collections/ansible_collections/a/b/plugins/filter"
    (filters / "g.py").write_text(
        "from ansible_collections.a.b.plugins.filter.f import FilterModule as F\n"
        "class FilterModule:\n    def filters(self):\n        return {'more': F().filters()['plus']}\n"
    )
    (filters / "bad.py").write_text("class FilterModule(:\n")
    assert content_of("{{ 1 | a.b.plus(2) }}{{ 1 | a.b.more(4) }}", tmp_path / "book", files) == "35"
    with pytest.raises(Exception, match=r"bad\.py: SyntaxError"):
        content_of("{{ 1 | a.b.missed }}", tmp_path / "book", files)
    monkeypatch.chdir(tmp_path / "book")
    Path("site.yml").write_text("- hosts: all\n  tasks: [debug: {msg: '{{ 1 | a.b.plus(2) }}'}]\n")
    assert read_playbook("site.yml", LocalFiles()).plays


def test_a_filter_of_the_name_of_one_of_rm_s_is_used_only_where_it_lies(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    for place in (near, far):
        place.mkdir()
    (near / "filter_plugins").mkdir()
    (near / "filter_plugins/f.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {'union': lambda a, b: 'mine'}\n"
    )
    text = "{{ [1] | union([2]) }}"
    assert content_of(text, far, LocalFiles()) == "[1, 2]"
    assert content_of(text, near, LocalFiles()) == "mine"
    assert content_of(text, far, LocalFiles()) == "[1, 2]"


def test_filters_of_a_collection(files: LocalFiles, collections: Path, tmp_path: Path) -> None:
    files.__dict__["installed"] = Installed("", (str(collections),))
    assert content_of("{{ 1 | a.b.plus(2) }}", tmp_path, files) == "3"
    with pytest.raises(UsageError, match=re.escape("unknown filter 'a.b.minus'")):
        content_of("{{ 1 | a.b.minus }}", tmp_path, files)


def test_a_process_of_plug_ins_that_dies_is_told_and_begun_anew(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/f.py").write_text(
        "import os\nclass FilterModule:\n    def filters(self):\n"
        "        return {'own_dies': lambda v: os._exit(3), 'own_lives': lambda v: v}\n"
    )
    with pytest.raises(Exception, match="the process that runs plug-ins ended"):
        content_of("{{ 1 | own_dies }}", tmp_path, files)
    assert content_of("{{ 1 | own_lives }}", tmp_path, files) == "1"
