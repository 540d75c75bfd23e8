"""Rebuild templates/ptx/ after device code has changed: `python scripts/rebuild_ptx.py [--compiler nvptx] [--check]`.

Renders a repository for each starter kernel and device compiler, and lets its own kernels/build_ptx.py compile it
for every target. With --check it writes nothing and exits with 1 where a file would change.
"""

import argparse
import json
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


def capabilities(kind: str) -> list[str]:
    """Those that an author can choose: as the lowest (`targets`), or besides it (`specific`)."""
    found = re.search(rf'set {kind} = "([^"]+)"', VALIDATORS)
    assert found
    return found[1].split()


def choices() -> list[list[str]]:
    """Lists of capabilities that together ask for all PTX."""
    lowest = capabilities("targets")
    return [[lowest[0], *capabilities("specific")], *([capability] for capability in lowest[1:])]


def name(built: Path, lowest: str) -> str:
    """The target that a file in kernels-ptx/ was built for."""
    suffix = built.name.split(".")[1:-1]
    return suffix[0] if suffix else f"sm_{lowest.replace('.', '')}"


def write_placeholders(directory: Path) -> None:
    """Let a repository be rendered before its PTX exists."""
    directory.mkdir(parents=True, exist_ok=True)
    for capability in capabilities("targets") + capabilities("specific"):
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
                for chosen in choices():
                    build.write_text(template.replace('["8.0+PTX"]', json.dumps(chosen)), encoding="utf-8")
                    subprocess.run([sys.executable, "kernels/build_ptx.py"], cwd=made, check=True)
                    for built in (made / "kernels-ptx").glob("*.ptx"):
                        committed = directory / f"{name(built, chosen[0])}.ptx"
                        if committed.read_bytes() != built.read_bytes():
                            changed.append(committed)
                            if not check:
                                committed.write_bytes(built.read_bytes())
    for file in changed:
        print(f"{'differs' if check else 'rebuilt'}: {file.relative_to(ROOT)}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
