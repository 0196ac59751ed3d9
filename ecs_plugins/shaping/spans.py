"""Spans of a text: the kept text, the gaps, and the ids under which gaps are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""First character, and one past the last."""

_HANDLE_LENGTH = 12
"""Hexadecimal digits of an id: two of a million texts have the same with a chance of .002."""


def join_spans(spans: Iterable[Span], text: str) -> str:
    """Return the text of spans in reading order; all spans give the text itself.

    A gap becomes one new line where the source has one there, else one space where it has white
    space.
    """
    runs = _runs(spans)
    if runs == [(0, len(text))]:
        return text
    kept: list[str] = []
    end_before = 0
    for start, end in runs:
        body = text[start:end].rstrip()
        if kept:
            gap = text[end_before:start]
            kept.append(_gap(gap))
        kept.append(body.lstrip("\r\n"))
        end_before = start + len(body)
    return "".join(kept)


def _runs(spans: Iterable[Span]) -> list[Span]:
    """Return the same characters in as few spans as possible."""
    runs: list[Span] = []
    end_before = -1
    for start, end in sorted(set(spans)):
        if start == end_before:
            start, _ = runs.pop()
        runs.append((start, end))
        end_before = end
    return runs


def _gap(text: str) -> str:
    if "\n" in text:
        return "\n"
    has_space = any(map(str.isspace, text))
    return " " if has_space else ""


def gaps(spans: Iterable[Span], text: str) -> list[str]:
    """Return the gaps between spans without white space around them; blank gaps do not count."""
    left_out: list[str] = []
    end_before = 0
    for start, end in _runs(spans):
        left_out.append(text[end_before:start].strip())
        end_before = end
    left_out.append(text[end_before:].strip())
    return [gap for gap in left_out if gap]


def by_handle(texts: Iterable[str]) -> dict[str, str]:
    """Return dropped texts by their id; equal texts have the same id everywhere."""
    return {_handle(text): text for text in texts}


def _handle(text: str) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(encoded).hexdigest()
    return digest[:_HANDLE_LENGTH]
