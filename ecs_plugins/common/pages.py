"""Results as self-contained HTML pages, which load nothing: from the templates beside this file."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader


def rendered(template: str, title: str, **values: Any) -> str:
    """A page of a template; what it shows is escaped."""
    loader = PackageLoader("ecs_plugins.common")
    pages = Environment(loader=loader, autoescape=True, trim_blocks=True)
    return pages.get_template(template).render(title=title, **values)
