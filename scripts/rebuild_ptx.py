"""Rebuild templates/ptx/ after device code has changed: `python scripts/rebuild_ptx.py`.

    [--kernel relu] [--compiler nvptx] [--check]

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

from packaging.version import Version

from kernel_new import questions
from kernel_new.create import Request, create
from kernel_new.report import Level, Quiet

ROOT = Path(__file__).resolve().parent.parent
PTX = ROOT / "templates/ptx"
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


def neutral(ptx: str) -> str:
    """PTX without the lines that name its target and the version of PTX that the compiler writes for it."""
    return re.sub(r"^(// target: |\.version |\.target ).*$", r"\1", ptx, flags=re.MULTILINE)


def build(kernel: str, compiler: str) -> dict[str, str]:
    """The PTX for every target, by the build_ptx.py of an emitted repository."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        answers = {"backend": "rust-cuda", "kernel": kernel, "device_compiler": compiler, "cuda_capabilities": ["8.0"]}
        request = Request(Path(temporary, "ptx-source"), answers, defaults=True, git=False, level=Level.NONE)
        made = create(request, Quiet()).path
        description = made / "build.toml"
        template = description.read_text(encoding="utf-8")
        for chosen in choices():
            description.write_text(template.replace('["8.0+PTX"]', json.dumps(chosen)), encoding="utf-8")
            subprocess.run([sys.executable, "kernels/build_ptx.py"], cwd=made, check=True)
            for built in (made / "kernels-ptx").glob("*.ptx"):
                found[name(built, chosen[0])] = built.read_text(encoding="utf-8")
    return found


def versions() -> dict[str, str]:
    """The version of PTX for each target, in the order in which one may stand for another."""
    return dict(re.findall(r'"(sm_\w+)": "([\d.]+)"', (PTX / "ptx.jinja").read_text(encoding="utf-8")))


def files(kernel: str, built: dict[str, str]) -> dict[str, str]:
    """What the template holds of them: each that differs in more than the target from the one that stands for it."""
    found = {"sm_80": built["sm_80"]}
    order = versions()
    plain = [target for target in order if target[-1] not in "af"]
    for target in [*plain, *(target for target in order if target not in plain)]:
        stands = [other for other in plain if order[other] <= order[target] and other in found]
        if neutral(built[target]) != neutral(found[stands[-1]]) or version(built[target]) != order[target]:
            found[target] = built[target]
    return {f"{kernel}.ptx" if target == "sm_80" else f"{kernel}.{target}.ptx": ptx for target, ptx in found.items()}


def version(ptx: str) -> str:
    found = re.search(r"^\.version (.*)$", ptx, re.MULTILINE)
    assert found
    return found[1]


def check_versions(built: dict[str, str]) -> None:
    """The versions of PTX must be those of the table in ptx.jinja, but for kernels that ask for a newer one."""
    table = versions()
    for target, ptx in built.items():
        if Version(version(ptx)) < Version(table[target]) or (target == "sm_80" and version(ptx) != table[target]):
            sys.exit(f"templates/ptx/ptx.jinja: the version for {target} is {version(ptx)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    for question in ("kernel", "device_compiler"):
        choices = questions.asked()[question].values
        parser.add_argument(f"--{question.split('_')[-1]}", choices=choices, action="append", default=[])
    arguments = parser.parse_args()
    changed = []
    for kernel in arguments.kernel or questions.asked()["kernel"].values:
        for compiler in arguments.compiler or questions.asked()["device_compiler"].values:
            directory = PTX / compiler
            base = directory / f"{kernel}.ptx"
            if not base.exists():
                base.write_text("// Lets a repository be rendered before its PTX exists.\n", encoding="utf-8")
            built = build(kernel, compiler)
            check_versions(built)
            wanted = files(kernel, built)
            for file in directory.glob(f"{kernel}.*ptx"):
                if file.name not in wanted:
                    changed.append(file)
                    if not arguments.check:
                        file.unlink()
            for file, text in wanted.items():
                path = directory / file
                if not path.exists() or path.read_text(encoding="utf-8") != text:
                    changed.append(path)
                    if not arguments.check:
                        path.write_text(text, encoding="utf-8")
    for file in changed:
        print(f"{'differs' if arguments.check else 'rebuilt'}: {file.relative_to(ROOT)}")
    return 1 if arguments.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
