"""How a repository differs from what its template emitted."""

import json
import sys
import tempfile
from pathlib import Path

from kernel_new import git, process, releases
from kernel_new.errors import CommandError, KernelNewError
from kernel_new.project import Project


def diff(path: Path, url: str | None = None) -> str:
    """How a repository differs from a fresh render of its recorded version and answers, as a git diff.

    Raises:
        KernelNewError: It has no answers file, or its version is not known.
    """
    with releases.known(url) as template, tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        answers = Project.read(path).answers()
        recorded = str(answers.pop("_commit", ""))
        answers.pop("_src_path", None)
        if recorded not in template.versions:
            known = ", ".join(template.versions)
            raise KernelNewError(f"{path} was made by {recorded or 'nothing known'}; known are {known}")
        fresh = Path(directory, "fresh", path.name)
        job = {"url": template.url, "recorded": recorded, "answers": answers, "path": str(fresh)}
        environment = process.environment({**template.environment(), "COPIER_CACHE_DIR": f"{directory}/cache"})
        finished = process.run(
            [sys.executable, "-P", "-m", "kernel_new.updating", json.dumps(job, default=str)], env=environment
        )
        if finished.code:
            raise CommandError(f"{path} cannot be rendered again", output=finished.stderr)
        git_dir = Path(directory, "git")
        index = ("--git-dir", str(git_dir), "--work-tree")
        git.run(fresh, "init", "--quiet", "--bare", "--template=", str(git_dir))
        git.run(fresh, *index, str(fresh), "add", "--all", "--force")
        tree = git.run(fresh, *index, str(fresh), "write-tree").strip()
        git.run(path, *index, str(path), "add", "--all")
        return git.run(path, *index, str(path), "diff", "--cached", "--no-color", "--no-ext-diff", tree)
