"""Writes dist/rmx.cdx.json, what rm needs to run as a CycloneDX document: make sbom

`cyclonedx-py` reads versions and hashes from requirements.lock, and licences from the packages that are
installed here. What only other systems need is without a licence. The document has
no serial number and no time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from rm.version import version_of

ROOT = Path(__file__).parents[1]


def _read(*source: str) -> Any:
    """The document that cyclonedx-py makes of a source. It is validated once, when it is complete."""
    done = subprocess.run(
        [
            sys.executable, "-W", "ignore", "-m", "cyclonedx_py", *source,
            "--pyproject", str(ROOT / "pyproject.toml"), "--spec-version", "1.6",
            "--output-reproducible", "--output-format", "JSON", "--no-validate",
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError(f"cyclonedx-py failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _name(component: dict[str, Any]) -> str:
    return re.sub(r"[-_.]+", "-", component["name"]).lower()


def document() -> str:
    """The document as text, with each list in a fixed order. Raises ValueError, which says what is wrong."""
    locked = _read("requirements", str(ROOT / "requirements.lock"))
    here = _read("environment", sys.prefix)
    installed = {_name(c): c for c in here["components"]}
    refs = {}  # of the environment's document to ours
    for component in locked["components"]:
        component["bom-ref"] = component["purl"]
        del component["description"]  # the line of the lock
        if found := installed.get(_name(component)):
            if found["version"] != component["version"]:
                raise ValueError(
                    f"{component['name']} {found['version']} is installed, but requirements.lock pins "
                    f"{component['version']}. Run make setup-dev."
                )
            refs[found["bom-ref"]] = component["bom-ref"]
            component |= {key: found[key] for key in ("description", "licenses") if key in found}
    locked["components"].sort(key=_name)
    root = locked["metadata"]["component"]
    version = version_of(ROOT, changeable=False)  # of what `make dist` makes of this commit
    root |= {"version": version, "purl": f"pkg:pypi/{root['name']}@{version}"}
    (direct,) = (d.get("dependsOn", []) for d in here["dependencies"] if d["ref"] == root["bom-ref"])
    locked["dependencies"] = [
        {"ref": root["bom-ref"], "dependsOn": sorted(refs[one] for one in direct if one in refs)},
        *({"ref": component["bom-ref"]} for component in locked["components"]),
    ]
    text = json.dumps(locked, indent=2, sort_keys=True) + "\n"
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes a second to load

    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"The document breaks CycloneDX's schema: {error}")
    return text


if __name__ == "__main__":
    target = ROOT / "dist/rmx.cdx.json"
    target.parent.mkdir(exist_ok=True)
    try:
        target.write_text(document())
    except ValueError as error:
        sys.exit(str(error))
    print(f"Wrote {target.relative_to(ROOT)}.")
