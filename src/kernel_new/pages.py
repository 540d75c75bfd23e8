"""Shows Markdown in a terminal, dark or light, wide or narrow; as it is where the output goes elsewhere."""

import sys

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableDataElement
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

from kernel_new import console
from kernel_new.explain import Topic

WIDEST = 100
"""Columns beyond which a line of text is tiring to read."""

THEME = Theme({"markdown.code": "bold", "markdown.code_block": "none", "markdown.table.border": "dim"})
"""No colour of the background, which is only right for the half of the terminals that are dark."""


class _Heading(Heading):
    """At the left: rich centres headings."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold")
        yield self.text


class _Code(CodeBlock):
    """Indented, as it is, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Padding(Text(str(self.text).rstrip(), overflow="fold"), (0, 0, 0, 4))


class _Cell(TableDataElement):
    """Folds a long word, where rich cuts it."""

    def on_text(self, context: object, text: str | Text) -> None:
        super().on_text(context, text)  # type: ignore[arg-type]
        self.content.overflow = "fold"


class _Page(Markdown):
    elements = {  # noqa: RUF012
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "td_open": _Cell,
    }


def show_topics(topics: dict[str, Topic]) -> None:
    """Each topic with a line about it."""
    out = console.stdout()
    console.show_table([(topic.name, topic.about) for topic in topics.values()], out)
    out.print("\nRead one: kernel-new explain TOPIC")


def show_topic(topic: Topic) -> None:
    """A topic, rendered for the terminal that reads it; its Markdown for a pipe or a file."""
    out = console.stdout()
    if not out.is_terminal:
        sys.stdout.write(topic.text)
        return
    with out.use_theme(THEME):
        out.print(_Page(topic.text), width=min(out.width, WIDEST), soft_wrap=False)
