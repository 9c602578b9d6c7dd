"""The text of a batch script."""

from __future__ import annotations

from rm.errors import UsageError

SCRIPT_MAX_BYTES = 4 << 20


def script_text(data: bytes, shown: str) -> str:
    """The bytes of a batch script as text; UsageError when no host could run it."""
    if not data.strip():
        raise UsageError(f"The script {shown} is empty.")
    if len(data) > SCRIPT_MAX_BYTES:
        raise UsageError(
            f"The script {shown} is larger than {SCRIPT_MAX_BYTES >> 20} MiB.", "Read data from files."
        )
    try:
        text = data.decode()
        binary = "\0" in text
    except UnicodeDecodeError:
        text, binary = "", True
    if binary:
        raise UsageError(
            f"{shown} is not a text script.", "To run a program, use: rmx submit --wrap './program'."
        )
    if "\r\n" in text:
        raise UsageError(
            f"The script {shown} has Windows line ends (CRLF).", f"Convert it with: sed -i 's/\\r$//' {shown}"
        )
    if not text.startswith("#!"):
        raise UsageError(
            f"The script {shown} does not say what runs it.", "Its first line must be such as #!/bin/sh."
        )
    return text
