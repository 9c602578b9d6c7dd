"""Writes the table of docs/python-client.md anew, from rm/client: python -m scripts.client_tables"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rm.client.accounts import Accounts
from rm.client.alerts import Alerting
from rm.client.client import Client
from rm.client.monitor import Monitor
from rm.client.network import Network
from rm.client.playbooks import Playbooks
from rm.client.reservations import HostReservations
from rm.client.sharing import Sharing
from scripts import section

FILE = Path(__file__).parents[1] / "docs" / "python-client.md"
PLACES: dict[str, type[Any]] = {
    "client": Client,
    "client.network": Network,
    "client.monitor": Monitor,
    "client.alerts": Alerting,
    "client.reservations": HostReservations,
    "client.sharing": Sharing,
    "client.playbooks": Playbooks,
    "client.accounts": Accounts,
}


def methods(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield name, value


def rows() -> Iterator[str]:
    yield "| method | answer | |"
    yield "|---|---|---|"
    for place, kind in PLACES.items():
        for name, method in methods(kind):
            what = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
            answer = inspect.signature(method).return_annotation
            yield f"| `{place}.{name}({', '.join(_words(method))})` | `{answer}` | {what} |"


def _words(method: Any) -> Iterator[str]:
    """Its parameters, and a `*` before the first that only a keyword gives."""
    keywords = False
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        usual = "" if parameter.default is parameter.empty else f"={json.dumps(parameter.default)}"
        yield parameter.name + usual.replace("null", "None").replace("false", "False").replace("[]", "()")


def renewed(text: str) -> str:
    return section.renewed(text, "methods", "\n".join(rows()) + "\n")


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))
