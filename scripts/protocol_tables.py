"""Writes the tables of docs/agent-protocol.md anew, from rm/protocol: python -m scripts.protocol_tables"""

from pathlib import Path

from rm.protocol.tables import tables
from scripts import section

FILE = Path(__file__).parents[1] / "docs" / "agent-protocol.md"


def renewed(text: str) -> str:
    for name, content in tables().items():
        text = section.renewed(text, name, f"\n{content}\n\n")
    return text


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))
