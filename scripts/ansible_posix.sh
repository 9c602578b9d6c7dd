#!/bin/sh
# Puts the collection ansible.posix beside ansible-core in .venv, so that the tests can compare its modules, too.
# It is cut out of the package `ansible` (54 MB), of which nothing else is wanted.
#   scripts/ansible_posix.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder" ansible==12.3.0
.venv/bin/python - "$folder" <<'END'
import sys
import sysconfig
import zipfile
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as package:
    wanted = [name for name in package.namelist() if name.startswith("ansible_collections/ansible/posix/")]
    package.extractall(sysconfig.get_path("purelib"), wanted)
END
