"""The group of commands: what is no command is a destination, help fits the terminal, the first word completes."""

import shutil
from typing import Any

from typer.core import TyperGroup

COLUMNS = shutil.get_terminal_size().columns


class DefaultToNew(TyperGroup):
    """`kernel-new DEST` is `kernel-new new DEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {option for parameter in self.params for option in parameter.opts}
        if not args and ctx.resilient_parsing:
            # The shell completes the first word: it may become a command.
            return super().parse_args(ctx, args)
        if not args or (args[0] not in self.commands and args[0] not in own | {"--help", "-h"}):
            args = ["new", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, whose line in the list is whole in a narrow terminal too."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not command.short_help:
            command.short_help = command.help
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands, and what may follow if the word is no command."""
        found = super().shell_complete(ctx, incomplete)
        return [*found, *self.commands["new"].shell_complete(ctx, incomplete)] if incomplete else found


def topics() -> list[str]:
    """What `explain` explains, for the shell to complete."""
    from kernel_new import explain

    return list(explain.topics())
