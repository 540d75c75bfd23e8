"""Run as a program, in a process of its own: lets copier render or update one repository.

`python -m kernel_new.updating JOB` takes a JSON object: the template's `url`, the version `recorded`, the recorded
`answers`, and the `path` to render them to. To update a repository at `path`, the version `wanted` is there too, with
`data` that replaces some answers and whether to take `defaults`. The environment says where git finds the template.
Exit code 3 means that recorded answers are refused, 4 that the new answers or the new version's questions are.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REFUSED = 3
REFUSED_NEW = 4


def render(job: dict[str, Any], path: Path) -> None:
    """Render the recorded version with the recorded answers, each of which is checked."""
    import copier

    copier.run_copy(
        job["url"],
        path,
        data={**job["answers"], "template_url": job["url"]},
        defaults=True,
        vcs_ref=job["recorded"],
        quiet=True,
        settings=copier.Settings(),
    )


def check(job: dict[str, Any]) -> None:
    """Raise `ValueError` for a recorded answer that is refused, `UserMessageError` for a file that would be lost."""
    with tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        # Without this, copier would silently replace an invalid recorded answer by its default, and a file that git
        # ignores by the template's.
        fresh = Path(directory, str(job["answers"].get("name", "kernel")))
        render(job, fresh)
        refuse_untracked(Path(job["path"]), fresh)


def update(job: dict[str, Any]) -> None:
    """Update a repository from the recorded to the wanted version."""
    import copier

    copier.run_update(
        job["path"],
        data={**job["data"], "template_url": job["url"]},
        defaults=job["defaults"],
        vcs_ref=job["wanted"],
        overwrite=True,
        quiet=True,
        skip_answered=True,
        settings=copier.Settings(),
    )


def refuse_untracked(path: Path, fresh: Path) -> None:
    """Raise `UserMessageError` where git does not track a file of the template's: its content would be lost."""
    from copier.errors import UserMessageError

    listed = subprocess.run(["git", "ls-files", "-z"], cwd=path, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.split("\0"))
    emitted = (str(file.relative_to(fresh)) for file in fresh.rglob("*") if file.is_file())
    lost = sorted(file for file in emitted if file not in tracked and (path / file).exists())
    if lost := [file for file in lost if not file.startswith("kernels-ptx/")]:
        raise UserMessageError(f"git does not track {', '.join(lost[:5])}, which the update would overwrite")


def main(job: dict[str, Any]) -> int:
    from copier.errors import UserMessageError

    refused = REFUSED
    try:
        if "wanted" in job:
            check(job)
            refused = REFUSED_NEW
            update(job)
        else:
            render(job, Path(job["path"]))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return refused
    except UserMessageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
