"""What is to be said of a submission: every complaint at once, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rm.errors import UsageError


class Remarks:
    """`errors` and `warnings` in the order in which they were found."""

    def __init__(self) -> None:
        self.errors: list[UsageError] = []
        self.warnings: list[str] = []

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Keep the complaint that ends the block; what comes after the block is still looked at."""
        try:
            yield
        except UsageError as error:
            self.errors.append(error)

    def refuse(self) -> None:
        """Raise UsageError with all complaints, if there are any."""
        errors = list({str(error): error for error in self.errors}.values())  # several may read one option
        if len(errors) == 1:
            raise errors[0]
        if errors:
            lines = "".join(f"\n  {number}. {error}" for number, error in enumerate(errors, 1))
            raise UsageError(f"The job cannot be submitted, for {len(errors)} reasons:{lines}")
