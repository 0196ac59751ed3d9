"""Pages of the site that are made from what stands elsewhere in the repository.

The changelog, the guide for contributors and the security policy lie at the root, the examples
are scripts, and the public names stand in the stubs of each package: nothing is written twice.
"""

import ast
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import drawing
import settings

ROOT = Path(__file__).parents[1]
AT_THE_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PACKAGES = (
    "ecs_plugins",
    *("ecs_plugins." + name for name in ("shaping", "memory", "frontier", "lm", "ranking")),
    *("ecs_plugins." + name for name in ("langchain", "langgraph", "llama_index")),
)


def public_names(package: str) -> list[str]:
    """Return the classes and functions that the stub of a package exports."""
    stub = ROOT.joinpath(*package.split("."), "__init__.pyi")
    imports = [
        node
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    return [alias.name for node in imports for alias in node.names]


def page_of(package: str) -> str:
    """Return the reference page of a package: every public name, by mkdocstrings."""
    elsewhere = {name: part for part in PACKAGES[1:] for name in public_names(part)}
    parts, links = [f"# `{package}`"], []
    for name in public_names(package):
        if package == PACKAGES[0] and name in elsewhere:
            links.append(f"* [`{name}`][{elsewhere[name]}.{name}]")
        else:
            parts.append(f"::: {package}.{name}")
    if links:
        parts.insert(1, "Also exported here:\n\n" + "\n".join(links))
    return "\n\n".join(parts)


def page_of_examples() -> str:
    """Return a page with every script of ``examples``."""
    parts = ["# Examples", "One script per use. Each runs offline, on the bundled model."]
    for path in sorted((ROOT / "examples").glob("[a-z]*.py")):
        code = path.read_text(encoding="utf-8")
        parts.append(f"## {path.stem}\n\n```python\n{code}```")
    return "\n\n".join(parts)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {name.lower(): (ROOT / name).read_text(encoding="utf-8") for name in AT_THE_ROOT}
    pages |= {f"api/{package}.md": page_of(package) for package in PACKAGES}
    pages["examples.md"] = page_of_examples()
    pages["reference/settings.md"] = settings.page()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Turn links to files of the repository into links to pages of the site."""
    markdown = re.sub(
        r"\]\((?:\.\./)+ecs_plugins/(\w+)/__init__\.pyi\)", r"](/api/ecs_plugins.\1.md)", markdown
    )
    markdown = re.sub(
        r"\]\((?:\.\./)+ecs_plugins/[\w/]+\.py(#[\w-]+)?\)",
        r"](/reference/settings.md\1)",
        markdown,
    )
    markdown = re.sub(r"\]\((?:\.\./)+examples/(\w+)\.py\)", r"](/examples.md#\1)", markdown)
    markdown = re.sub(r"\]\((?:\.\./)*(?:docs/)([\w/-]+\.md)", r"](/\1", markdown)
    for name in AT_THE_ROOT:
        markdown = re.sub(rf"\]\((?:\.\./)*{name}", f"](/{name.lower()}", markdown)
    return drawing.drawn(markdown)
