"""What a client says of the process in which it runs."""

import os

import pytest

from rm.submission.place import Place


def test_the_umask_is_read_and_no_file_of_another_thread_gets_another_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as context:
            context.delattr(os, "umask")
            assert Place().umask() == 0o027
    finally:
        os.umask(before)
