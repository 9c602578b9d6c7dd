"""Programs for hosts, examples and playbooks lie beside rm/ in a checkout and travel inside it in a wheel.

The units of systemd and the dashboards are for the system: a wheel puts them into `share/rmx/packaging`.
"""

import sys
from pathlib import Path

from setuptools import find_namespace_packages, setup

PACKAGING = Path(__file__).with_name("packaging")
# A checkout that is installed as it is needs only its own path. Any other package would make setuptools
# load a finder at each start of Python, which costs a command a quarter of its time.
IN_PLACE = "editable_wheel" in sys.argv
SHIPPED = {} if IN_PLACE else {f"rm.shipped.{name}": name for name in ("agents", "examples", "playbooks")}

setup(
    packages=[*find_namespace_packages(include=["rm", "rm.*"]), *SHIPPED],
    package_dir=SHIPPED or {"": "."},
    include_package_data=False,  # MANIFEST.in is about the sdist; the wheel takes what is named here
    package_data={
        "rm": ["py.typed"],
        "rm.adapters.migrations": ["alembic.ini", "script.py.mako"],
        "rm.web": ["static/*"],
        "rm.web.pages": ["templates/*.html"],
        "rm.sim.papers": ["*.toml"],
        "rm.sim.real": ["data/*"],
        "rm.sim.papers.expected": ["*.toml"],
        "rm.shipped.examples": ["*.json", "*.sh", "*.toml", "*.yml", "sim/*.toml"],
        "rm.shipped.playbooks": ["*.yml", "tasks/*.yml"],
    },
    data_files=[
        (f"share/rmx/{folder.relative_to(PACKAGING.parent)}", files)
        for folder in sorted([PACKAGING, *(path for path in PACKAGING.rglob("*") if path.is_dir())])
        if (files := sorted(str(p.relative_to(PACKAGING.parent)) for p in folder.iterdir() if p.is_file()))
    ],
)
