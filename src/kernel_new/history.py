"""The template's history as a git bundle, so that a repository is updated offline and for ever.

A release is a commit that changed the project's version to one that is no development version; its tag is
`v<version>`. The bundle is made from any full clone, whatever tags were pushed: by the build into the wheel and
the sdist, and from a checkout when it is needed. Standard library only, since the build imports this too.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_new.errors import CommandError, KernelNewError, MissingToolError

BUNDLE = "template.bundle"
"""Name of the bundle beside this module, in an installation."""

FINAL = re.compile(r"\d+(\.\d+)*")


def releases(repository: Path) -> dict[str, str]:
    """The commit of each release by its tag, oldest first."""
    found: dict[str, str] = {}
    before = ""
    for commit in _git(repository, "log", "--reverse", "--format=%H", "--", "pyproject.toml").split():
        text = _git(repository, "show", f"{commit}:pyproject.toml")
        match = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
        version = match[1] if match else ""
        if version != before and FINAL.fullmatch(version):
            found.setdefault(f"v{version}", commit)
        before = version
    return found


def write_bundle(repository: Path, bundle: Path) -> None:
    """Write the history up to what is checked out in `repository`, with a tag for each release."""
    with tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        clone = Path(directory, "template.git")
        _git(
            repository,
            "clone",
            "--quiet",
            "--bare",
            "--no-tags",
            "--template=",
            str(repository.resolve()),
            str(clone),
        )
        for tag, commit in releases(repository).items():
            _git(clone, "tag", "--no-sign", tag, commit)
        _git(clone, "bundle", "create", "--quiet", str(bundle.resolve()), "HEAD", "--tags")


def is_whole(repository: Path) -> bool:
    """Whether `repository` is a git repository with its whole history."""
    if not (repository / ".git").exists():
        return False
    try:
        return _git(repository, "rev-parse", "--is-shallow-repository").strip() == "false"
    except KernelNewError:
        return False


def versions(bundle: Path) -> list[str]:
    """The tags of a bundle, oldest release first."""
    heads = _git(bundle.parent, "bundle", "list-heads", str(bundle)).split()
    tags = [head.removeprefix("refs/tags/") for head in heads if head.startswith("refs/tags/v")]
    return sorted(tags, key=lambda tag: [int(part) for part in tag[1:].split(".")])


@contextmanager
def bundled() -> Iterator[Path | None]:
    """The bundle of this installation or checkout; None where there is neither."""
    here = Path(__file__).parent
    if (here / BUNDLE).is_file():
        yield here / BUNDLE
        return
    checkout = here.parent.parent
    if not is_whole(checkout):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        bundle = Path(directory, BUNDLE)
        write_bundle(checkout, bundle)
        yield bundle


def _git(directory: Path, *arguments: str) -> str:
    """Run git where none of the caller's settings and variables apply."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    neutral = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    safe = ("-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null")
    command = ["git", *safe, *arguments]
    try:
        finished = subprocess.run(
            command, cwd=directory, env={**kept, **neutral}, capture_output=True, text=True, timeout=300
        )
    except OSError as error:
        raise MissingToolError("git is not installed", "apt install git, or https://git-scm.com") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"git {arguments[0]} did not end within 300 s", "Run it by hand.") from error
    if finished.returncode:
        raise CommandError(f"git {arguments[0]} failed in {directory}", output=finished.stderr)
    return finished.stdout
