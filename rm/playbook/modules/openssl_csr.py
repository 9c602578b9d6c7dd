"""`openssl_csr`: a request for a certificate, of a key, is in a file."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

# in the order in which Ansible puts them behind `subject`
NAMES = {
    "country_name": ("C", "countryName"),
    "state_or_province_name": ("ST", "stateOrProvinceName"),
    "locality_name": ("L", "localityName"),
    "organization_name": ("O", "organizationName"),
    "organizational_unit_name": ("OU", "organizationalUnitName"),
    "common_name": ("CN", "commonName"),
    "email_address": ("E", "emailAddress"),
}
_EXTENSIONS = {
    "subject_alt_name": ("subjectAltName", ("subjectAltName",)),
    "key_usage": ("keyUsage", ("keyUsage",)),
    "extended_key_usage": ("extendedKeyUsage", ("extKeyUsage", "extendedKeyUsage")),
    "basic_constraints": ("basicConstraints", ("basicConstraints",)),
}
ARGS = {
    "path": Arg(required=True),
    "privatekey_path": Arg(),
    "privatekey_content": Arg(),
    "privatekey_passphrase": Arg(),
    "state": Arg(choices=("absent", "present"), default="present"),
    "digest": Arg(default="sha256"),
    "version": Arg("int", default=1),
    "subject": Arg("raw"),
    "subject_ordered": Arg("raw"),
    **{name: Arg(aliases=short) for name, short in NAMES.items()},
    **{name: Arg("list", aliases=aliases) for name, (_, aliases) in _EXTENSIONS.items()},
    **{
        f"{name}_critical": Arg("bool", default=False, aliases=tuple(f"{a}_critical" for a in aliases))
        for name, (_, aliases) in _EXTENSIONS.items()
    },
    "use_common_name_for_san": Arg("bool", default=True, aliases=("useCommonNameForSAN",)),
    "ocsp_must_staple": Arg("bool", default=False, aliases=("ocspMustStaple",)),
    "create_subject_key_identifier": Arg("bool", default=False),
    "force": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "return_content": Arg("bool", default=False),
    "select_crypto_backend": Arg(choices=("auto", "cryptography"), default="auto"),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and (args["privatekey_path"] is None) == (
        args["privatekey_content"] is None
    ):
        raise BadArgument("give either 'privatekey_path' or 'privatekey_content'")
    subject = _subject(args)
    extensions = []
    names = args["subject_alt_name"]
    common = next((value for key, value in subject if key in ("CN", "commonName")), "")
    if not names and args["use_common_name_for_san"] and common:
        names = [f"DNS:{common}"]
    for name, (word, _) in _EXTENSIONS.items():
        values = names if name == "subject_alt_name" else args[name]
        if values:
            critical = ["critical"] if args[f"{name}_critical"] else []
            extensions.append([word, ",".join([*critical, *values])])
    if args["ocsp_must_staple"]:
        extensions.append(["tlsfeature", "status_request"])
    if args["create_subject_key_identifier"]:
        extensions.append(["subjectKeyIdentifier", "hash"])
    for _, value in [*subject, *extensions]:
        if "\n" in value:
            raise BadArgument("a subject and an extension are one line each")
    rest = ("path", "state", "digest", "privatekey_path", "privatekey_content", "privatekey_passphrase",
            "force", "backup", "return_content", *OWNERSHIP)  # fmt: skip
    return {**{name: args[name] for name in rest}, "subject": subject, "extensions": extensions}


def _subject(args: dict[str, Any]) -> list[list[str]]:
    given = args["subject"] if args["subject"] is not None else args["subject_ordered"] or []
    found: list[list[str]] = []
    for one in [given] if isinstance(given, dict) else given:
        if not isinstance(one, dict):
            raise BadArgument("'subject' is a mapping, 'subject_ordered' a list of mappings")
        for key, value in one.items():
            found += [[str(key), str(part)] for part in (value if isinstance(value, list) else [value])]
    return found + [[short[0], args[name]] for name, short in NAMES.items() if args[name] is not None]
