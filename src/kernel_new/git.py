"""git, in repositories of the user's."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_new import process
from kernel_new.errors import CommandError, KernelNewError, MissingToolError

COMMIT = "git add --all && git commit"
"""What a user runs to commit everything."""


def enclosing(directory: Path) -> Path | None:
    """The work tree that `directory` lies in; None outside of any, or without git."""
    try:
        finished = process.run(["git", "rev-parse", "--show-toplevel"], cwd=directory, timeout=process.PROBE_LIMIT)
    except KernelNewError:
        return None
    return Path(finished.stdout.strip()) if finished.code == 0 and finished.stdout.strip() else None


def succeeds(directory: Path, *arguments: str) -> bool:
    """Whether git does so, of what takes it no time; not, without git."""
    try:
        return process.run(["git", *arguments], cwd=directory, timeout=process.PROBE_LIMIT).code == 0
    except KernelNewError:
        return False


def holds(directory: Path, what: str) -> bool:
    """Whether the repository of `directory` has an object or a commit of this name."""
    return succeeds(directory, "cat-file", "-e", what)


def marked(directory: Path) -> Path | None:
    """The nearest directory upwards with a `.git`, also where git itself cannot or does not want to read it."""
    return next((place for place in (directory, *directory.parents) if (place / ".git").exists()), None)


def probe() -> None:
    """Raise `CommandError` where git hangs: copier, which calls it for every file, would wait for ever."""
    with suppress(MissingToolError):
        process.run(["git", "--version"], timeout=process.PROBE_LIMIT)


def initialise(directory: Path) -> None:
    """Make `directory` a git repository, with nothing committed and no template directory of the user's applied.

    Raises:
        MissingToolError: git is not installed.
        CommandError: git refuses.
    """
    finished = process.run(
        ["git", "init", "--quiet", "--initial-branch=main", "--template="], cwd=directory, timeout=process.PROBE_LIMIT
    )
    if finished.code:
        raise CommandError("git init failed", "Create it without git: --no-git", finished.stderr)


def require_clean(directory: Path, *, changes: bool = False) -> None:
    """Raise `KernelNewError` unless `directory` is in a git repository, and, but for `changes`, has none."""
    if enclosing(directory) is None:
        if marked(directory):
            run(directory, "rev-parse", "--show-toplevel")  # It says why it cannot be used.
        raise KernelNewError(f"{directory} is no git repository", f"git init && {COMMIT}")
    if not changes and (found := run(directory, "status", "--porcelain", "--untracked-files=all", "--", ".")):
        files = [line[3:] for line in found.splitlines()]
        # Before the first commit there is nothing that a stash could go back to.
        stash = "; or put them aside: git stash --include-untracked" * holds(directory, "HEAD")
        raise KernelNewError(
            f"{directory} has uncommitted changes: {listed(files)}",
            f"Commit them: {COMMIT}{stash}",
        )


def listed(files: Sequence[str], most: int = 3) -> str:
    """The first of many files, and how many more there are."""
    more = f" and {len(files) - most} more" * (len(files) > most)
    return f"{', '.join(files[:most])}{more}"


def run(directory: Path, *arguments: str) -> str:
    """Run git in a repository, without its hooks; what it prints.

    Raises:
        CommandError: git refuses.
    """
    # Neither hooks nor a file system monitor of the repository's: what it holds is not run.
    settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
    finished = process.run(["git", *settings, *arguments], cwd=directory, timeout=300)
    if finished.code:
        raise CommandError(f"git {arguments[0]} failed in {directory}", output=finished.stderr)
    return finished.stdout


@contextmanager
def undone_on_error(directory: Path) -> Iterator[None]:
    """Put a repository that was clean back as it was, unless all goes well."""
    try:
        yield
    except BaseException:
        with process.undisturbed(), suppress(KernelNewError):
            run(directory, "reset", "--quiet", "--", ".")
            run(directory, "checkout", "--quiet", "HEAD", "--", ".")
            run(directory, "clean", "--quiet", "--force", "-d", "--", ".")
        raise
