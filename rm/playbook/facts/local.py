"""Facts that the host's admin keeps in /etc/ansible/facts.d/*.fact: JSON, or INI with lower-case names."""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"local": {name: _read(str(text)) for name, text in dict(raw.get("local", {})).items()}}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        return f"error loading facts as JSON or ini: {problem}".splitlines()[0]
    return {section: dict(parser.items(section)) for section in parser.sections()}
