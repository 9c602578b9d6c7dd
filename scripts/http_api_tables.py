"""Writes the tables of docs/http-api.md anew, from rm/api: python -m scripts.http_api_tables"""

from pathlib import Path

from rm.api.tables import markdown
from scripts import section

FILE = Path(__file__).parents[1] / "docs" / "http-api.md"


def renewed(text: str) -> str:
    return section.renewed(text, "tables", f"{markdown()}\n")


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))
