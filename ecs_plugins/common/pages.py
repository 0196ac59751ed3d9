"""Results as text, or as self-contained HTML that loads nothing: templates beside this file."""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from ecs_plugins.common.inert import inert

WIDTH = 80
"""Characters of a line, in a terminal and in a notebook."""


def rendered(template: str, title: str = "", **values: Any) -> str:
    """What a template says of values, which HTML shows escaped."""
    loader = PackageLoader("ecs_plugins.common")
    pages = Environment(
        loader=loader,
        autoescape=select_autoescape(["html.j2"]),
        trim_blocks=True,
        finalize=_inert,
    )
    return pages.get_template(template).render(title=title, **values)


def folded(text: str, width: int = WIDTH) -> str:
    """A text whose lines have at most so many characters; what is folded stands deeper."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(line, width, subsequent_indent=f"{indent}  ")
        lines += wrapped or [line.rstrip()]
    return "\n".join(lines)


def preformatted(text: str) -> str:
    """A text as a notebook shows it: in columns, escaped, and with nothing that hides."""
    return f"<pre style='white-space: pre; overflow-x: auto'>{escape(inert(text))}</pre>"


def _inert(value: Any) -> Any:
    """A value that a template shows; nothing in a text hides or changes direction."""
    return inert(value) if type(value) is str else value
