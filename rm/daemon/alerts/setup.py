"""The tables [[alerts.rule]] and [[alerts.channel]] of rm.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import msgspec

from rm.core.alerts.alert import CONDITIONS, LEVELS, Rule
from rm.errors import ConfigError
from rm.hints import did_you_mean
from rm.typed import convert, in_words

T = TypeVar("T")
MOST_S = 366 * 86_400.0
ADDRESS = re.compile(r"[^@\s,<>]+(@[^@\s,<>]+)?")  # without a domain: a user of the mail server's
# what a channel may say besides its name and timeout_s, by what says what it is
KEYS = {
    "command": ("command",),
    "webhook": ("webhook", "webhook_file", "secret_file", "ca_file"),
    "alertmanager": ("alertmanager", "ca_file"),
    "mail_to": ("mail_to", "mail_from", "smtp", "smtp_tls", "smtp_user", "smtp_password_file", "ca_file"),
}


@dataclass(frozen=True, slots=True)
class RuleTable:
    name: str
    on: tuple[str, ...] = CONDITIONS
    level: str = ""  # each condition from its usual level on
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    after_s: float | None = None  # each condition for its usual time
    clear_s: float = 60.0
    tell: tuple[str, ...] = ()
    improved: bool = False


@dataclass(frozen=True, slots=True)
class ChannelTable:
    """One of `command`, `webhook` or `webhook_file`, `alertmanager`, `mail_to` says what it is."""

    name: str
    command: tuple[str, ...] = ()
    webhook: str = ""
    webhook_file: str = ""
    secret_file: str = ""
    alertmanager: str = ""
    mail_to: tuple[str, ...] = ()
    mail_from: str = ""
    smtp: str = "localhost:25"
    smtp_tls: str = "none"
    smtp_user: str = ""
    smtp_password_file: str = ""
    ca_file: str = ""
    timeout_s: float = 10.0

    @property
    def server(self) -> tuple[str, int]:
        host, _, port = self.smtp.rpartition(":")
        return host.strip("[]"), int(port)


def rules_of(
    tables: Sequence[Mapping[str, Any]], channels: Sequence[str], keeping: tuple[str, ...] = ()
) -> tuple[Rule, ...]:
    """Without any table: one rule that notifies every channel of everything. `keeping` are the channels that
    keep alerts by their level. Raises ConfigError."""
    read = [_read(t, RuleTable, "alerts.rule") for t in tables] or [RuleTable("all")]
    _check_names("alerts.rule", [r.name for r in read])
    rules = []
    for r in read:
        where = f"[[alerts.rule]] '{r.name}'"
        if not r.on:
            raise ConfigError(f"{where}, on: it names no condition.", "Leave 'on' out for all conditions.")
        for condition in r.on:
            _check_word(f"{where}, on", condition, CONDITIONS)
        for channel in r.tell:
            _check_word(f"{where}, tell", channel, channels)
        if r.level:
            _check_word(f"{where}, level", r.level, LEVELS)
        for key, value in (("after_s", r.after_s), ("clear_s", r.clear_s)):
            if value is not None and not 0 <= value <= MOST_S:
                raise ConfigError(f"{where}, {key}: {value} is not a duration.", "Write seconds, 0 or more.")
        after_us = None if r.after_s is None else round(r.after_s * 1e6)
        clear_us = round(r.clear_s * 1e6)
        tell = r.tell or tuple(channels)
        rules.append(
            Rule(r.name, r.on, r.level, r.hosts, r.zones, after_us, clear_us, tell, r.improved, keeping)
        )
    return tuple(rules)


def channels_of(tables: Sequence[Mapping[str, Any]]) -> tuple[ChannelTable, ...]:
    """Raises ConfigError."""
    read = [_read(t, ChannelTable, "alerts.channel") for t in tables]
    _check_names("alerts.channel", [c.name for c in read])
    for table, c in zip(tables, read, strict=True):
        where = f"[[alerts.channel]] '{c.name}'"
        chosen = (bool(c.command), bool(c.webhook or c.webhook_file), bool(c.alertmanager), bool(c.mail_to))
        if sum(chosen) != 1 or (c.webhook and c.webhook_file):
            raise ConfigError(
                f"{where} must have one destination.",
                "Give it command, webhook (or webhook_file), alertmanager, or mail_to.",
            )
        kind = tuple(KEYS)[chosen.index(True)]
        for key in table:
            if key not in (*KEYS[kind], "name", "timeout_s"):
                raise ConfigError(
                    f"{where}: '{key}' does not apply to a channel with {kind}.", "Leave it out."
                )
        if c.command and not c.command[0]:
            raise ConfigError(f"{where}, command: it names no program.")
        for key, url in (("webhook", c.webhook), ("alertmanager", c.alertmanager)):
            if url and not re.match(r"https?://[^/?#]", url):
                raise ConfigError(f"{where}, {key}: this is not a URL.", "It begins with https://.")
        if c.mail_to and not c.mail_from:
            raise ConfigError(f"{where} has no mail_from.", "Say which address the mail comes from.")
        for address in (*c.mail_to, *([c.mail_from] if c.mail_from else [])):
            if not ADDRESS.fullmatch(address):
                said = " ".join(address.split())[:60]
                raise ConfigError(f"{where}: '{said}' is not an address.", "Write it as ops@example.org.")
        _check_word(f"{where}, smtp_tls", c.smtp_tls, ("none", "starttls", "tls"))
        if c.smtp_user and not c.smtp_password_file:
            raise ConfigError(f"{where} has no smtp_password_file.", "Name the file with the password.")
        if c.smtp_user and c.smtp_tls == "none":
            raise ConfigError(f"{where} would send a password in the clear.", "Set smtp_tls.")
        if c.mail_to and c.ca_file and c.smtp_tls == "none":
            raise ConfigError(f"{where} has a ca_file and encrypts nothing.", "Set smtp_tls.")
        host, _, port = c.smtp.rpartition(":")
        if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
            raise ConfigError(f"{where}, smtp: '{c.smtp:.60}' is not HOST:PORT.", "As 'localhost:25'.")
        if not 0 < c.timeout_s <= 600:
            raise ConfigError(f"{where}, timeout_s: {c.timeout_s} s is out of range.", "Write 1 to 600.")
    return tuple(read)


def check_conditions(key: str, words: Sequence[str]) -> None:
    for word in words:
        _check_word(key, word, CONDITIONS)


def _read(table: Mapping[str, Any], kind: type[T], title: str) -> T:
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"[[{title}]] has no key '{key}'.", did_you_mean(key, known))
    if not table.get("name"):
        raise ConfigError(f"A table [[{title}]] has no name.", "Give it one.")
    try:
        return convert(dict(table), kind)
    except msgspec.ValidationError as error:
        key, what = in_words(error)
        raise ConfigError(f"[[{title}]] '{table['name']!s:.60}'{key and f', {key}'}: {what}.") from None


def _check_names(title: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"There are two tables [[{title}]] named '{name}'.", "Name each differently.")
        if "/" in name:
            raise ConfigError(f"[[{title}]] '{name}': a name must not contain '/'.")


def _check_word(where: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        raise ConfigError(f"{where}: there is no '{word:.60}'.", did_you_mean(word, known))
