"""The site: `sphinx-build -W --keep-going -b html docs docs/_build`. Pages are Markdown, which GitHub shows too."""

from pathlib import Path
from typing import Any

project = "kernel-new"
author = "the kernel-new authors"
copyright = "the kernel-new authors"  # noqa: A001
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "kernel-new"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_heading_anchors = 3
nitpicky = True

ROOT = {"contributing": "CONTRIBUTING.md", "changes": "CHANGELOG.md", "security": "SECURITY.md"}
"""Pages of the site that lie at the root of the repository."""


def setup(app: Any) -> None:
    """Read those pages from there, with their links as seen from here."""

    def read(_: Any, name: str, source: list[str]) -> None:
        if name in ROOT:
            text = (Path(__file__).parent.parent / ROOT[name]).read_text(encoding="utf-8").replace("](docs/", "](")
            for page, file in ROOT.items():
                text = text.replace(f"]({file})", f"]({page}.md)")
            source[0] = text

    app.connect("source-read", read)
