"""The text of a batch script."""

from __future__ import annotations

from rm.errors import UsageError
from rm.submission import place

SCRIPT_MAX_BYTES = 4 << 20


def read_script(file: str) -> str:
    """The text of the batch script in this file; UsageError when it cannot be read or run."""
    try:
        data = place.here.read(file, SCRIPT_MAX_BYTES + 1)
    except OSError as error:
        hint = "" if "/" in file else "To run a command, use: --wrap 'COMMAND'."
        raise UsageError(f"The script {file} cannot be read: {error.strerror}.", hint) from None
    return script_text(data, file)


def script_text(data: bytes, file: str | None) -> str:
    """The bytes of a batch script as text; UsageError when no host could run it. `file`: where it stands,
    None for the standard input."""
    script, name = (
        (f"The script {file}", file) if file is not None else ("The script on standard input", "FILE")
    )
    if not data.strip():
        raise UsageError(f"{script} is empty.")
    if len(data) > SCRIPT_MAX_BYTES:
        raise UsageError(f"{script} is larger than {SCRIPT_MAX_BYTES >> 20} MiB.", "Read data from files.")
    if b"\0" in data:
        raise UsageError(
            f"{script} is not a text script.", "To run a program, use: rmx submit --wrap './program'."
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{script} is not UTF-8 text: line {line} has the byte 0x{data[error.start]:02X}.",
            f"If it is Latin-1, convert it with: iconv -f latin1 -t utf-8 {name} > NEW",
        ) from None
    if "\r\n" in text:
        raise UsageError(
            f"{script} contains DOS line breaks (\\r\\n).", f"Convert it with: sed -i 's/\\r$//' {name}"
        )
    if text.startswith("\ufeff#!"):
        raise UsageError(
            f"{script} begins with a byte order mark, which hides the #! of its first line.",
            f"Remove it with: sed -i '1s/^\\xef\\xbb\\xbf//' {name}",
        )
    if not text.startswith("#!"):
        raise UsageError(
            f"{script} does not look like a batch script.",
            "The first line must start with #! followed by the path to an interpreter, such as #!/bin/sh.",
        )
    return text


def is_text(value: str) -> bool:
    """Was it UTF-8 where it comes from? Bytes that are none come as surrogates from a command line."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
