"""A channel of alerts that writes each message to a file as a line, and what it was told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def channel(file: Path) -> dict[str, Any]:
    """Its table in rm.toml."""
    return {"name": "file", "command": ["/bin/sh", "-c", 'cat >> "$0"; echo >> "$0"', str(file)]}


def told(file: Path) -> list[dict[str, Any]]:
    """The messages in order; one whose line is not whole yet is being told.

    A killed daemon may have had no time to note what it told: its next life tells that again, with the same
    id and instant, and here it is once.
    """
    text = file.read_text() if file.exists() else ""
    messages = [json.loads(line) for line in text.split("\n")[:-1] if line]
    return list({(m["event"], m["id"], m["at_us"]): m for m in messages}.values())
