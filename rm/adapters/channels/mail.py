"""Alerts by e-mail, over SMTP."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256
from typing import Any

from rm.adapters.channels.webhook import read_secret
from rm.adapters.http_exchange import NoAnswer, trusting
from rm.core.alerts.alert import FIRING, IMPROVED, WORSENED
from rm.core.alerts.channel import NotTold

LISTED = 50  # alerts in a message about many


class MailChannel:
    """`tls`: "none", "starttls" or "tls" from the first byte, the server's name and certificate checked;
    `ca_file`: certificates to trust, "" = the system's. The password's file is read each time.
    """

    repeat_s = 0.0

    def __init__(
        self,
        to: Sequence[str],
        sender: str,
        server: tuple[str, int],
        tls: str,
        user: str,
        password_file: str,
        timeout_s: float,
        ca_file: str = "",
    ) -> None:
        self._to = tuple(to)
        self._sender = sender
        self._server = server
        self._tls = tls
        self._user = user
        self._password_file = password_file
        self._timeout_s = timeout_s
        self._ca_file = ca_file

    def tell(self, notice: Mapping[str, Any]) -> None:
        self._send(message_of(notice, self._sender, self._to))

    def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
        """A mail to `to`, whoever this channel is for, or NotTold; `name` is the same for each repetition."""
        message = EmailMessage()
        message["Subject"] = _one_line(subject)
        message["From"] = self._sender
        message["To"] = to
        message["Date"] = formatdate()
        message["Message-ID"] = _name(name, "letter")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content("\n".join(map(_shown, text.split("\n"))))
        self._send(message)

    def _send(self, message: EmailMessage) -> None:
        host, port = self._server
        try:
            context = None if self._tls == "none" else trusting(self._ca_file)
        except NoAnswer as error:
            raise NotTold(str(error)) from None
        password = read_secret(self._password_file).decode(errors="replace") if self._user else ""
        try:
            with ExitStack() as open_:
                if self._tls == "tls":
                    server: smtplib.SMTP = smtplib.SMTP_SSL(
                        host, port, timeout=self._timeout_s, context=context
                    )
                else:
                    server = smtplib.SMTP(host, port, timeout=self._timeout_s)
                open_.enter_context(server)
                if self._tls == "starttls":
                    server.starttls(context=context)
                if self._user:
                    server.login(self._user, password)
                refused = server.send_message(message)
        except ssl.SSLCertVerificationError as error:
            said = f"The certificate of the mail server {host} is refused: {error.verify_message}."
            raise NotTold(said) from None
        except smtplib.SMTPAuthenticationError as error:  # its text may repeat what was sent
            said = f"The mail server {host} refused the user or the password, code {error.smtp_code}."
            raise NotTold(said) from None  # the file may be mended before the next attempt
        except smtplib.SMTPResponseException as error:
            again = 400 <= error.smtp_code < 500
            raise NotTold(f"The mail server {host} answered with code {error.smtp_code}.", again) from None
        except smtplib.SMTPRecipientsRefused as error:  # for now, where a server lists unknown senders grey
            again = any(400 <= code < 500 for code, _ in error.recipients.values())
            raise NotTold(f"The mail server {host} refused every recipient.", again) from None
        except smtplib.SMTPNotSupportedError:
            wanted = "STARTTLS" if self._tls == "starttls" else "a feature that the mail needs"
            raise NotTold(f"The mail server {host} does not offer {wanted}.") from None
        except (TimeoutError, smtplib.SMTPServerDisconnected) as error:
            late = isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError)
            said = f"did not answer within {self._timeout_s:g} s" if late else "closed the connection"
            raise NotTold(f"The mail server {host} {said}.") from None
        except (OSError, smtplib.SMTPException, UnicodeError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NotTold(f"The mail server {host} cannot be used: {why}.") from None
        if refused:
            raise NotTold(f"The mail server {host} refused {len(refused)} recipients.", False)


def message_of(notice: Mapping[str, Any], sender: str, to: Sequence[str]) -> EmailMessage:
    """The Message-ID is the same for each repetition; what follows a firing refers to it."""
    message = EmailMessage()
    event = notice["event"]
    title = f"[rm] {event.upper()}: {notice['condition']} {notice['subject']}"
    if event in (WORSENED, IMPROVED):
        title += f" is {notice['level']}"
    message["Subject"] = _one_line(title)
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Date"] = formatdate()
    again = event in (WORSENED, IMPROVED)  # an episode may have several
    message["Message-ID"] = _name(notice["id"], f"{event} {notice['at_us']}" if again else event)
    message["Auto-Submitted"] = "auto-generated"
    if event != FIRING:
        message["References"] = _name(notice["id"], FIRING)
    lines = [notice["message"], ""]
    if len(notice["alerts"]) > 1:
        lines += [f"- {a['subject']}: {a['message']}" for a in notice["alerts"][:LISTED]]
        if (more := len(notice["alerts"]) - LISTED) > 0:
            lines.append(f"- and {more} more")
        lines.append("")
    lines += [
        f"condition: {notice['condition']}",
        *([f"level:     {notice['level']}"] if notice["level"] else []),
        f"subject:   {notice['subject']}",
        f"hosts:     {', '.join(notice['hosts'][:LISTED]) or '-'}",
        f"rule:      {notice['rule']}",
        f"fired:     {_time(notice['fired_us'])}",
    ]
    if notice["ended_us"]:
        lines.append(f"over:      {_time(notice['ended_us'])}")
    message.set_content("\n".join(map(_shown, [*lines, "", "`rmx alerts` lists what holds now."])))
    return message


def _one_line(text: str) -> str:
    """As a header has it. EmailMessage would decode an encoded word (RFC 2047) in what a user named, and the
    line ends in it would begin headers and a text of the user's own."""
    return _shown(" ".join(text.split())).replace("=?", "= ?")


def _shown(words: str) -> str:
    """Nothing that commands the terminal of who reads it, or turns the text around it."""
    return "".join(char if char.isprintable() else "?" for char in words)


def _name(episode: str, event: str) -> str:
    return f"<{sha256(f'{episode} {event}'.encode()).hexdigest()[:32]}@rm>"


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
