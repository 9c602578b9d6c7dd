"""Commands of commands, such as `rmx host drain`."""

from __future__ import annotations

import click

from rm.errors import UsageError


class Group(click.Group):
    """Says what a command that it has not is called here."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args[0] in self.commands or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:  # which completes words
            from rm.cli.other_words import hint_in

            what = f"There is no command '{self.name} {args[0]}'."
            raise UsageError(what, hint_in(str(self.name), args[0], self.commands))
        return super().resolve_command(ctx, args)
