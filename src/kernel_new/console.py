"""Shows reports and errors: results on stdout, progress on stderr, or one JSON document on stdout."""

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import markup
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from kernel_new.errors import CommandError, KernelNewError
from kernel_new.report import Report, Step
from kernel_new.update import Result

if TYPE_CHECKING:
    from kernel_new.publish import Publication

DOING = {
    "render": "Writing the repository",
    "add": "Adding the files",
    "git": "Initialising git",
    "build": "Building with cargo",
    "load": "Loading through kernels",
    "test": "Running its tests",
    "ptx": "Comparing the PTX with its sources",
    "card": "Filling in the card",
    "layout": "Laying out the variants",
    "check": "Checking for the Hub",
    "plan": "Asking the Hub what it has",
    "create": "Creating the repository",
    "branch": "Creating the branch",
    "send": "Sending",
}
OUTPUT_LINES = 40
"""Lines of a failed program's output that are shown: the last ones, where its errors are."""


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=True)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text that commands no terminal: what other programs and files say is shown, and never obeyed."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], COLOUR.sub("", text))


def escape(text: str) -> str:
    """Text to be shown as it is."""
    return markup.escape(plain(text))


def _is_unicode(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def marks(console: Console) -> dict[str, str]:
    """Signs that the terminal's encoding has."""
    if _is_unicode(console.encoding):
        return {"ok": "[green]✓[/]", "failed": "[red]✗[/]", "skipped": "[yellow]-[/]"}
    return {"ok": "[green]ok[/]", "failed": "[red]FAILED[/]", "skipped": "[yellow]-[/]"}


class Live:
    """Shows each step on stderr as it begins, goes on and ends."""

    def __init__(self) -> None:
        self.console = stderr()
        plain = not _is_unicode(self.console.encoding)
        # One line of one shape, whatever is in it: one that wraps would leave its rests on the screen.
        fixed, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self.bar = Progress(
            SpinnerColumn("line" if plain else "dots", table_column=fixed),
            TextColumn("{task.description}", table_column=fixed),
            *([BarColumn(bar_width=20)] if self.console.width >= 70 else []),
            TextColumn("{task.fields[text]}", table_column=rest),
            TimeElapsedColumn(table_column=fixed),
            console=self.console,
            expand=True,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def begin(self, step: str) -> None:
        # copier's questions come while rendering, and need the terminal for themselves.
        if step == "render":
            return
        self.bar.add_task(DOING.get(step, step), total=None, text="")
        self.bar.start()

    def progress(self, text: str, done: int, total: int) -> None:
        for task in self.bar.task_ids:
            self.bar.update(task, completed=done, total=total, text=escape(text))

    def end(self, step: Step) -> None:
        self.bar.stop()
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        if step.ok or not step.fatal:
            show_step(step, self.console)


def show_step(step: Step, console: Console) -> None:
    """One line on a step, and after a failure what the program printed and what to do."""
    mark = marks(console)["skipped" if step.skipped else "ok" if step.ok else "failed"]
    timed = not step.skipped and step.name in ("build", "load", "test")
    seconds = f" [dim]({step.seconds:.1f} s)[/]" if timed else ""
    show_wrapped(f"{escape(step.detail)}{seconds}", console, f"{mark} {step.name:<6} ")
    show_output(step.output, console)
    for line in step.hint.splitlines():
        console.print(f"  [bold]{escape(line)}[/]")


def show_wrapped(text: str, console: Console, lead: str = "", *, fold: bool = False) -> None:
    """Text with markup behind `lead`, its further lines as far to the right; on a terminal broken between words.

    `fold` breaks it elsewhere, too.
    """
    head = Text.from_markup(lead)
    room = console.width - head.cell_len if fold or console.is_terminal else 0
    for whole in Text.from_markup(text).split() or [Text()]:
        for line in whole.divide(_breaks(whole.plain, room) if room > 0 else []):
            line.rstrip()
            console.print(head + line)
            head = Text(" " * head.cell_len)


def _breaks(line: str, room: int) -> list[int]:
    """Where to break a line that is longer than `room`: in front of words. One that is too long itself stays whole."""
    breaks = [0]
    for word in re.finditer(r"\S+", line):
        if word.start() and cell_len(line[breaks[-1] : word.end()]) > room:
            breaks.append(word.start())
    return breaks[1:]


def show_output(output: str, console: Console) -> None:
    """The end of what a failed program printed: on a terminal no more than leaves room for what is said around it."""
    lines = output.strip().splitlines()
    most = max(8, min(OUTPUT_LINES, console.height - 14)) if console.is_terminal else OUTPUT_LINES
    if len(lines) > most:
        console.print(f"  [dim]... {len(lines) - most} lines before[/]")
    for line in lines[-most:]:
        console.print(f"  {plain(line)}", markup=False)


def show_error(error: KernelNewError) -> None:
    """What was wrong and what to do, on stderr."""
    console = stderr()
    show_wrapped(escape(error.message), console, "[red]error:[/] ")
    if isinstance(error, CommandError):
        show_output(error.output, console)
    if error.hint:
        console.print(f"[bold]try:[/] {escape(error.hint)}")


def show_error_json(error: KernelNewError) -> None:
    """The same as a document on stdout."""
    output = {"output": error.output} if isinstance(error, CommandError) and error.output else {}
    show_json({"ok": False, "error": error.message, "hint": error.hint, **output})


def show_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=not _is_unicode(sys.stdout.encoding)) + "\n")


def show_created(report: Report, command: str) -> None:
    """The result of creating: what there is now, the command that makes it again, and what to do next."""
    console = stdout()
    skipped = [step.name for step in report.steps if step.skipped and step.name != "git"]
    failed = [step.name for step in report.steps if not step.ok]
    if failed:
        unproven = f"not proven: {', '.join(failed + skipped)}"
        console.print(f"\n[bold]{escape(str(report.path))}[/] was written, but is {unproven}.")
    else:
        proven = "is ready" if any(step.name == "build" for step in report.steps) else "was written, and not proven"
        console.print(f"\n[bold]{escape(str(report.path))}[/] {proven}.")
    console.print(f"Again without questions: {escape(command)}")
    show_next(report)


def show_next(report: Report) -> None:
    """What to do next."""
    console = stdout()
    console.print("Next:")
    for line in report.next:
        console.print(f"  {escape(line)}")


def show_failures(report: Report) -> None:
    """The steps that failed, on stderr, for a command that showed nothing while it worked."""
    for step in report.steps:
        if not step.ok:
            show_step(step, stderr())


def show_built(report: Report) -> None:
    """Which variants are in build/ now; nothing changed there after a failure."""
    console = stdout()
    if not report.ok:
        console.print(f"[bold]{escape(str(report.path / 'build'))}[/] is as it was.")
        return
    for directory in sorted({file.rpartition("/metadata.json")[0] for file in report.files} - {""}):
        console.print(f"  {escape(directory)}")
    console.print(f"Next: {escape(report.next[0])}")


def show_publication(publication: "Publication") -> None:
    """Where it is now; after a dry run, every file that would be sent or deleted."""
    console = stdout()
    if publication.url:
        console.print(f"Published: {escape(publication.url)}")
        return
    remote = publication.remote
    if remote and not remote.exists:
        console.print(f"create {escape(publication.repo_id)}")
    if remote and not remote.has_branch:
        console.print(f"create branch {escape(publication.branch)}")
    rows = [("send", one.branch, one.path, str(one.size), one.sha256) for one in publication.uploads]
    rows += [("delete", one.branch, one.path, "", "") for one in publication.deletions]
    width = max(len(row[2]) for row in rows)
    for what, branch, path, size, digest in rows:
        console.print(f"{what:<6} {branch:<6} {path:<{width}} {size:>9}  {digest}".rstrip(), markup=False)
    console.print("Nothing was sent.")


def show_dry_run(report: Report, command: str) -> None:
    """The tree and the answers that creating would use."""
    console = stdout()
    tree = Tree(escape(f"{report.path}"), guide_style="dim")
    branches = {"": tree}
    for file in report.files:
        parent = ""
        for part in file.split("/")[:-1]:
            path = f"{parent}{part}/"
            if path not in branches:
                branches[path] = branches[parent].add(escape(f"{part}/"))
            parent = path
        branches[parent].add(escape(file.split("/")[-1]))
    console.print(tree)
    show_table([(name, str(value)) for name, value in report.answers.items()], console)
    console.print(f"Nothing was written. To write it: {escape(command)}")


def show_table(rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Rows of plain text in columns; one line each, whatever its length, where nothing limits it."""
    if not (console.is_terminal or "COLUMNS" in os.environ):
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            console.print(plain("  ".join(cells).rstrip()), markup=False)
        return
    longest = [max(map(len, " ".join(cells).split()), default=0) for cells in zip(*rows, strict=True)]
    if sum(longest) + 2 * len(longest) - 2 > console.width:
        _show_stacked(rows, console)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for least in longest:
        table.add_column(overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table, soft_wrap=False)


def _show_stacked(rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Rows for which the terminal has too few columns: what a row is about below its other cells."""
    for *cells, last in rows:
        show_wrapped(escape("  ".join(cells)), console, fold=True)
        show_wrapped(escape(last), console, "  ", fold=True)


def show_updates(results: Sequence[Result]) -> None:
    """What became of each repository: one in full, several as a table with the details of those that need work."""
    console = stdout()
    signs = marks(console)
    if len(results) > 1:
        table = Table(box=None, pad_edge=False)
        for title in ("", "repository", "from", "to", "result"):
            table.add_column(title, overflow="fold")
        unique = len({result.path.name for result in results}) == len(results)
        for result in results:
            repository = result.path.name if unique else str(result.path)
            mark = signs["ok" if result.ok else "skipped" if result.status == "behind" else "failed"]
            table.add_row(
                mark, escape(repository), escape(result.recorded), escape(result.wanted), escape(_outcome(result))
            )
        console.print(table, soft_wrap=False)
    for result in results:
        if len(results) == 1 or not (result.ok or result.status == "behind"):
            _show_update(result, console)


def _outcome(result: Result) -> str:
    """One repository in a few words."""
    failed = [step.name for step in result.steps if not step.ok]
    if failed:
        return f"updated, but not proven: {', '.join(failed)}"
    if result.status == "updated":
        return f"updated, {len(result.changed)} files changed"
    if result.status == "conflicts":
        return f"conflicts in {', '.join(result.conflicts)}"
    return result.error or {"current": "up to date", "behind": "can be updated"}[result.status]


def _show_update(result: Result, console: Console) -> None:
    versions = " ".join([result.recorded, *(["->", result.wanted] if result.wanted else [])])
    head = f"[bold]{escape(str(result.path))}[/] {escape(versions)}".rstrip()
    console.print(f"{head}: {escape(_outcome(result))}")
    if result.diff:
        console.print(result.diff, markup=False, end="")
    else:
        for file in result.changed:
            console.print(f"  {plain(file)}", markup=False)
    for step in result.steps:
        if not step.ok:
            show_step(step, console)
    todo = [f"{result.hint}"] if result.hint else []
    if result.conflicts:
        todo.append("resolve the marked lines, then git add them: " + ", ".join(result.conflicts))
    todo += [f"rebuild the PTX, whose sources changed: {command}" for command in result.rebuild]
    for line in todo:
        console.print(f"  [bold]to do:[/] {escape(line)}")
