"""The certificate of the HTTPS door, renewed while clients connect."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

from cryptography import x509

from rm.config import HttpsConfig
from rm.web.https import Certificate
from tests.certificates import Authority


def greeted(server: ssl.SSLContext, authority: Path, name: str | None) -> int:
    """The serial number of the certificate that a client is shown in a whole handshake in memory."""
    client = ssl.create_default_context(cafile=str(authority))
    client.check_hostname = False
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(there, back, server_side=True)
    theirs = client.wrap_bio(back, there, server_hostname=name)
    open_ends = [theirs, ours]
    while open_ends:
        for end in list(open_ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_ends.remove(end)
    shown = theirs.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def test_a_renewed_certificate_fails_no_handshake_and_half_a_pair_is_not_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    first = authority.issue(certificate, key)
    door = Certificate(HttpsConfig(certificate=str(certificate), key=str(key)))
    assert {greeted(door.context, authority.file, name) for name in (None, "127.0.0.1", "rm")} == {first}

    old_key = key.read_bytes()
    second = authority.issue(certificate, key)
    new_key = key.read_bytes()
    key.write_bytes(old_key)  # as while somebody replaces one file after the other
    assert not door.look()
    assert greeted(door.context, authority.file, None) == first
    key.write_bytes(new_key)
    assert door.look()
    assert greeted(door.context, authority.file, None) == second

    over = threading.Event()

    def renew() -> None:
        while not over.is_set():
            authority.issue(certificate, key)
            door.look()

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        shown = [greeted(door.context, authority.file, None)]
        while len(shown) < 300 or len(set(shown)) < 3:
            shown.append(greeted(door.context, authority.file, None))
    finally:
        over.set()
        renewing.join()
