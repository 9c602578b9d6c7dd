#!/bin/sh
# Pins today's versions of everything that rm and its tests need in requirements.lock.
#   scripts/lock.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" - >"$folder/wanted" <<'END'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
print(*project["build-system"]["requires"], sep="\n")
print(*project["project"]["dependencies"], sep="\n")
for extra in ("postgres", "test"):
    print(*project["project"]["optional-dependencies"][extra], sep="\n")
END
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$folder/wanted"
{
    echo "# Exact versions of what rm and its tests need, for Python 3.11 and newer. Made by scripts/lock.sh."
    "$folder/venv/bin/python" -m pip freeze --disable-pip-version-check --all --exclude pip
} >"$folder/requirements.lock"
cp "$folder/requirements.lock" requirements.lock
echo "Pinned $(grep -c == requirements.lock) packages in requirements.lock."
