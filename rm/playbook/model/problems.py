"""What is wrong in a playbook, found where its place is not known: the message is a clause without place."""


class BadArgument(Exception):
    """An argument is missing or has an impossible value."""


class TemplateProblem(Exception):
    """A template cannot be read or evaluated."""
