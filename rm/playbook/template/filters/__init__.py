"""Ansible's filters and tests that Jinja2 itself lacks; all pure functions of their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.playbook.template.filters.addresses import ADDRESSES
from rm.playbook.template.filters.chance import CHANCE
from rm.playbook.template.filters.data import DATA
from rm.playbook.template.filters.paths import PATH_FILTERS, PATH_TESTS
from rm.playbook.template.filters.query import QUERY
from rm.playbook.template.filters.tests import TESTS
from rm.playbook.template.filters.text import FALSE, TEXT, TRUE, to_bool

FILTERS: dict[str, Callable[..., Any]] = {**TEXT, **DATA, **QUERY, **ADDRESSES, **CHANCE, **PATH_FILTERS}
# Jinja2's own that are not functions of their input alone; ours of these names draw by way of a lookup
IMPURE_FILTERS = ("random",)
# carried out by rm/playbook/run/lookups.py
LOOKUPS = (
    "dict", "env", "file", "fileglob", "first_found", "flattened", "indexed_items", "items", "lines", "list",
    "nested", "cartesian", "now", "pipe", "sequence", "subelements", "template", "together", "varnames",
    "vars", "unvault", "inventory_hostnames", "url", "password", "community.general.flattened",
    "ini", "csvfile", "random_choice", "filetree", "community.general.filetree",
)  # fmt: skip
TESTS.update(PATH_TESTS)
for _table in (FILTERS, TESTS):
    _table.update(
        {f"ansible.builtin.{name}": function for name, function in tuple(_table.items()) if "." not in name}
    )
__all__ = ["FALSE", "FILTERS", "IMPURE_FILTERS", "LOOKUPS", "TESTS", "TRUE", "to_bool"]
