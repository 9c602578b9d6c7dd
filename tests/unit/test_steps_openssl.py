"""Keys, requests and certificates, by the machine's own openssl; read by another library."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from rm.playbook.model.problems import BadArgument
from tests.steps_request import done, kept, one, refused, run, step

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")


def key_of(path: Path, passphrase: bytes | None = None) -> Any:
    return serialization.load_pem_private_key(path.read_bytes(), passphrase)


def test_private_keys(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    result = done("openssl_privatekey", path=str(path), size=2048)
    assert (key_of(path).key_size, path.stat().st_mode & 0o777) == (2048, 0o600)
    assert path.read_text().startswith("-----BEGIN RSA PRIVATE KEY-----")
    der = (
        key_of(path)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    import hashlib

    assert result["fingerprint"]["sha256"].replace(":", "") == hashlib.sha256(der).hexdigest()
    assert "wrong type" in refused("openssl_privatekey", path=str(path), size=1024, regenerate="fail")
    kept("openssl_privatekey", path=str(path), size=1024, regenerate="never")
    done("openssl_privatekey", path=str(path), size=2048, passphrase="p w", mode="0640")
    assert key_of(path, b"p w").key_size == 2048
    assert "Unable to read" in refused("openssl_privatekey", path=str(path), regenerate="partial_idempotence")
    done("openssl_privatekey", path=str(path), type="ECC", curve="secp256r1")
    assert key_of(path).curve.name == "secp256r1"
    done("openssl_privatekey", path=str(path), type="Ed25519", backup=True)
    assert len(list(tmp_path.glob("key.pem.*"))) == 1
    assert one("openssl_privatekey", path=str(path), type="Ed25519", force=True)["changed"]
    done("openssl_privatekey", path=str(path), state="absent")
    with pytest.raises(BadArgument, match="needs 'curve'"):
        step(1, "openssl_privatekey", path="/x", type="ECC")


def test_requests_and_certificates(tmp_path: Path) -> None:
    key, csr, crt = (tmp_path / f"a.{name}" for name in ("key", "csr", "crt"))
    done("openssl_privatekey", path=str(key), type="ECC", curve="secp384r1")
    wanted = {
        "path": str(csr), "privatekey_path": str(key), "common_name": "www.example.com", "O": "A $ B # \"c\"",
        "country_name": "DE", "key_usage": ["digitalSignature", "keyAgreement"], "keyUsage_critical": True,
        "extended_key_usage": ["serverAuth"],
    }  # fmt: skip
    done("openssl_csr", **wanted)
    read = x509.load_pem_x509_csr(csr.read_bytes())
    assert read.subject.rfc4514_string() == 'CN=www.example.com,O=A $ B # \\"c\\",C=DE'
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["www.example.com"]
    assert read.extensions.get_extension_for_class(x509.KeyUsage).critical
    done("openssl_csr", **wanted, subject_alt_name=["DNS:example.com", "IP:10.0.0.1"])
    signed = {"path": str(crt), "csr_path": str(csr), "privatekey_path": str(key), "provider": "selfsigned"}
    done("x509_certificate", **signed, selfsigned_not_after="+52w1d")
    certificate = x509.load_pem_x509_certificate(crt.read_bytes())
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 365
    assert certificate.subject == certificate.issuer == read.subject
    assert certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    certificate.verify_directly_issued_by(certificate)
    done("openssl_csr", **wanted, basic_constraints="CA:TRUE", basic_constraints_critical=True)
    done("community.crypto.x509_certificate", **signed)
    leaf_key, leaf_csr, leaf = (tmp_path / f"b.{name}" for name in ("key", "csr", "crt"))
    done("openssl_privatekey", path=str(leaf_key), size=2048, passphrase="pw")
    done("openssl_csr", path=str(leaf_csr), privatekey_path=str(leaf_key), privatekey_passphrase="pw",
         subject={"CN": "leaf", "OU": ["one", "two"]})  # fmt: skip
    by_ca = {"path": str(leaf), "csr_path": str(leaf_csr), "provider": "ownca", "ownca_path": str(crt),
             "ownca_privatekey_path": str(key)}  # fmt: skip
    done("x509_certificate", **by_ca, ownca_not_after="+90d")
    found = x509.load_pem_x509_certificate(leaf.read_bytes())
    assert [one.value for one in found.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)] == [
        "one", "two"]  # fmt: skip
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(crt.read_bytes()))
    done("openssl_privatekey", path=str(key), type="Ed25519")
    done("openssl_csr", **wanted)
    done("x509_certificate", **signed)
    assert "does not exist" in refused("openssl_csr", path=f"{tmp_path}/x", privatekey_path="/no/key")
    for given, says in (
        ({"provider": "acme"}, "selfsigned or ownca"),
        ({"provider": "selfsigned"}, "privatekey_path"),
        ({"provider": "selfsigned", "privatekey_path": "/k", "selfsigned_not_after": "+5s"}, "whole number"),
        ({"provider": "selfsigned", "privatekey_path": "/k", "selfsigned_not_after": "20300101000000Z"},
         "not relative"),
    ):  # fmt: skip
        with pytest.raises(BadArgument, match=says):
            step(1, "x509_certificate", path="/x", **given)


def test_check_mode_foretells_a_whole_chain(tmp_path: Path) -> None:
    key, csr, crt = (f"{tmp_path}/c.{name}" for name in ("key", "csr", "crt"))
    steps = [
        step(1, "openssl_privatekey", path=key, size=2048),
        step(2, "openssl_csr", path=csr, privatekey_path=key, common_name="x"),
        step(3, "x509_certificate", path=crt, csr_path=csr, privatekey_path=key, provider="selfsigned"),
        step(4, "openssl_privatekey", path=key, size=2048),
    ]
    results = run(*steps, check=True)["results"]
    assert [(r["changed"], r["failed"]) for r in results] == [(True, False)] * 3 + [(False, False)]
    assert not list(tmp_path.iterdir())
