"""What is wrong in a playbook, found where its place is not known: the message is a clause without place."""


class BadArgument(Exception):
    """An argument is missing or has an impossible value."""


class TemplateProblem(Exception):
    """A template cannot be read or evaluated."""


def sentence(text: object) -> str:
    """The clause, or the sentence, with the mark that ends it."""
    said = str(text).rstrip(".")
    return said if said.endswith("?") else f"{said}."


class NeverRuns(BadArgument):
    """A module that rm runs on no host: an error where a host comes to it, on another distribution never."""
