"""What is to be said of a submission: every complaint at once, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rm.errors import BadOptions, UsageError


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
        """Raise BadOptions with all complaints, if there are any; it is refused for what is said first."""
        errors = list({str(error): error for error in self.errors}.values())  # several may read one option
        if len(errors) == 1:
            raise BadOptions(errors[0].what, errors[0].hint, errors[0].refusal)
        if errors:
            lines = "".join(f"\n  {number}. {error}" for number, error in enumerate(errors, 1))
            said = f"The job cannot be submitted, for {len(errors)} reasons:{lines}"
            raise BadOptions(said, refusal=errors[0].refusal)
