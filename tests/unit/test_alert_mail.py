"""Mail through a real SMTP server: STARTTLS, TLS from the first byte, authentication, and what goes wrong.

Certificates are made here; the server is aiosmtpd's.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rm.adapters.channels.mail import MailChannel
from rm.core.alerts.channel import NotTold
from rm.daemon.alerts.delivery import Delivery
from tests.fakes import PATIENCE_S
from tests.unit.test_alert_channels import NOTICE, Settled, notice

pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH")  # of the server: TLS is from the first byte
PASSWORD = "s3cr3t-of-the-mail"


@dataclass(frozen=True)
class Certified:
    """A certificate of 127.0.0.1 that vouches for itself."""

    file: Path
    key: Path


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return certify(tmp_path_factory.mktemp("certificate"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


def certify(folder: Path, name: x509.GeneralName) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    itself = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(itself)
        .issuer_name(itself)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certified = Certified(folder / "certificate.pem", folder / "key.pem")
    certified.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    certified.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return certified


class Box:
    """What the server took, and over which connections."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.encrypted: list[bool] = []
        self.users: list[bytes] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(envelope.content)
        self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return "250 kept"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, given: Any
    ) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.users.append(given.login)
        return AuthResult(success=given.password == PASSWORD.encode(), handled=False)


@contextmanager
def mail_server(box: Box, certified: Certified, tls: str) -> Iterator[int]:
    """On a free port of 127.0.0.1, which it yields; it takes mail of users only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certified.file, certified.key)
    starttls = {"tls_context": context, "require_starttls": True} if tls == "starttls" else {}

    def made() -> SMTP:
        return SMTP(
            box,
            loop=loop,
            authenticator=box.authenticate,
            auth_required=True,
            auth_require_tls=bool(starttls),
            **starttls,
        )

    async def listen() -> asyncio.Server:
        return await loop.create_server(made, "127.0.0.1", 0, ssl=context if tls == "tls" else None)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


def channel(
    port: int, tls: str, password: Path, ca_file: object = "", timeout_s: float = PATIENCE_S
) -> MailChannel:
    server = ("127.0.0.1", port)
    return MailChannel(["ops@x.test"], "rm@x.test", server, tls, "rm", str(password), timeout_s, str(ca_file))


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_mail_goes_encrypted_and_with_the_user(tls: str, certified: Certified, password: Path) -> None:
    box = Box()
    with mail_server(box, certified, tls) as port:
        channel(port, tls, password, certified.file).tell(NOTICE)
    (mail,) = box.mails
    assert message_from_bytes(mail, policy=policy.default)["To"] == "ops@x.test"
    assert (box.encrypted, box.users) == ([True], [b"rm"])


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_a_certificate_that_is_not_trusted_is_refused(
    tls: str, certified: Certified, password: Path, tmp_path: Path
) -> None:
    """Unknown to the system; or trusted, but of another server. The password is not sent."""
    box = Box()
    other = certify(tmp_path, x509.DNSName("mail.test"))
    with mail_server(box, certified, tls) as port:
        with pytest.raises(
            NotTold, match=r"certificate of the mail server 127.0.0.1 is refused: self-signed"
        ):
            channel(port, tls, password).tell(NOTICE)
        with pytest.raises(NotTold, match="is refused"):
            channel(port, tls, password, other.file).tell(NOTICE)
    refused = pytest.raises(NotTold, match="is refused: IP address mismatch")
    with mail_server(box, other, tls) as port, refused:
        channel(port, tls, password, other.file).tell(NOTICE)
    assert box.users == box.mails == []


def test_a_server_that_does_not_encrypt_is_never_sent_the_password(
    certified: Certified, password: Path
) -> None:
    box = Box()
    with mail_server(box, certified, "none") as port:
        with pytest.raises(NotTold, match="does not offer STARTTLS"):
            channel(port, "starttls", password, certified.file).tell(NOTICE)
        with pytest.raises(NotTold, match="cannot be used"):
            channel(port, "tls", password, certified.file).tell(NOTICE)
    assert box.users == box.mails == []


def test_files_that_are_not_there(certified: Certified, password: Path, tmp_path: Path) -> None:
    with pytest.raises(NotTold, match="nowhere cannot be read: No such file"):
        channel(1, "tls", password, tmp_path / "nowhere").tell(NOTICE)
    with pytest.raises(NotTold, match=r"certificates of .*password cannot be read: it holds none"):
        channel(1, "tls", password, password).tell(NOTICE)
    with pytest.raises(NotTold, match="missing cannot be read"):
        channel(1, "tls", tmp_path / "missing", certified.file).tell(NOTICE)


def test_a_wrong_password_is_tried_again_holds_up_no_other_channel_and_is_never_shown(
    certified: Certified, password: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever mends the file meanwhile need not restart the daemon."""
    caplog.set_level(logging.DEBUG, "rm")
    password.write_text("wr0ng-passw0rd")
    box, settled = Box(), Settled()

    class Other:
        repeat_s = 0.0

        def tell(self, body: object) -> None:
            password.write_text(PASSWORD)

    with mail_server(box, certified, "starttls") as port:
        mail = channel(port, "starttls", password, certified.file)
        with pytest.raises(NotTold, match="refused the user or the password, code 535") as caught:
            mail.tell(NOTICE)
        assert caught.value.again
        delivery = Delivery({"mail": mail, "other": Other()}, settled, 50, 0.05)
        delivery.tell("mail", [notice("a")])
        delivery.tell("other", [notice("a")])
        heard = settled.wait(2)
        delivery.close()
    assert sorted(heard) == [("a", "mail", ""), ("a", "other", "")]
    assert len(box.mails) == 1
    assert "passw0rd" not in caplog.text + str(caught.value)
    assert PASSWORD not in caplog.text


def test_a_server_that_says_nothing(password: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NotTold, match=r"did not answer within 0.1 s") as caught:
            channel(port, "starttls", password, timeout_s=0.1).tell(NOTICE)
    assert caught.value.again
