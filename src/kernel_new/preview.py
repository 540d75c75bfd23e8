"""What is about to be written, shown before it is, in a terminal."""

from collections import Counter

from kernel_new import console
from kernel_new.console import escape
from kernel_new.report import Level, Report

ABOUT = {
    "src": "the ops in Rust: what they accept, what they compute",
    "kernels": "device code: what runs on the GPU, in Rust",
    "kernels-ptx": "the same, compiled and ready to use",
    "tvm-ffi-ext": "the Python functions that your users call",
    "tests": "tests against a reference",
    "benchmarks": "speed against torch",
    "compare.py": "results and speed side by side with others",
    "build.toml": "what kernel-builder builds for the Hub",
    "build.rs": "runs before cargo builds",
    "Cargo.toml": "the crate and what it depends on",
    "Cargo.lock": "the exact versions of that",
    "flake.nix": "kernel-builder, for Nix",
    "CARD.md": "the page on the Hub",
    "README.md": "where to change what",
    "LICENSE": "your license",
    "pytest.ini": "how pytest finds the tests",
    "ruff.toml": "how Python is formatted",
    ".github": "CI, and updates from the template",
    ".gitignore": "what git leaves out",
    ".gitattributes": "how git treats line ends",
    ".copier-answers.yml": "your answers, for updates",
}
"""A line about each file or directory at the top of a repository."""


def tops(files: list[str]) -> dict[str, int]:
    """The files and directories at the top, the directories first, with how many files each holds."""
    counted = Counter(file.partition("/")[0] for file in files)
    directories = {file.partition("/")[0] for file in files if "/" in file}
    order = list(ABOUT)

    def rank(name: str) -> tuple[bool, int, str]:
        return name not in directories, order.index(name) if name in ABOUT else len(order), name

    return {name: counted[name] for name in sorted(counted, key=rank)}


def approve(report: Report, files: list[str], level: Level) -> bool:
    """Show what would be written and ask; Enter means yes."""
    out = console.stdout()
    out.print()
    console.show_wrapped(f"[bold]{escape(str(report.path))}[/] will hold {len(files)} files:\n", out)
    directories = {file.partition("/")[0] for file in files if "/" in file}
    rows = [
        (f"{name}/" if name in directories else name, ABOUT.get(name, ""))
        for name in tops(files)
        if not name.startswith(".")
    ]
    console.show_table(rows, out)
    if level is not Level.NONE:
        out.print(
            "\nThen it is proven: cargo builds it, Python loads it, its tests pass. The first time takes a minute.",
            soft_wrap=False,
        )
    try:
        answer = input("\nWrite it? [Y/n] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("", "y", "yes")
