"""`rpm_key`: what rpm trusts, by `rpm` and `gpg`."""

import os
import re

from rm_steps_base import StepFailed, execute, must, plain_environment, state_diff, tool

_ARMOURED = re.compile(b"-----BEGIN PGP PUBLIC KEY BLOCK-----.*-----END PGP PUBLIC KEY BLOCK-----", re.S)
_GPG = ("--no-tty", "--batch", "--with-colons", "--fixed-list-mode")


def _rows(data, *words):
    """What gpg says of a key, in colons."""
    program = tool("gpg", "gpg2")
    out = must([program, *_GPG, *words, "-"], stdin=data)
    return [line.strip().split(":") for line in out.splitlines()]


def _read(args):
    """The key itself, None where only its id is given."""
    key = args["key"]
    if "://" in key:
        from rm_steps_web import content_of

        data = content_of(key, args)
        if not _ARMOURED.search(data):
            raise StepFailed("Not a public key: %s" % key)
        return data
    if re.match("(0x)?[0-9a-f]{8}", key, re.IGNORECASE):
        return None
    if not os.path.isfile(key):
        raise StepFailed("Not a valid key %s" % key)
    with open(key, "rb") as file:
        return file.read()


def _imported(number):
    argv = [tool("rpm"), "-q", "gpg-pubkey", "--qf", "%{description}"]
    code, out, _ = execute(argv, env=plain_environment())
    if code != 0:
        return False
    return any(number in row[4] for row in _rows(out) if len(row) > 4)


def do_rpm_key(run, args):
    data, number = _read(args), args["key"].strip().upper()
    rpm = tool("rpm")
    if data is not None:
        number = next((row[4] for row in _rows(data) if row[0] == "pub"), None)
        if number is None:
            raise StepFailed("Unexpected gpg output: it finds no key in %s" % args["key"])
    number = number[2:] if number.startswith("0X") else number
    wanted = args["state"] == "present"
    if _imported(number) == wanted or not run.is_new_state("rpm key " + number, wanted):
        return {"changed": False}
    if wanted:
        if data is None:
            raise StepFailed("When importing a key, a valid file must be given")
        marks = args["fingerprint"]
        if marks:
            words = ("--import", "--import-options", "show-only", "--dry-run")
            found = {row[9] for row in _rows(data, *words) if row[0] == "fpr"}
            if not set(marks) <= found:
                said = "The specified fingerprint, '%s', does not match any key fingerprints in '%s'"
                raise StepFailed(said % (", ".join(marks), ", ".join(sorted(found))))
        if not run.check:
            import tempfile

            with tempfile.NamedTemporaryFile(prefix="rm-key-") as file:
                file.write(data)
                file.flush()
                must([rpm, "--import", file.name])
    elif not run.check:
        must([rpm, "--erase", "--allmatches", "gpg-pubkey-" + number[-8:].lower()])
    return {"changed": True, "diff": state_diff(run, "key " + number, ["imported" if wanted else "erased"])}
