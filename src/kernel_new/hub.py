"""The Hub through huggingface_hub: its login, its requests; its errors become messages that say what to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_new.errors import KernelNewError, MissingToolError, UsageError

KIND = "kernel"
"""The Hub's type of repository for kernels."""

LOGIN = "hf auth login, or set HF_TOKEN to a token that may write"
APPROVAL = (
    "Use a token that may write there. Publishing kernels also needs the Hub's approval, on request:\n"
    "https://huggingface.co/spaces/kernels-community/README/discussions/new"
)
BATCH = 1000
"""The most files in one commit, as kernel-builder sends them."""


@dataclass(frozen=True)
class Remote:
    """A repository on the Hub as it is now. A branch that does not exist would begin with the files of main."""

    exists: bool
    has_branch: bool
    files: frozenset[str]


class Hub:
    """One kernel repository on the Hub.

    Raises:
        MissingToolError: huggingface_hub is not installed.
    """

    def __init__(self, repo_id: str) -> None:
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise MissingToolError("publishing needs huggingface_hub", "pip install huggingface_hub") from error
        self.repo_id = repo_id
        self.api: Any = HfApi()

    def require_login(self) -> None:
        """Raise `KernelNewError` where nobody is logged in, before anything is asked of the Hub."""
        from huggingface_hub import get_token

        if not get_token():
            raise KernelNewError("nobody is logged in to the Hub", LOGIN)

    def look(self, branch: str) -> Remote:
        """What the repository holds on `branch`. Changes nothing.

        Raises:
            KernelNewError: The Hub cannot be asked.
        """
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._explained():
            try:
                names = {ref.name for ref in self.api.list_repo_refs(self.repo_id, repo_type=KIND).branches}
            except RepositoryNotFoundError:
                return Remote(False, False, frozenset())
            revision = branch if branch in names else "main"
            files = self.api.list_repo_files(self.repo_id, repo_type=KIND, revision=revision) if names else []
            return Remote(True, branch in names, frozenset(files))

    def create(self, private: bool) -> None:
        """Create the repository.

        Raises:
            KernelNewError: The Hub refuses.
        """
        from huggingface_hub.errors import HfHubHTTPError

        with self._explained():
            try:
                self.api.create_repo(self.repo_id, repo_type=KIND, private=private or None, exist_ok=False)
            except HfHubHTTPError as error:
                if _status(error) != 409:
                    raise
                raise KernelNewError(
                    f"{self.repo_id} exists on the Hub, and is no kernel repository that you can see",
                    "Choose another name: --repo-id OWNER/NAME",
                ) from error

    def create_branch(self, branch: str) -> None:
        """Create a branch of main."""
        with self._explained():
            self.api.create_branch(self.repo_id, branch=branch, repo_type=KIND)

    def commit(self, branch: str, uploads: Sequence[tuple[str, Path]], deletions: Sequence[str]) -> None:
        """Upload files and delete others, in as few commits as kernel-builder makes.

        Raises:
            KernelNewError: The Hub refuses.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [CommitOperationDelete(path_in_repo=path) for path in deletions]
        operations += [CommitOperationAdd(path_in_repo=path, path_or_fileobj=file) for path, file in uploads]
        batches = [operations[start : start + BATCH] for start in range(0, len(operations), BATCH)]
        for number, batch in enumerate(batches, start=1):
            counted = f" (batch {number}/{len(batches)})" if len(batches) > 1 else ""
            with self._explained():
                self.api.create_commit(
                    self.repo_id,
                    batch,
                    commit_message=f"Uploaded using `kernel-new`{counted}.",
                    repo_type=KIND,
                    revision=branch,
                )

    def url(self, branch: str) -> str:
        """Where people see it."""
        return f"{self.api.endpoint}/kernels/{self.repo_id}/tree/{branch}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Make every error of huggingface_hub, and of the network below it, one of ours."""
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        try:
            yield
        except KernelNewError:
            raise
        except HFValidationError as error:
            raise UsageError(
                f"{self.repo_id!r} is no repository of the Hub: {error}", "--repo-id OWNER/NAME"
            ) from error
        except OfflineModeIsEnabled as error:
            raise KernelNewError("HF_HUB_OFFLINE is set, so the Hub is not asked", "unset HF_HUB_OFFLINE") from error
        except HfHubHTTPError as error:
            raise self._refused(error) from error
        except (OSError, RuntimeError, ValueError, KeyError, *HfHubHTTPError.__bases__) as error:
            # What the network raises depends on the client below huggingface_hub, whose own errors inherit from it.
            of_upload = isinstance(error, RuntimeError) and isinstance(error.__cause__, HfHubHTTPError)
            raise (self._refused(error.__cause__) if of_upload else self._broken(error)) from error

    def _refused(self, error: Any) -> KernelNewError:
        """An answer of the Hub that is no success."""
        status, said = _status(error), _said(error)
        if status == 401:
            return KernelNewError(f"the Hub does not accept the login: {said}", LOGIN)
        if status in (402, 403):
            return KernelNewError(f"you may not publish {self.repo_id}: {said}", APPROVAL)
        if status == 404:
            return KernelNewError(f"{self.repo_id} is not on the Hub, or you cannot see it: {said}", LOGIN)
        if status == 429 or status >= 500:
            return KernelNewError(f"the Hub cannot answer now ({status}): {said}", "Try again later.")
        return KernelNewError(f"the Hub refuses ({status}): {said}", "Mend what it names, and publish again.")

    def _broken(self, error: BaseException) -> KernelNewError:
        """No answer of the Hub, or none that huggingface_hub understands."""
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ValueError) and "README.md" in reason:
            return KernelNewError(f"the Hub refuses the card: {reason}", "Mend CARD.md, then: kernel-new build")
        if isinstance(error, (ValueError, KeyError)):
            return KernelNewError(f"{self.api.endpoint} answered what cannot be used: {reason}", "Try again later.")
        return KernelNewError(f"{self.api.endpoint} cannot be reached: {reason}", "Check the network, then try again.")


def _status(error: Any) -> int:
    return int(getattr(error.response, "status_code", 0))


def _said(error: Any) -> str:
    """What the Hub said, in one line."""
    said = error.server_message or str(error).strip().splitlines()[0]
    return " ".join(str(said).split())
