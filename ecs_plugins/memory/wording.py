"""Whose words a memory keeps when texts are merged: a question never replaces a statement.

A question and the statement that answers it are near neighbours for a sentence embedder, so they
support one memory. What it says must stay the statement.
"""

from __future__ import annotations

_QUESTION_MARKS = ("?", "\uff1f", "\u061f")


def is_question(text: str) -> bool:
    """Whether a text ends as a question does."""
    return text.rstrip().rstrip("\"')\u201d\u2019").endswith(_QUESTION_MARKS)


def may_replace(new: str, old: str) -> bool:
    """Whether ``new`` may stand for what ``old`` said."""
    return is_question(old) or not is_question(new)
