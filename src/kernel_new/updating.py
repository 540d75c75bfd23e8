"""Run as a program, in a process of its own: lets copier render or update one repository.

`python -m kernel_new.updating JOB` takes a JSON object: the template's `url`, the version `recorded`, the recorded
`answers`, and the `path` to render them to. To update a repository at `path`, the version `wanted` is there too, with
`data` that replaces some answers and whether to take `defaults`. The environment says where git finds the template.
Exit code 3 means that the answers are refused.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

REFUSED = 3


def render(job: dict[str, Any], path: Path, *, pretend: bool = False) -> None:
    """Render the recorded version with the recorded answers, each of which is checked."""
    import copier

    copier.run_copy(
        job["url"],
        path,
        data=job["answers"],
        defaults=True,
        vcs_ref=job["recorded"],
        quiet=True,
        pretend=pretend,
        settings=copier.Settings(),
    )


def update(job: dict[str, Any]) -> None:
    """Update a repository from the recorded to the wanted version."""
    import copier

    with tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        # Without this, copier would silently replace an invalid recorded answer by its default.
        render(job, Path(directory, str(job["answers"].get("name", "kernel"))), pretend=True)
    copier.run_update(
        job["path"],
        data=job["data"],
        defaults=job["defaults"],
        vcs_ref=job["wanted"],
        overwrite=True,
        quiet=True,
        skip_answered=True,
        settings=copier.Settings(),
    )


def main(job: dict[str, Any]) -> int:
    from copier.errors import UserMessageError

    try:
        if "wanted" in job:
            update(job)
        else:
            render(job, Path(job["path"]))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    except UserMessageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
