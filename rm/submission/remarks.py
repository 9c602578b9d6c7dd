"""What is to be said of a submission: every complaint at once, and the warnings."""

from __future__ import annotations

from rm.errors import BadOptions, UsageError


class Gathering:
    """A block that ends at its first complaint. As a class: `contextlib` is more to load than all of this."""

    def __init__(self, errors: list[UsageError]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, UsageError):
            self._errors.append(error)
            return True
        return False


class Remarks:
    """`errors` and `warnings` in the order in which they were found."""

    def __init__(self) -> None:
        self.errors: list[UsageError] = []
        self.warnings: list[str] = []

    def gathering(self) -> Gathering:
        """Keep the complaint that ends the block; what comes after the block is still looked at."""
        return Gathering(self.errors)

    def refuse(self) -> None:
        """Raise BadOptions with all complaints, if there are any; it is refused for what is said first."""
        errors = list({str(error): error for error in self.errors}.values())  # several may read one option
        if len(errors) == 1:
            raise BadOptions(errors[0].what, errors[0].hint, errors[0].refusal)
        if errors:
            lines = "".join(f"\n  {number}. {error}" for number, error in enumerate(errors, 1))
            said = f"The job cannot be submitted, for {len(errors)} reasons:{lines}"
            raise BadOptions(said, refusal=errors[0].refusal)
