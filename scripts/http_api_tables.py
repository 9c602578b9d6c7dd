"""Writes the tables of docs/http-api.md anew, from rm/api: python -m scripts.http_api_tables"""

from pathlib import Path

from rm.api.tables import markdown

BEGIN, END = "<!-- tables: begin -->\n", "\n<!-- tables: end -->"
FILE = Path(__file__).parents[1] / "docs" / "http-api.md"


def renewed(text: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END.strip("\n"), 1)
    return f"{before}{BEGIN}{markdown()}{END}{after}"


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))
