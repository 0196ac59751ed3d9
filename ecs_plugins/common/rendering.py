"""Results as text or as self-contained HTML, from the templates in this folder."""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from ecs_plugins.common.inert import inert

WIDTH = 80
"""Characters per line in a terminal or notebook."""


def rendered(template: str, title: str = "", **values: Any) -> str:
    """Render a template; HTML templates escape the values."""
    loader = PackageLoader("ecs_plugins.common")
    pages = Environment(
        loader=loader,
        autoescape=select_autoescape(["html.j2"]),
        trim_blocks=True,
        finalize=_inert,
    )
    return pages.get_template(template).render(title=title, **values)


def folded(text: str, width: int = WIDTH) -> str:
    """Wrap the lines of a text; continuation lines are indented."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(line, width, subsequent_indent=f"{indent}  ")
        lines += wrapped or [line.rstrip()]
    return "\n".join(lines)


def preformatted(text: str) -> str:
    """Return escaped HTML that keeps columns and shows hidden characters."""
    return f"<pre style='white-space: pre; overflow-x: auto'>{escape(inert(text))}</pre>"


def _inert(value: Any) -> Any:
    """Neutralise a text for a template; other values unchanged."""
    return inert(value) if type(value) is str else value
