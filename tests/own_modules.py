"""Modules and plug-ins that are not rm's, as files beside a playbook."""

import json
from pathlib import Path
from typing import Any

from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.playbook.own.own_module import own_module
from tests.steps_request import one

PYTHON = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={'a': {'type': 'int'}}, supports_check_mode=True)
diff = {'before': 'a\\n', 'after': 'b\\n'}
module.exit_json(changed=True, a=module.params['a'], diff=diff, stdout='x\\ny', ansible_facts={'any': 1})
"""


def brought(files: LocalFiles, place: Path, name: str, text: str, **given: Any) -> dict[str, Any]:
    """The result of a module of `place/library`."""
    (place / "library").mkdir(exist_ok=True)
    (place / "library" / name).write_text(text)
    known = own_module(files, str(place), [], name.partition(".")[0])
    return one(known, **given)


def content_of(text: str, directory: Path, files: LocalFiles) -> str:
    """What a template gives in a play of this directory."""
    from rm.adapters.playbook.sources import ThisMachine
    from rm.playbook.run.lookups import seeker
    from rm.playbook.template.template import Layer, Scope, evaluate

    path = directory / f"site{len(list(directory.iterdir()))}.yml"  # each is read once
    path.write_text(f"- hosts: all\n  vars: {{x: {json.dumps(text)}}}\n  tasks: []\n")
    read_playbook(path, files)
    seek = seeker(files, (str(directory),), ThisMachine())
    return str(evaluate(text, Scope([Layer({}, False)], seek=seek)))


def core_and_collection(place: Path) -> Path:
    """As files below the place, which is returned."""
    core = place / "ansible"
    for name in ("module_utils/basic.py", "module_utils/six/__init__.py", "release.py", "config/x"):
        (core / name).parent.mkdir(parents=True, exist_ok=True)
        (core / name).write_text(
            "from ansible.module_utils.six.moves import urllib\n" if "basic" in name else ""
        )
    routing = "plugin_routing: {modules: {short: {redirect: a.b.renamed}}}\n"
    (core / "config/ansible_builtin_runtime.yml").write_text(routing)
    root = place / "ansible_collections/a/b"
    for folder in ("plugins/modules", "plugins/module_utils/deep", "meta", "plugins/filter"):
        (root / folder).mkdir(parents=True)
    (root / "meta/runtime.yml").write_text(
        "plugin_routing:\n  modules:\n    old: {redirect: a.b.real}\n    renamed: {redirect: a.b.real}\n"
        "    gone: {tombstone: {warning_text: use real.}}\n"
    )
    (root / "plugins/modules/real.py").write_text(
        "from ..module_utils.deep.code import x\n"
        "from ansible_collections.a.b.plugins.module_utils import other\n"
        "try:\n    from ..module_utils.missing import y\nexcept ImportError:\n    pass\n"
    )
    (root / "plugins/module_utils/deep/code.py").write_text("")
    (root / "plugins/module_utils/other.py").write_text("from .deep import code\n")
    (root / "plugins/filter/f.py").write_text(
        "class FilterModule:\n    def filters(self):\n        return {'plus': lambda v, n=1: v + n}\n"
    )
    return place
