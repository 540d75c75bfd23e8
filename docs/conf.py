"""The site: `sphinx-build -W --keep-going -b html docs docs/_build`. Pages are Markdown, which GitHub shows too."""

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
