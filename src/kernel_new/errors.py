"""What can go wrong for a user: each error says what was wrong, and its hint says what to do."""


class KernelNewError(Exception):
    """A failure to report without a traceback; the command ends with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(KernelNewError):
    """The command was called wrongly: an answer that is refused, a missing or a contradictory option."""

    exit_code = 2


class MissingToolError(KernelNewError):
    """A program that is needed is not installed, or is too old."""


class CommandError(KernelNewError):
    """A program that was run failed; `output` is what it printed."""

    def __init__(self, message: str, hint: str = "", output: str = "") -> None:
        super().__init__(message, hint)
        self.output = output


class StoppedError(KernelNewError):
    """The user chose not to go on."""

    exit_code = 130
