"""Programs for hosts, examples and playbooks lie beside rm/ in a checkout and travel inside it in a wheel.

The units of systemd and the dashboards are for the system: a wheel puts them into `share/rmx/packaging`.
"""

from pathlib import Path

from setuptools import find_namespace_packages, setup

PACKAGING = Path(__file__).with_name("packaging")

setup(
    packages=[
        *find_namespace_packages(include=["rm", "rm.*"]),
        "rm.shipped.agents",
        "rm.shipped.examples",
        "rm.shipped.playbooks",
    ],
    package_dir={
        "rm.shipped.agents": "agents",
        "rm.shipped.examples": "examples",
        "rm.shipped.playbooks": "playbooks",
    },
    include_package_data=False,  # MANIFEST.in is about the sdist; the wheel takes what is named here
    package_data={
        "rm": ["py.typed"],
        "rm.adapters.migrations": ["alembic.ini", "script.py.mako"],
        "rm.web": ["static/*"],
        "rm.web.pages": ["templates/*.html"],
        "rm.sim.papers": ["*.toml"],
        "rm.sim.papers.expected": ["*.toml"],
        "rm.shipped.examples": ["*.json", "*.sh", "*.toml", "*.yml", "sim/*.toml"],
        "rm.shipped.playbooks": ["*.yml"],
    },
    data_files=[
        (f"share/rmx/{folder.relative_to(PACKAGING.parent)}", files)
        for folder in sorted([PACKAGING, *(path for path in PACKAGING.rglob("*") if path.is_dir())])
        if (files := sorted(str(p.relative_to(PACKAGING.parent)) for p in folder.iterdir() if p.is_file()))
    ],
)
