"""Programs for hosts, examples and playbooks lie beside rm/ in a checkout and travel inside it in a wheel."""

from setuptools import find_namespace_packages, setup

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
    package_data={
        "rm": ["py.typed"],
        "rm.web": ["static/*"],
        "rm.web.pages": ["templates/*.html"],
        "rm.sim.papers": ["*.toml"],
        "rm.sim.papers.expected": ["*.toml"],
        "rm.shipped.playbooks": ["*.yml"],
    },
)
