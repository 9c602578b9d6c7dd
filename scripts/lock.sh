#!/bin/sh
# Pins everything that rm needs to run in requirements.lock, and what its tests need besides in
# requirements-test.lock: exact versions with the SHA-256 of each file that the public index has of them.
#   scripts/lock.sh              keeps the versions that are pinned and still fit
#   scripts/lock.sh --upgrade    takes today's newest
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$folder/venv/bin/python" - "$folder" <<'END'
import sys
import tomllib
from pathlib import Path

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = project["project"]["optional-dependencies"]
run = [*project["project"]["dependencies"], *extras["postgres"]]
folder = Path(sys.argv[1])
(folder / "run").write_text("\n".join(run) + "\n")
(folder / "test").write_text("\n".join([*run, *extras["test"], *project["build-system"]["requires"]]) + "\n")
END
compile() { # compile WHAT LOCK OPTIONS…
    what=$1 lock=$2
    shift 2
    cp "$lock" "$folder/$lock" 2>/dev/null || :
    {
        echo "# Exact versions with hashes, for Python 3.11 and newer. Made by scripts/lock.sh."
        echo "$what"
    } >"$folder/head"
    # of the public index alone: whatever this machine adds or prefers would put its own files' hashes here
    env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL SSL_CERT_FILE="${PIP_CERT:-${SSL_CERT_FILE:-}}" \
        "$folder/venv/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 \
        --generate-hashes --no-header --no-annotate --no-emit-index-url --emit-build-options \
        --output-file "$folder/$lock" "$@"
    cat "$folder/head" "$folder/$lock" >"$lock"
    echo "Pinned $(grep -c == "$lock") packages in $lock."
}
compile "# What rm needs to run, as make setup installs it: pip install --require-hashes -r requirements.lock" \
    requirements.lock "$folder/run" "$@"
compile "# The same, and what building and testing rm needs: make setup-dev installs it." \
    requirements-test.lock "$folder/test" -c requirements.lock "$@"
