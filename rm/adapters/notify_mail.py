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

from rm.adapters.notify_webhook import read_secret
from rm.core.alert_channel import NotTold


class MailChannel:
    """`tls`: "none", "starttls" or "tls", certificates checked. The password's file is read each time."""

    def __init__(
        self,
        to: Sequence[str],
        sender: str,
        server: tuple[str, int],
        tls: str,
        user: str,
        password_file: str,
        timeout_s: float,
    ) -> None:
        self._to = tuple(to)
        self._sender = sender
        self._server = server
        self._tls = tls
        self._user = user
        self._password_file = password_file
        self._timeout_s = timeout_s

    def tell(self, notice: Mapping[str, Any]) -> None:
        message = message_of(notice, self._sender, self._to)
        host, port = self._server
        try:
            with ExitStack() as open_:
                if self._tls == "tls":
                    context = ssl.create_default_context()
                    plain: smtplib.SMTP = smtplib.SMTP_SSL(
                        host, port, timeout=self._timeout_s, context=context
                    )
                else:
                    plain = smtplib.SMTP(host, port, timeout=self._timeout_s)
                server = open_.enter_context(plain)
                if self._tls == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if self._user:
                    server.login(self._user, read_secret(self._password_file).decode())
                refused = server.send_message(message)
        except smtplib.SMTPResponseException as error:  # its text may repeat what was sent
            again = 400 <= error.smtp_code < 500
            raise NotTold(f"The mail server {host} answered with code {error.smtp_code}.", again) from None
        except smtplib.SMTPRecipientsRefused as error:  # for now, where a server lists unknown senders grey
            again = any(400 <= code < 500 for code, _ in error.recipients.values())
            raise NotTold(f"The mail server {host} refused every recipient.", again) from None
        except (OSError, smtplib.SMTPException, UnicodeError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NotTold(f"The mail server {host} cannot be used: {why}.") from None
        if refused:
            raise NotTold(f"The mail server {host} refused {len(refused)} recipients.", False)


def message_of(notice: Mapping[str, Any], sender: str, to: Sequence[str]) -> EmailMessage:
    """The Message-ID is the same whenever the same is told again; a recovery refers to its firing."""
    message = EmailMessage()
    title = f"[rm] {notice['event'].upper()}: {notice['condition']} {notice['subject']}"
    message["Subject"] = " ".join(title.split())
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Date"] = formatdate()
    message["Message-ID"] = _name(notice["id"], notice["event"])
    message["Auto-Submitted"] = "auto-generated"
    if notice["event"] == "resolved":
        message["References"] = _name(notice["id"], "firing")
    lines = [
        notice["message"],
        "",
        f"condition: {notice['condition']}",
        f"subject:   {notice['subject']}",
        f"hosts:     {', '.join(notice['hosts']) or '-'}",
        f"rule:      {notice['rule']}",
        f"fired:     {_time(notice['fired_us'])}",
    ]
    if notice["ended_us"]:
        lines.append(f"over:      {_time(notice['ended_us'])}")
    message.set_content("\n".join([*lines, "", "`rmx alerts` lists what holds now."]))
    return message


def _name(episode: str, event: str) -> str:
    return f"<{sha256(f'{episode} {event}'.encode()).hexdigest()[:32]}@rm>"


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
