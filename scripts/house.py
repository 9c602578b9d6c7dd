"""The house: which rooms there are, on which floor each stands, and what it is.

`tests/test_architecture.py` holds the code to it; `python -m scripts.house` renews ARCHITECTURE.md's table.
"""

from __future__ import annotations

from pathlib import Path

from scripts import section

ROOT = Path(__file__).parents[1]

# From the top of the house to its foundations. A room imports only rooms of floors below its own.
FLOORS: list[dict[str, str]] = [
    {"cli": "Click commands: parse, call the API, show. Each command is loaded only when it is called"},
    {"demo": "the demonstration on lab hosts"},
    {"bootstrap": "the composition root: the only place that chooses adapters and wires the daemon"},
    {
        "web": "the HTTP API: parse, identify the caller, call the service; "
        "`pages/` [the page](docs/web.md), a client of it",
        "daemon": "the leader's loop, the use cases, and the hands: executor, regulator, monitor",
        "sim": "the simulator: a virtual clock, modelled jobs and networks under the same cycle; "
        "`papers/` one scenario a paper",
        "lab": "hosts out of namespaces on this machine",
    },
    {"adapters": "SSH, the fleet of agent channels, the stores, timers, the playbook runner"},
    {"config": "rm.toml, environment and flags to one frozen `Config` that knows each value's origin"},
    {
        "policies": "queue, placement and comm policies, found by file name; interleaving and regulation",
        "playbook": "a playbook and facts to steps; one file per module and per kind of fact",
        "client": "the [Python client](docs/python-client.md), also of the command line: the ways to a "
        "daemon, the connection, typed requests",
    },
    {
        "core": "the types, the lifecycle, the engine, the cycle, reconciliation, the ports",
        "api": "what the HTTP API takes and gives, as types, and the table of its routes",
        "submission": "`#SBATCH` and `#RM` lines and options to a job specification",
    },
    {
        "protocol": "what daemon and agents say to each other: a frozen type for a message, with its ranges",
        "dependencies": "the text of a job's dependency list",
        "containers": "the text of what a job sees of a host from its container",
        "licenses": "the text of the licences that a job holds",
        "mail_events": "the text of the events of a job of which somebody is mailed",
        "features": "the text of the features that a job wants of its hosts",
    },
    {
        "arrays": "the text of job arrays, and of ids of their elements",
        "shown_ids": "the text of a job's id",
        "units": "exact integers: microseconds, bit/s, bytes",
        "missing_program": "the program that a shell did not find, by what it wrote",
        "file_patterns": "the text of patterns of the names of jobs' files",
        "hints": "the known word that a wrong one is most like",
        "paths": "where files lie",
        "written_aside": "a file that takes another's place when it is whole",
        "socket_peer": "the process at the other end of a Unix socket",
        "typed": "plain values as types, from any thread",
        "python_text": "Python text as a syntax tree, from any thread",
        "collector": "Python's collector of cycles, kept away from what holds none",
    },
    {
        "errors": "the error tree: each error says what, where, and what to do",
        "version": "rm's own version",
        "quick_dataclass": "dataclasses at a fifth of what compiling their methods takes",
        "quick_tuple": "named tuples at a tenth of what loading `typing` takes",
        "imported_later": "modules of the standard library that are imported at their first use",
        "compiled_later": "regular expressions that are compiled at their first use",
    },
]
# Without clocks, chance, sockets, threads and processes.
PURE = {
    "core", "api", "policies", "playbook", "protocol", "units", "hints", "missing_program", "arrays",
    "file_patterns",
    "dependencies", "features", "containers", "licenses", "mail_events", "errors",
}  # fmt: skip


def folders(room: str) -> list[str]:
    """The room's folders, each a topic."""
    return sorted(path.name for path in (ROOT / "rm" / room).glob("*") if (path / "__init__.py").exists())


def table() -> str:
    rows = ["| floor | room | what it is | its folders |", "|---|---|---|---|"]
    for above, floor in enumerate(FLOORS):
        for room, what in floor.items():
            file = (ROOT / "rm" / f"{room}.py").exists()
            name = f"rm/{room}.py" if file else f"rm/{room}"
            pure = " · **pure**" if room in PURE else ""
            inside = "" if file else ", ".join(f"`{folder}`" for folder in folders(room))
            rows.append(f"| {len(FLOORS) - above} | `{name}` | {what}{pure} | {inside} |")
    return "\n".join(rows) + "\n"


def renewed(text: str) -> str:
    """ARCHITECTURE.md with the table as it should be."""
    return section.renewed(text, "rooms", f"\n{table()}\n")


if __name__ == "__main__":
    document = ROOT / "ARCHITECTURE.md"
    document.write_text(renewed(document.read_text()))
