"""The daemon of another machine, by HTTPS and a token."""

from __future__ import annotations

import http.client
import os
import ssl
import stat
from collections.abc import Mapping

from rm.client.address import Address
from rm.errors import ConfigError, Forbidden, RmError, Unreachable
from rm.paths import user_config

TOKEN_BYTES_MOST = 4096
CONNECT_S = 5.0  # where there are peers to ask instead


class Untrusted(Unreachable):
    """Somebody answers there, with a certificate that is not trusted: no reason to ask elsewhere."""


def token_of(address: Address) -> str:
    """RM_TOKEN, or the text of the token file, which nobody else may read.

    Raises:
        Forbidden: there is none, or others may read it.
    """
    if given := os.environ.get("RM_TOKEN", "").strip():
        return given
    file = address.token_file or os.path.join(os.path.dirname(user_config(os.environ)), "token")
    try:
        with open(file, encoding="ascii") as handle:
            if stat.S_IMODE(os.fstat(handle.fileno()).st_mode) & 0o077:
                raise Forbidden(
                    f"The token file {file} can be read by others, so it is not used.",
                    f"Run: chmod 600 {file}",
                )
            return handle.read(TOKEN_BYTES_MOST).strip()
    except FileNotFoundError:
        raise Forbidden(
            f"{address} needs a token, and there is none: neither RM_TOKEN nor {file}.",
            "Make one on the control machine with `rmx token create`, and write it to that file (mode 600).",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token file {file} cannot be read: {error}.") from None


class HttpsDoor:
    """TLS 1.2 or newer, the certificate checked against the system's authorities and `ca_file`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.headers: Mapping[str, str] = {"Authorization": f"Bearer {token_of(address)}"}
        if not self.headers["Authorization"].isprintable():
            raise ConfigError("The token holds characters that no token has.")
        try:
            self._context = ssl.create_default_context()
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            if address.ca_file:
                self._context.load_verify_locations(address.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The file of authorities {address.ca_file} cannot be used: {error}.",
                "daemon.ca_file or RM_CA_FILE must name a file of PEM certificates.",
            ) from None

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """A connected one.

        Raises:
            Untrusted: not with a certificate that is trusted.
            Unreachable: nothing answers there; soon, where the address has peers.
        """
        soon_s = min(timeout_s or CONNECT_S, CONNECT_S) if self.address.peers else timeout_s
        made = http.client.HTTPSConnection(
            self.address.host, self.address.port, timeout=soon_s, context=self._context
        )
        try:
            made.connect()
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(
                f"The certificate of {self.address} is not trusted: {error.verify_message}.",
                "Name the authority that signed it with daemon.ca_file in rm.toml or RM_CA_FILE.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"No daemon answers at {self.address} ({getattr(error, 'strerror', None) or error}).",
                "Its rm.toml must have https.listen, certificate and key.",
            ) from None
        made.timeout = timeout_s
        made.sock.settimeout(timeout_s)
        return made

    def explain(self) -> RmError | None:
        return None
