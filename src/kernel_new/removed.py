"""An author who has removed the starter's op does not want what a newer template says about it."""

import re
from pathlib import Path
from typing import Any

from kernel_new import git, questions


def take_away(path: Path, answers: dict[str, Any]) -> None:
    """Remove what an update has brought about the starter's op, where the repository no longer has that op."""
    op = questions.op(answers.get("kernel", "relu"))
    package = Path("tvm-ffi-ext", str(answers["name"]).replace("-", "_"))
    if (path / package / f"{op}.py").is_file():
        return
    about_it = re.compile(rf"(?<![A-Za-z0-9]){re.escape(op)}(?![A-Za-z0-9])")
    new = git.run(path, "ls-files", "--others", "--exclude-standard", "-z", "--", ".").split("\0")
    for file in filter(None, new):
        if about_it.search(Path(file).stem):
            (path / file).unlink()
    listing = package / "layers/__init__.py"
    if str(listing) in new:
        docstring = (path / listing).read_text(encoding="utf-8").splitlines(keepends=True)[0]
        (path / listing).write_text(docstring, encoding="utf-8")
