"""Code blocks of a Markdown page, and what its HTML comments say about them.

A comment on a line of its own speaks of the block after it:

    <!-- not run: REASON -->            it is not run here
    <!-- tested by: tests/FILE.py -->   another test runs it
    <!-- fails -->                      the command ends with an error, as the text says
    <!-- write: FILE -->                the block is the file
    <!-- replace in: FILE -->           the block replaces the item that begins with the same line
    <!-- insert in: FILE -->            the block stands where its first line stood
    <!-- setup: COMMAND -->             is run, and not shown

A shell block is run where the one before it ended. The text block after it is what it prints, with `...` for what
differs. A Python block is run where the shell is.
"""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}-]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^ *<!-- (?P<key>[a-z ]+?)(?:: (?P<value>.*?))? -->$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block, or a setup: its language, its text, and the comments before it."""

    language: str
    text: str
    line: int
    says: dict[str, str]


def blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    source = page.read_text(encoding="utf-8")
    found: list[Block] = []
    says: dict[str, str] = {}
    events = sorted([*BLOCK.finditer(source), *COMMENT.finditer(source)], key=lambda match: match.start())
    inside = 0
    for match in events:
        line = source.count("\n", 0, match.start()) + 1
        if match.start() < inside:
            continue
        if match.re is COMMENT:
            if match["key"] == "setup":
                found.append(Block("setup", match["value"], line, {}))
            else:
                says[match["key"]] = match["value"] or ""
            continue
        inside = match.end()
        indent = match["indent"]
        text = re.sub(rf"^{indent}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(match["language"], text, line, says))
        says = {}
    assert not says, f"{page.name}: a comment speaks of no block: {says}"
    return found


def edit(block: Block, directory: Path) -> bool:
    """Do to a file what the block's comment says; whether there was such a comment."""
    for key, name in block.says.items():
        file = directory / name
        if key == "write":
            file.write_text(block.text, encoding="utf-8")
        elif key == "replace in":
            first = re.escape(block.text.splitlines()[0])
            end = r"^}\n" if block.language == "rust" else r"(?=^\S|\Z)"
            text, count = re.subn(
                rf"^{first}\n.*?{end}", lambda _: block.text, file.read_text(), count=1, flags=re.MULTILINE | re.DOTALL
            )
            assert count, f"{name} has no {first}"
            file.write_text(text, encoding="utf-8")
        elif key == "insert in":
            first = block.text.splitlines()[0] + "\n"
            text = file.read_text()
            assert text.count(first) == 1, f"{name} has not one {first}"
            file.write_text(text.replace(first, block.text), encoding="utf-8")
        else:
            continue
        return True
    return False


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, with `...` for anything.

    How wide a column is does not count, nor do spaces at the ends of lines.
    """
    pattern = re.escape(_narrowed(shown)).replace(r"\.\.\.", ".*?")
    return re.fullmatch(pattern, _narrowed(printed), re.DOTALL) is not None


def _narrowed(text: str) -> str:
    return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line.rstrip()) for line in text.strip().splitlines())
