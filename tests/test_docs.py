"""The documentation is true: commands are run as written and print what is shown, links lead somewhere."""

import os
import re
import shlex
import sys
from pathlib import Path

import pages
import pytest
from conftest import needs_components

from kernel_new import process

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if "_build" not in page.parts
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
RUN = {"bash", "python", "setup"}
TIME_LIMIT = 300


class Shell:
    """Runs blocks one after the other, each where the one before it ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory.parent / "directory"
        scripts = Path(sys.executable).parent
        self.environment = process.environment({"COLUMNS": "80", "HF_HUB_OFFLINE": "1", "EDITOR": "true"})
        self.environment["PATH"] = f"{scripts}:{os.environ['PATH']}"

    def run(self, command: str) -> process.Finished:
        kept = f"trap 'pwd > {shlex.quote(str(self.state))}' EXIT\nexec 2>&1\n{command}"
        finished = process.run(["bash", "-euc", kept], cwd=self.directory, env=self.environment, timeout=TIME_LIMIT)
        self.directory = Path(self.state.read_text().strip())
        return finished


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_run_or_says_why_not(name: str) -> None:
    known = {"not run", "tested by", "fails", "write", "replace in", "insert in"}
    previous = ""
    for block in pages.blocks(ROOT / name):
        assert set(block.says) <= known, f"{name}:{block.line}: {block.says}"
        if "tested by" in block.says:
            assert (ROOT / block.says["tested by"]).is_file(), f"{name}:{block.line}"
        shown = block.language == "text" and previous in RUN
        edited = {"write", "replace in", "insert in", "not run", "tested by"} & set(block.says)
        assert block.language in RUN or shown or edited or block.language.startswith("{"), (
            f"{name}:{block.line}: a block that nothing runs: say why"
        )
        previous = "" if "not run" in block.says or "tested by" in block.says else block.language


def is_run(name: str) -> bool:
    return any(
        block.language in RUN and not {"not run", "tested by"} & set(block.says) for block in pages.blocks(ROOT / name)
    )


@pytest.mark.parametrize("name", [name for name in NAMES if is_run(name)])
def test_the_commands_do_what_the_page_says(name: str, tmp_path: Path) -> None:
    scratch = tmp_path / "work"
    scratch.mkdir()
    shell = Shell(scratch)
    finished: process.Finished | None = None
    for block in pages.blocks(ROOT / name):
        where = f"{name}:{block.line}"
        if {"not run", "tested by"} & set(block.says):
            finished = None
        elif pages.edit(block, shell.directory):
            continue
        elif block.language == "text":
            if finished is not None:
                printed = finished.stdout.replace(str(scratch), "/home/ada")
                assert pages.matches(block.text, printed), f"{where}: shown\n{block.text}\nprinted\n{printed}"
        elif block.language in RUN:
            command = f"python -c {shlex.quote(block.text)}" if block.language == "python" else block.text
            needs_components(command)
            finished = shell.run(command)
            assert (finished.code != 0) == ("fails" in block.says), f"{where}: {finished.stdout}{finished.stderr}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = pages.BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=str)
def test_relative_links_and_anchors_lead_somewhere(page: Path) -> None:
    text = pages.BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def test_a_page_that_is_wrong_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\necho one two\n```\n\n```text\none ...\n```\n\n<!-- write: f -->\n```toml\na = 1\n```\n")
    command, output, written = pages.blocks(page)
    assert (command.text, output.language, written.says) == ("echo one two\n", "text", {"write": "f"})
    assert pages.matches(output.text, "one two\n")
    assert pages.matches("a\n...\nd", "a\nb\nc\nd\n")
    assert pages.matches("one  two", "one      two ")
    assert not pages.matches("one ...", "two one")
    assert not pages.matches("one", "one two")
    assert Shell(tmp_path).run("exit 3").code == 3
