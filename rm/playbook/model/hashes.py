"""The ways to hash a password, by passlib's names as Ansible has them."""

from __future__ import annotations

# of each: (crypt(5)'s mark, characters of salt, rounds where none are given)
HASHES = {
    "sha512_crypt": ("6", 16, 656_000),
    "sha256_crypt": ("5", 16, 535_000),
    "md5_crypt": ("1", 8, None),
    "bcrypt": ("2b", 22, 12),
}
# the names that the filter `password_hash` has for them
SHORT = {"md5": "md5_crypt", "blowfish": "bcrypt", "sha256": "sha256_crypt", "sha512": "sha512_crypt"}
