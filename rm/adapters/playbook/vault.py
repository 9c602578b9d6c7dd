"""ansible-vault's files and values: AES-256 in counter mode under a password, authenticated by HMAC.

The format (version 1.1 and 1.2): a header line `$ANSIBLE_VAULT;1.1;AES256[;label]`, then hexadecimal
text of three hexadecimal lines: salt, HMAC-SHA256 of the ciphertext, ciphertext. The keys and the
counter come from PBKDF2-HMAC-SHA256 with 10,000 rounds over the password and the salt.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from binascii import Error as BadHex
from binascii import hexlify, unhexlify
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rm.errors import UsageError
from rm.playbook.model.bounded_yaml import load_plain
from rm.playbook.model.vault_id import split_vault_id

HEADER = "$ANSIBLE_VAULT;"
ROUNDS = 10_000
SECRET_MIN = 4  # shorter texts are too common to be taken out of what is shown
NUMBER_MIN = 100_000  # so are smaller numbers
_BLOCK = 16


class Vault:
    """Opens what any of the passwords opens; raises UsageError with what to do."""

    def __init__(self, passwords: Sequence[bytes]) -> None:
        self.passwords = list(passwords)
        self.secrets: set[str] = set()  # plaintexts that must not be shown

    def __call__(self, text: str) -> str:
        """An `!vault` value's plaintext."""
        plain = self.open(text.encode()).decode()
        self._keep(plain)
        return plain

    def open_by(self, text: str, password: bytes) -> str:
        """What this password opens, whichever the run was given; it is secret from now on."""
        plain = Vault([password]).open(text.encode()).decode()
        self._keep(plain)
        return plain

    def open_file(self, data: bytes) -> bytes:
        """An encrypted file. What it holds is secret: of YAML each value, else the whole."""
        plain = self.open(data)
        try:
            value = load_plain(plain)
        except (yaml.YAMLError, UnicodeDecodeError, ValueError):
            value = None
        self._keep(value if isinstance(value, (dict, list)) else plain.decode(errors="replace"))
        return plain

    def _keep(self, value: Any) -> None:
        if isinstance(value, dict):
            for inner in value.values():
                self._keep(inner)
        elif isinstance(value, list):
            for inner in value:
                self._keep(inner)
        elif isinstance(value, str) and len(value.strip()) >= SECRET_MIN:
            self.secrets.add(value.strip())
        elif isinstance(value, int) and abs(value) >= NUMBER_MIN:
            self.secrets.add(str(value))

    def open(self, data: bytes) -> bytes:
        lines = data.decode("ascii", "replace").split()
        header = lines[0].split(";") if lines else []
        if len(header) < 3 or header[0] != "$ANSIBLE_VAULT" or header[1] not in ("1.1", "1.2"):
            raise UsageError("This is not ansible-vault's format 1.1 or 1.2.", "Encrypt it again.")
        if header[2] != "AES256":
            raise UsageError(f"The cipher {header[2]} is not known.", "Encrypt it again with AES256.")
        if not self.passwords:
            raise UsageError("It is encrypted.", "Give --vault-password-file or --ask-vault-pass.")
        try:
            salt, mac, ciphertext = (
                unhexlify(part) for part in unhexlify("".join(lines[1:])).split(b"\n", 2)
            )
        except (BadHex, ValueError):
            raise UsageError("The encrypted text is damaged.", "Restore it from its backup.") from None
        for password in self.passwords:
            key, mac_key, counter = _keys(password, salt)
            if hmac.compare_digest(mac, hmac.new(mac_key, ciphertext, hashlib.sha256).digest()):
                return _unpadded(_cipher(key, counter, ciphertext))
        raise UsageError("None of the vault passwords opens it.", "Check --vault-password-file.")


def seal(plain: bytes, password: bytes, salt: bytes | None = None, label: str = "default") -> str:
    """Encrypt as ansible-vault does, under a label of its vault ids."""
    salt = os.urandom(32) if salt is None else salt
    key, mac_key, counter = _keys(password, salt)
    pad = _BLOCK - len(plain) % _BLOCK
    ciphertext = _cipher(key, counter, plain + bytes([pad]) * pad)
    mac = hmac.new(mac_key, ciphertext, hashlib.sha256).digest()
    body = hexlify(b"\n".join(hexlify(part) for part in (salt, mac, ciphertext))).decode()
    head = "1.1;AES256" if label in ("", "default") else f"1.2;AES256;{label}"
    return "\n".join([f"{HEADER}{head}", *(body[i : i + 80] for i in range(0, len(body), 80))]) + "\n"


@lru_cache(maxsize=256)
def _keys(password: bytes, salt: bytes) -> tuple[bytes, bytes, bytes]:
    made = hashlib.pbkdf2_hmac("sha256", password, salt, ROUNDS, 80)
    return made[:32], made[32:64], made[64:]


def _cipher(key: bytes, counter: bytes, data: bytes) -> bytes:
    # loaded where something is encrypted: most runs need none of it
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    turn = Cipher(AES(key), CTR(counter)).encryptor()
    return turn.update(data) + turn.finalize()


def _unpadded(data: bytes) -> bytes:
    pad = data[-1] if data else 0
    if not 1 <= pad <= _BLOCK or data[-pad:] != bytes([pad]) * pad:
        raise UsageError("The encrypted text is damaged.", "Restore it from its backup.")
    return data[:-pad]


def read_password(path: str, what: str = "vault password") -> bytes:
    """A password file; a program is run and its output taken. `NAME@FILE` is Ansible's vault id."""
    file = Path(path if os.path.exists(path) else split_vault_id(path)[1]).expanduser()
    try:
        if file.stat().st_mode & stat.S_IXUSR:
            import subprocess

            done = subprocess.run([str(file.resolve())], capture_output=True, check=False)
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip()
                raise UsageError(f"The {what} program {file} failed ({done.returncode}): {said}")
            text = done.stdout
        else:
            text = file.read_bytes()
    except OSError as problem:
        raise UsageError(f"The {what} file {file}: {problem.strerror}.") from None
    if not text.strip():
        raise UsageError(f"The {what} file {file} is empty.")
    return text.strip(b"\r\n").strip()
