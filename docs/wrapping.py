"""``python docs/wrapping.py``: wraps the prose of every page at 100 characters, in place.

Code, tables, headings, pictures and what is indented by four spaces stay as they are; code within
a line and links are not broken. A line never begins with what would make it an item of a list.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
WIDTH = 100
FENCE = "```"
ITEM = re.compile(r"(\s*(?:[-*]|\d+\.) )(.*)")
BEGINS_AN_ITEM = re.compile(r"\s*(?:[-+*]|\d+[.)]|#+)(?:\s|$)")
KEPT = ("#", "|", "    ", "![", "<", ":::", "---")
"""How lines begin that stay as they are."""
INLINE = re.compile(r"`[^`]*`")
HELD = "\0"
"""Stands for a space at which no line may end."""


def wrapped(text: str) -> str:
    """A page with its paragraphs and items wrapped."""
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    lead, waiting = "", ""
    for line in lines:
        fence = line.lstrip().startswith(FENCE)
        item = ITEM.match(line)
        if inside or fence or _stays(line, lead):
            yield from _paragraph(lead, waiting)
            lead, waiting = "", ""
            inside = inside != fence
            yield line
        elif item is not None:
            yield from _paragraph(lead, waiting)
            lead, waiting = item[1], item[2]
        elif waiting:
            waiting = f"{waiting} {line.strip()}"
        else:
            lead = line[: len(line) - len(line.lstrip())]
            waiting = line.strip()
    yield from _paragraph(lead, waiting)


def _stays(line: str, lead: str) -> bool:
    """Whether a line is none of a paragraph; what is indented belongs to the item above it."""
    belongs = line.startswith("    ") and ITEM.match(lead) is not None
    return not line.strip() or (line.startswith(KEPT) and not belongs)


def _paragraph(lead: str, text: str) -> Iterator[str]:
    if not text:
        return
    held = INLINE.sub(lambda code: code[0].replace(" ", HELD), text)
    indent = " " * len(lead)
    found = textwrap.wrap(
        held,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for number in range(1, len(found)):
        if BEGINS_AN_ITEM.match(found[number]):
            before, _, last = found[number - 1].rpartition(" ")
            found[number - 1] = before
            found[number] = f"{indent}{last} {found[number].strip()}"
    for line in found:
        yield line.replace(HELD, " ")


def main() -> None:
    """Wrap every page of the folder."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = wrapped(text)
        if new != text:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
