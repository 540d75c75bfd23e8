"""The releases of the template that a repository can be updated to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from kernel_new import history, process, questions
from kernel_new.errors import CommandError, KernelNewError


@dataclass(frozen=True)
class Releases:
    """Where they come from: a bundle for the known address, otherwise the address itself."""

    url: str
    bundle: Path | None
    versions: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """git's settings for copier: the address stands for the bundle, and nothing of the user's interferes."""
        settings = {
            "core.hooksPath": os.devnull,
            "commit.gpgSign": "false",
            "core.autocrlf": "false",
            "core.fsmonitor": "false",
        }
        if self.bundle:
            settings[f"url.{self.bundle}.insteadOf"] = self.url
        variables = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_TEMPLATE_DIR": ""}
        for index, (key, value) in enumerate(settings.items()):
            variables |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        return variables


@contextmanager
def known(url: str | None) -> Iterator[Releases]:
    """The releases at `url`; by default those of this installation, at the address that the template records.

    Raises:
        KernelNewError: No release is known.
    """
    recorded = questions.constant("template_url")
    url = url or os.environ.get("KERNEL_NEW_TEMPLATE_URL") or recorded
    with history.bundled() as bundle:
        if url != recorded or bundle is None:
            yield Releases(url, None, _remote_versions(url))
            return
        versions = tuple(history.versions(bundle))
        if not versions:
            raise KernelNewError("this installation knows no release of the template", "pip install kernel-new")
        yield Releases(url, bundle, versions)


def _remote_versions(url: str) -> tuple[str, ...]:
    """The releases that a git repository has as tags, oldest first."""
    finished = process.run(["git", "ls-remote", "--tags", "--refs", "--", url], timeout=120)
    if finished.code:
        raise CommandError(f"the template at {url} cannot be reached", output=finished.stderr)
    tags = [line.rpartition("refs/tags/")[2] for line in finished.stdout.splitlines()]
    found = {}
    for tag in tags:
        with suppress(InvalidVersion):
            version = Version(tag)
            if not version.is_prerelease:
                found[tag] = version
    return tuple(sorted(found, key=lambda tag: found[tag]))
