"""Rebuild templates/ptx/ after device code has changed: `python scripts/rebuild_ptx.py [--compiler nvptx] [--check]`.

Renders a repository for each starter kernel and device compiler, and lets its own kernels/build_ptx.py compile it
for every target. With --check it writes nothing and exits with 1 where a file would change.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_new import questions
from kernel_new.create import Request, create
from kernel_new.report import Level, Quiet

ROOT = Path(__file__).resolve().parent.parent
VALIDATORS = (ROOT / "templates/validators.jinja").read_text(encoding="utf-8")


def capabilities() -> list[str]:
    """The lowest capabilities that an author can choose."""
    found = re.search(r'set targets = "([^"]+)"', VALIDATORS)
    assert found
    return found[1].split()


def write_placeholders(directory: Path) -> None:
    """Let a repository be rendered before its PTX exists."""
    directory.mkdir(parents=True, exist_ok=True)
    for capability in capabilities():
        file = directory / f"sm_{capability.replace('.', '')}.ptx"
        if not file.exists():
            file.write_text("// not built yet\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    compilers = [choice.value for choice in questions.asked()["device_compiler"].choices]
    parser.add_argument("--compiler", choices=compilers, action="append")
    arguments = parser.parse_args()
    check = arguments.check
    changed = []
    for kernel in questions.asked()["kernel"].choices:
        for compiler in arguments.compiler or compilers:
            directory = ROOT / "templates/ptx" / compiler / kernel.value
            write_placeholders(directory)
            with tempfile.TemporaryDirectory() as temporary:
                answers = {"backend": "rust-cuda", "kernel": kernel.value, "device_compiler": compiler}
                request = Request(Path(temporary, "ptx-source"), answers, defaults=True, git=False, level=Level.NONE)
                made = create(request, Quiet()).path
                build = made / "build.toml"
                template = build.read_text(encoding="utf-8")
                for capability in capabilities():
                    build.write_text(template.replace('["8.0"]', f'["{capability}"]'), encoding="utf-8")
                    subprocess.run([sys.executable, "kernels/build_ptx.py"], cwd=made, check=True)
                    (built,) = (made / "kernels-ptx").glob("*.ptx")
                    committed = directory / f"sm_{capability.replace('.', '')}.ptx"
                    if committed.read_bytes() != built.read_bytes():
                        changed.append(committed)
                        if not check:
                            committed.write_bytes(built.read_bytes())
    for file in changed:
        print(f"{'differs' if check else 'rebuilt'}: {file.relative_to(ROOT)}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
